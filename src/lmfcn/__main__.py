"""Run the command line as `python -m lmfcn`."""

from lmfcn.cli.main import main

main()
