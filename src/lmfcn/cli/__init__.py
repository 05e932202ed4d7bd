"""The command line: one file a command; arguments in, function calls out."""
