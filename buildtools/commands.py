"""The setuptools commands that setup.py uses: native libraries come before extension modules."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

from setuptools import Distribution, Extension
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

from buildtools import extensions, install_native, module_cache, paths, vendor_sync
from buildtools.compiler import find_compiler
from buildtools.errors import BuildError
from buildtools.native import find_native, prepare_tree
from buildtools.options import read_options


class BuildBase(build):
    """build that keeps different kinds of builds apart, so that one doesn't undo the other."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.build_base = os.path.relpath(paths.build_base(os.environ))


class BuildNative(build_ext):
    """build_ext that first builds llama.cpp, then the modules against it, and puts the libraries beside them."""

    def run(self) -> None:
        try:
            self._run()
        except BuildError as error:
            # One paragraph and no traceback: this is what a person who typed `pip install` gets to read.
            sys.stdout.flush()
            print(f"\nllamacy: error: {error}\n", file=sys.stderr, flush=True)
            raise SystemExit(1) from None

    def _run(self) -> None:
        _check_python_headers()
        tree = prepare_tree()
        options = read_options(tree)
        # Not build_temp, which an editable installation puts into a folder of its own.
        build_folder = paths.build_base(os.environ)
        # Seconds before minutes: an error in a module shows before llama.cpp is built.
        extensions.cythonize_all(self.extensions, options, build_folder, bool(self.force))
        native = find_native(options, tree)
        stamp = extensions.stamp_file(build_folder, options, native)
        for extension in self.extensions:
            extensions.configure(extension, options, native, stamp)
        self.parallel = options.jobs
        super().run()
        package = paths.PACKAGE if self.inplace else Path(self.build_lib) / "llamacy"
        strip = options.wheel and not options.debug
        self.native_files = install_native.install(native, package, strip)
        if not self.inplace:
            self._remove_leftovers(package)

    def _remove_leftovers(self, package: Path) -> None:
        """Remove files of earlier builds from the build folder: a module that was renamed must not be shipped twice."""
        python = self.get_finalized_command("build_py")
        wanted = {Path(name).resolve() for name in (*python.get_outputs(include_bytecode=False), *self.get_outputs())}
        for path in sorted(package.rglob("*")):
            if path.is_file() and path.resolve() not in wanted:
                path.unlink()

    def build_extensions(self) -> None:
        if sys.platform.startswith("linux"):
            # It must stand before the libraries: modules then depend on those they call, not on all.
            for name in ("linker_so", "linker_so_cxx"):
                command = getattr(self.compiler, name, None)
                if command:
                    setattr(self.compiler, name, [*command, "-Wl,--as-needed"])
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name))
        command = [*self.compiler.compiler_so, *self.compiler.linker_so, find_compiler().version]
        key = module_cache.module_key(ext, command)
        if self.force or not module_cache.fetch(ext.name, key, target):
            print(f"llamacy: compiling {ext.name}", flush=True)
            # setuptools goes by times; here the content has changed, whatever they say.
            target.unlink(missing_ok=True)
            super().build_extension(ext)
            module_cache.store(ext.name, key, target)

    def get_outputs(self) -> list[str]:
        outputs: list[str] = super().get_outputs()
        if not self.inplace:
            outputs += [str(path) for path in getattr(self, "native_files", [])]
        return outputs


class SdistWithTree(sdist):
    """sdist that carries the vendored tree, so that it builds with the network off."""

    def run(self) -> None:
        try:
            vendor_sync.sync()
        except BuildError as error:
            print(f"\nllamacy: error: {error}\n", file=sys.stderr, flush=True)
            raise SystemExit(1) from None
        super().run()


def _check_python_headers() -> None:
    """Say which package is missing before the compiler says which file."""
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").is_file():
        raise BuildError(
            f"{include / 'Python.h'} is missing: install the headers of this Python (Debian and Ubuntu: apt "
            f"install python{sys.version_info[0]}.{sys.version_info[1]}-dev; Fedora: dnf install "
            "python3-devel)."
        )


def command_classes() -> dict[str, type]:
    return {"build": BuildBase, "build_ext": BuildNative, "sdist": SdistWithTree}


class NativeDistribution(Distribution):
    """A distribution that is always platform-specific, also before its modules are known."""

    def has_ext_modules(self) -> bool:
        return True


def enter_root() -> None:
    """Setuptools reads relative paths; make them relative to the checkout."""
    os.chdir(paths.ROOT)
