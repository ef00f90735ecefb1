"""From options to native libraries: tree, header check, build. `python -m buildtools.native` does it ahead of time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from buildtools import paths, system_llama, vendor_sync
from buildtools.cmake_build import NativeBuild, native_build
from buildtools.errors import BuildError
from buildtools.options import BuildOptions, read_options


def prepare_tree() -> Path:
    """The llama.cpp tree to build, filled when it is the vendored one and absent.

    Raises
    ------
    BuildError
        It can't be filled, or `LLAMACY_LLAMA_CPP_DIR` names no llama.cpp.
    """
    tree = paths.tree()
    if tree == paths.VENDORED_TREE:
        vendor_sync.sync()
    elif not (tree / "include" / "llama.h").is_file():
        raise BuildError(f"LLAMACY_LLAMA_CPP_DIR={tree} holds no llama.cpp: it has no include/llama.h.")
    return tree


def find_native(options: BuildOptions, tree: Path) -> NativeBuild:
    """Check the headers against the mirrors, then build the libraries, or find them.

    Raises
    ------
    BuildError
        The headers differ, or the build failed.
    """
    from buildtools import headers

    if options.system_llama:
        overlay = paths.build_base(os.environ) / "system-llama"
        native = system_llama.system_build(options.system_llama, tree, overlay)
        headers.check(overlay)
        return native
    headers.check(tree)
    return native_build(options, tree)


def main() -> int:
    try:
        tree = prepare_tree()
        native = find_native(read_options(tree), tree)
    except BuildError as error:
        print(f"llamacy: error: {error}", file=sys.stderr)
        return 1
    print(f"llamacy: native libraries {native.key} are in {native.library_folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
