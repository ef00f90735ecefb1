"""Extension modules: found by looking, linked with what they use, found again by their own folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from buildtools import extensions, paths
from buildtools.cmake_build import NativeBuild
from buildtools.options import BuildOptions

NATIVE = NativeBuild(
    Path("/native/lib"),
    Path("/native/include"),
    {name: f"llamacy-{name}" for name in ("llama", "ggml", "ggml-base", "mtmd")},
    True,
    "key",
    {},
)


def test_placeholders_are_all_pyx_files() -> None:
    names = {extension.name for extension in extensions.placeholders()}
    expected = {".".join(path.relative_to(paths.SOURCE).with_suffix("").parts) for path in paths.SOURCE.rglob("*.pyx")}
    assert names == expected
    assert "llamacy.core.model" in names


@pytest.mark.parametrize("extension", extensions.placeholders(), ids=lambda extension: extension.name)
def test_modules_never_link_the_cpu_backend(extension: extensions.Extension) -> None:
    extensions.configure(extension, BuildOptions(), NATIVE, Path("stamp"))
    assert set(extension.libraries) <= {"llamacy-llama", "llamacy-ggml", "llamacy-ggml-base", "llamacy-mtmd"}


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("from llamacy.native cimport mtmd as c_mtmd\n", True),
        ("from llamacy.native cimport llama as c_llama, mtmd\n", True),
        ("from llamacy.native.mtmd_helper cimport mtmd_helper_log_set\n", True),
        ("cimport llamacy.native.mtmd\n", True),
        ("from llamacy.native cimport llama as c_llama\n", False),
        ("from llamacy.native.handles cimport mtmd_context\n", False),
    ],
)
def test_mtmd_is_linked_by_modules_that_call_it(text: str, needed: bool) -> None:
    assert bool(extensions._MTMD.search(text)) is needed


@pytest.mark.parametrize(
    ("name", "path"),
    [("llamacy.core.model", "../_lib"), ("llamacy.top", "./_lib"), ("llamacy.a.b.c", "../../_lib")],
)
def test_library_rpath_is_relative(name: str, path: str) -> None:
    assert extensions.library_rpath(name).partition("/")[2] == path


def test_flavour_changes_with_flags_and_libraries() -> None:
    plain = extensions.flavour(BuildOptions(), NATIVE)
    assert extensions.flavour(BuildOptions(jobs=9), NATIVE) == plain
    for options in (BuildOptions(debug=True), BuildOptions(linetrace=True), BuildOptions(sanitize="address")):
        assert extensions.flavour(options, NATIVE) != plain
    other = NativeBuild(NATIVE.library_folder, NATIVE.include_folder, {}, True, "other", {})
    assert extensions.flavour(BuildOptions(), other) != plain


def test_stamp_file_is_touched_by_a_change_only(tmp_path: Path) -> None:
    stamp = extensions.stamp_file(tmp_path, BuildOptions(), NATIVE)
    before = stamp.stat().st_mtime_ns
    assert extensions.stamp_file(tmp_path, BuildOptions(), NATIVE).stat().st_mtime_ns == before
    extensions.stamp_file(tmp_path, BuildOptions(debug=True), NATIVE)
    assert stamp.stat().st_mtime_ns != before


def test_headers_below_are_all_that_headers_beside_each_other_include(tmp_path):
    for name, text in {
        "a.h": '#include "b.h"\n#include <vector>\n#include "llama.h"\n',
        "b.h": '  #  include "c.h"\n// #include "d.h" is another one\n',
        "c.h": '#include "a.h"\n',
        "d.h": "",
    }.items():
        (tmp_path / name).write_text(text)
    assert extensions.headers_below([tmp_path / "a.h"]) == {tmp_path / name for name in ("a.h", "b.h", "c.h")}
