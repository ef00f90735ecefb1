"""Builds llamacy. Everything that isn't in pyproject.toml is in buildtools/."""

import sys
from pathlib import Path

from setuptools import setup

# A build backend is started without the checkout on its path.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from buildtools import commands, extensions

commands.enter_root()
setup(
    ext_modules=extensions.placeholders(),
    cmdclass=commands.command_classes(),
    distclass=commands.NativeDistribution,
)
