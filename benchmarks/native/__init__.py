"""The native loop and how it is built."""
