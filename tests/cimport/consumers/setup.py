"""Builds the consumers, as a user of llamacy would."""

import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

import llamacy

libraries = llamacy.get_library_dir()
link = ["-Wl,-rpath," + libraries] if sys.platform != "win32" else []
raw = Extension(
    "raw",
    ["raw.pyx"],
    language="c++",
    include_dirs=[llamacy.get_include()],
    library_dirs=[libraries],
    libraries=["llamacy-llama", "llamacy-ggml", "llamacy-ggml-base"],
    extra_compile_args=["-std=c++17"],
    extra_link_args=link,
)
through_classes = Extension("through_classes", ["through_classes.pyx"], language="c++")

rows = Extension("rows", ["rows.pyx"], language="c++")

setup(name="consumers", ext_modules=cythonize([raw, through_classes, rows]))
