"""Builds the consumer: `python setup.py build_ext --inplace`. It names no include path and no library."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(name="consumer", ext_modules=cythonize([Extension("consumer", ["consumer.pyx"], language="c++")]))
