"""Mirrors of the C headers of llama.cpp, for ``cimport`` only: this package has no Python content."""
