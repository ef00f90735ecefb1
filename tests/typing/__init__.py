"""Code that is checked by mypy and never run: what the stubs promise, and what they refuse."""
