"""The formats, by name."""
