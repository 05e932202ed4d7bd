"""The local web page: a fitted model in a browser."""
