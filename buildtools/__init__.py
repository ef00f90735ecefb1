"""How setup.py builds llamacy: the vendored tree, the native libraries, the extension modules, the wheel."""
