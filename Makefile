# Every target sets up what it needs in .venv, when that is missing or older than what it is made from.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# For the demonstration, for tests and checks, for the documentation: the last two add to the first.
BASE := $(VENV)/.base
READY := $(VENV)/.ready
DOCS := $(VENV)/.docs
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help demo test thorough check format docs dist bench accuracy study soak clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 18

$(BASE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "lmfcn needs Python 3.11 or newer; choose one with make PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	# torch goes first and in the version that is pinned, so that no other package chooses a build of it. From the
	# public index, Linux gets a build with CUDA libraries (gigabytes); PIP_EXTRA_INDEX_URL can name one for CPUs.
	$(INSTALL) torch
	$(INSTALL) --editable '.[report,textures,pretrained]'
	@touch $@

$(READY): $(BASE)
	$(INSTALL) --editable '.[report,textures,pretrained,torchvision,metric,cluster,serve,onnx,wsi,parquet,dev]'
	@touch $@

$(DOCS): $(BASE)
	$(INSTALL) --editable '.[report,textures,pretrained,docs]'
	@touch $@

demo: $(BASE)  ## train on built-in textures and write demo/report.html
	$(BIN)/lmfcn demo --output demo

# One thread per process, as several share the cores (three for two: many tests wait for programs that they start);
# files stay together for what their tests share.
test: $(READY)  ## run the tests and the examples in the documentation
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 3 --dist loadfile -m "not thorough"

thorough: $(READY)  ## run the few tests that take too long for every change
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile -m thorough

check: $(READY)  ## formatting, lint, types, import directions
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)  ## format and fix what can be fixed by a machine
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(DOCS)  ## build the documentation as a site: docs/_build/html/index.html
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --builder html docs docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html

# In an environment of its own: what publishes is not needed for anything else.
dist:  ## build wheel and sdist in dist and check them
	$(PYTHON) -m venv $(VENV)-dist
	$(VENV)-dist/bin/python -m pip install --quiet --disable-pip-version-check build twine
	rm -rf dist
	$(VENV)-dist/bin/python -m build
	$(VENV)-dist/bin/python -m twine check --strict dist/*

bench: $(READY)  ## speed, as ratios measured in one run
	$(BIN)/python benchmarks/speed.py

accuracy: $(READY)  ## test accuracy on striped Gaussians over five seeds
	$(BIN)/python benchmarks/accuracy.py

study: $(READY)  ## every method on every task with the images in DATA=..., resumable
	@test -n "$(DATA)" || { echo "make study needs DATA=folder, which holds lung, neu and usptex"; exit 2; }
	$(BIN)/python benchmarks/study.py $(DATA) --output benchmarks/study.jsonl

# SOAK=minutes or hours also keeps the table in docs/reliability.md; SOAK=short is for every change.
SOAK ?= minutes
soak: $(READY)  ## measure every promise: bad files, kills, full disks, other machines (SOAK=short, minutes, hours)
	$(BIN)/python benchmarks/soak --time $(SOAK) $(if $(filter short,$(SOAK)),,--write)

clean:  ## remove everything that the other targets made
	rm -rf $(VENV) $(VENV)-dist demo dist docs/_build docs/api docs/commands docs/gallery benchmarks/results .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
