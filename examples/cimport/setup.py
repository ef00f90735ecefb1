"""Builds the consumer: `python setup.py build_ext --inplace`. Neither an include path nor a library is named."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(name="consumer", ext_modules=cythonize([Extension("consumer", ["consumer.pyx"], language="c++")]))
