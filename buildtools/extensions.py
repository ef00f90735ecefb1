"""The extension modules: which there are, and how they are compiled and linked."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from setuptools import Extension

from buildtools import paths
from buildtools.cmake_build import NativeBuild
from buildtools.errors import BuildError
from buildtools.options import BuildOptions

#: Chosen once for every module. Bounds are checked where input enters, not at every element.
DIRECTIVES: dict[str, Any] = {
    "language_level": 3,
    "binding": True,
    "embedsignature": False,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "nonecheck": False,
    "freethreading_compatible": False,
}

#: A module that cimports these mirrors needs libmtmd; the others don't load it.
_MTMD = re.compile(
    r"^\s*(?:from\s+llamacy\.native(?:\.mtmd\w*)?\s+cimport\s+.*\bmtmd|cimport\s+llamacy\.native\.mtmd"
    r"|from\s+llamacy\.native\.mtmd\w*\s+cimport)",
    re.MULTILINE,
)

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def sources(source: Path = paths.SOURCE) -> list[Path]:
    """Every .pyx of the package, found by looking."""
    return sorted(source.glob("llamacy/**/*.pyx"))


def module_name(pyx: Path, source: Path = paths.SOURCE) -> str:
    return ".".join(pyx.relative_to(source).with_suffix("").parts)


def placeholders(root: Path = paths.ROOT) -> list[Extension]:
    """Extensions with their names and sources only, for setuptools to know what the distribution holds."""
    return [
        Extension(module_name(pyx, root / "src"), [pyx.relative_to(root).as_posix()], language="c++")
        for pyx in sources(root / "src")
    ]


def compile_flags(options: BuildOptions) -> tuple[list[str], list[str], list[tuple[str, str | None]]]:
    """Arguments of the compiler and of the linker, and macros."""
    macros: list[tuple[str, str | None]] = []
    if options.linetrace:
        # CYTHON_USE_SYS_MONITORING=0: coverage.py's Cython plugin needs the older tracing on Python 3.12 and newer.
        macros += [("CYTHON_TRACE_NOGIL", "1"), ("CYTHON_USE_SYS_MONITORING", "0")]
    if sys.platform == "win32":
        return ["/std:c++17", "/O2", "/EHsc"], [], macros
    level = "-O1" if options.fast_compile or options.sanitize or options.linetrace else "-O3"
    compile_args = [
        "-std=c++17",
        level,
        "-fvisibility=hidden",
        "-Wno-unused-function",
        "-Wno-deprecated-declarations",
    ]
    link_args: list[str] = []
    if options.debug or options.sanitize:
        compile_args.append("-g")
    else:
        compile_args.append("-g0")
    if options.sanitize:
        compile_args += [f"-fsanitize={options.sanitize}", "-fno-omit-frame-pointer"]
        link_args.append(f"-fsanitize={options.sanitize}")
    return compile_args, link_args, macros


def library_rpath(name: str) -> str:
    """Where an extension module finds the package's libraries, from its own folder."""
    up = "/".join([".."] * (name.count(".") - 1)) or "."
    origin = "@loader_path" if sys.platform == "darwin" else "$ORIGIN"
    return f"{origin}/{up}/{paths.LIBRARY_FOLDER}"


def flavour(options: BuildOptions, native: NativeBuild) -> str:
    """A short name of everything that changes the modules without any of their sources changing."""
    text = json.dumps([compile_flags(options), options.linetrace, native.key, DIRECTIVES], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def stamp_file(folder: Path, options: BuildOptions, native: NativeBuild) -> Path:
    """A file that is newer than the modules when they must be built anew; the modules depend on it."""
    stamp = folder / f"flavour-{sys.implementation.cache_tag}.txt"
    text = flavour(options, native) + "\n"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != text:
        folder.mkdir(parents=True, exist_ok=True)
        stamp.write_text(text, encoding="utf-8")
    return stamp


def configure(extension: Extension, options: BuildOptions, native: NativeBuild, stamp: Path) -> None:
    """Fill in how one extension is compiled and linked."""
    pyx = paths.SOURCE.joinpath(*extension.name.split(".")).with_suffix(".pyx")
    text = "\n".join(name.read_text(encoding="utf-8") for name in (pyx, pyx.with_suffix(".pxd")) if name.is_file())
    compile_args, link_args, macros = compile_flags(options)
    wanted = ["mtmd"] if _MTMD.search(text) else []
    # Never ggml-cpu: its functions are asked for by name at run time, so one module serves every layout.
    wanted += ["llama", "ggml", "ggml-base"]
    extension.libraries = [native.link_names[name] for name in wanted]
    extension.library_dirs = [str(native.library_folder)]
    # Small C headers lie beside the modules that use them.
    extension.include_dirs = [str(native.include_folder), os.path.relpath(pyx.parent)]
    extension.define_macros = macros
    extension.extra_compile_args = compile_args
    extension.extra_link_args = link_args
    extension.depends = sorted({*extension.depends, str(stamp)})
    if sys.platform != "win32":
        rpath = library_rpath(extension.name) if native.bundled else str(native.library_folder)
        extension.extra_link_args = [*link_args, f"-Wl,-rpath,{rpath}"]
        if native.bundled and sys.platform.startswith("linux"):
            # The older kind of entry comes before LD_LIBRARY_PATH, which may lead to another copy of the libraries.
            extension.extra_link_args.append("-Wl,--disable-new-dtags")


def headers_below(headers: Iterable[Path]) -> set[Path]:
    """Headers, and those of their folders that they include, also through other ones."""
    found: set[Path] = set()
    todo = list(headers)
    while todo:
        header = todo.pop()
        if header not in found and header.is_file():
            found.add(header)
            todo += [header.parent / name for name in _INCLUDE.findall(header.read_text(encoding="utf-8"))]
    return found


def cythonize_all(extensions: list[Extension], options: BuildOptions, build_folder: Path, force: bool = False) -> None:
    """Turn the .pyx sources of extensions into C++, in place of their `sources`."""
    try:
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError
    except ImportError as error:
        raise BuildError(
            "Cython is missing: pip install 'cython>=3.1' (a normal `pip install .` does that itself)."
        ) from error
    directives = dict(DIRECTIVES)
    if options.linetrace:
        directives["linetrace"] = True
    pending = {extension.name: extension for extension in extensions if extension.sources[0].endswith(".pyx")}
    if not pending:
        return
    # Other directives make other C++ of the same source, so each set has its own folder.
    folder = build_folder / ("cython-trace" if options.linetrace else "cython")
    try:
        done = cythonize(
            list(pending.values()),
            nthreads=options.jobs if options.jobs > 1 and len(pending) > 1 else 0,
            build_dir=str(folder),
            include_path=[os.path.relpath(paths.SOURCE)],
            compiler_directives=directives,
            annotate=False,
            force=force,
            language_level=3,
        )
    except CompileError as error:
        raise BuildError(f"Cython refused a module ({error}); its message is above.") from error
    for module in done:
        pending[module.name].sources = list(module.sources)
        # Cython knows of the headers that modules name, but not of what these include
        included = headers_below(Path(name) for name in module.depends if name.endswith(".h"))
        pending[module.name].depends = sorted(
            {*pending[module.name].depends, *module.depends, *(header.as_posix() for header in included)}
        )
    # nor does it renew its copies of those, which the compiler would find first
    for copy in folder.rglob("*.h"):
        copy.unlink()
