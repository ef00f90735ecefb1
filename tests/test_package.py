"""The front door: lazy names, version, folders, and what a broken installation says."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import llamacy
from llamacy import _diagnosis, errors, types
from tests.helpers import REPO
from tests.helpers.process import run_python

PACKAGE = Path(llamacy.__file__).resolve().parent


def test_version_is_that_of_pyproject() -> None:
    text = (REPO / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
    assert found is not None
    assert found[1] == llamacy.__version__
    assert f"## [{llamacy.__version__}]" in (REPO / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_public_name_can_be_had() -> None:
    for name in llamacy.__all__:
        assert getattr(llamacy, name) is not None
    assert len(set(llamacy.__all__)) == len(llamacy.__all__)
    assert set(llamacy.__all__) <= set(dir(llamacy))


def test_every_name_lives_where_the_table_says() -> None:
    for name, module in llamacy._MODULES.items():
        home = importlib.import_module(f"llamacy.{module}")
        assert name in getattr(home, "__all__", vars(home)), (name, module)


@pytest.mark.parametrize("module", [errors, types])
def test_all_errors_and_types_are_public(module: object) -> None:
    defined = {
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__ and not name.startswith("_")  # type: ignore[attr-defined]
    }
    assert defined <= set(llamacy.__all__)


def test_stub_has_the_same_names() -> None:
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    names = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    names |= {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    assert names == set(llamacy.__all__)
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                assert f"llamacy.{llamacy._MODULES[alias.name]}" == node.module, alias.name


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        llamacy.nothing  # noqa: B018


def test_import_loads_nothing_but_itself() -> None:
    code = """
import sys
before = set(sys.modules)
import llamacy
print(sorted(set(sys.modules) - before))
maps = open("/proc/self/maps").read() if sys.platform == "linux" else ""
print([line for line in maps.splitlines() if "ggml" in line or "llamacy-" in line or "libllama" in line])
"""
    assert run_python(code).stdout.splitlines() == ["['llamacy']", "[]"]


def test_errors_and_types_load_no_native_code() -> None:
    code = "import sys, llamacy as l; l.LlamacyError, l.FileType; print([m for m in sys.modules if 'core' in m])"
    assert run_python(code).stdout.strip() == "[]"


def test_star_import_gives_all() -> None:
    assert run_python("from llamacy import *; print(Llama, Model, devices)").stdout.count("llamacy") >= 2


def copy_package(target: Path) -> Path:
    """Copy the package without what is built."""
    package = target / "llamacy"
    shutil.copytree(
        PACKAGE,
        package,
        ignore=shutil.ignore_patterns("*.so", "*.pyd", "_lib", "include", "__pycache__"),
    )
    return target


def import_error(folder: Path, code: str = "from llamacy import Model") -> str:
    """Import from a folder and return the message of the ImportError."""
    code = f"try:\n    {code}\nexcept ImportError as error:\n    print(error)\nelse:\n    raise SystemExit(1)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_not_built_names_the_file(tmp_path: Path) -> None:
    message = import_error(copy_package(tmp_path))
    assert message.startswith("llamacy isn't built: ")
    assert EXTENSION_SUFFIXES[0] in message
    assert "pip install" in message


def test_import_built_for_another_python_says_so(tmp_path: Path) -> None:
    folder = copy_package(tmp_path)
    (folder / "llamacy" / "core" / "model.cpython-39-x86_64-linux-gnu.so").write_bytes(b"")
    message = import_error(folder)
    assert "built for another Python" in message
    assert "model.cpython-39-x86_64-linux-gnu.so" in message
    assert sys.executable in message


def test_import_missing_package_is_named(tmp_path: Path) -> None:
    folder = copy_package(tmp_path)
    (folder / "llamacy" / "llama.py").write_text("import package_that_is_not_there\n")
    message = import_error(folder, "from llamacy import Llama")
    assert message == (
        "llamacy needs the package 'package_that_is_not_there', which isn't installed: "
        "pip install package_that_is_not_there"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="ELF libraries")
@pytest.mark.parametrize("library", ["libllamacy-llama.so", "libgomp.so.77", "libunheardof.so.7"])
def test_import_missing_library_is_named(tmp_path: Path, library: str) -> None:
    """A real extension module whose one dependency is removed after linking (IB-006, IB-008)."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = copy_package(tmp_path)
    needed = tmp_path / library
    subprocess.run(
        [compiler, "-shared", "-fPIC", f"-Wl,-soname,{library}", "-o", needed, "-x", "c", "-"],
        input=b"int llamacy_test_needed(void) { return 1; }",
        check=True,
    )
    module = folder / "llamacy" / "core" / f"model{EXTENSION_SUFFIXES[0]}"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", module, "-x", "c", "-", "-x", "none", needed],
        input=b"int llamacy_test_needed(void); int PyInit_model(void) { return llamacy_test_needed(); }",
        check=True,
    )
    needed.unlink()
    message = import_error(folder)
    assert library in message
    assert "is missing" in message
    assert "\n" not in message
    if library.startswith("libllamacy"):
        assert "pip install --force-reinstall" in message
    if library.startswith("libgomp"):
        assert "libgomp1" in message


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            "dlopen(/x/a.so, 2): Library not loaded: @rpath/libllamacy-ggml.dylib\n  Referenced from: /x",
            "libllamacy-ggml.dylib",
        ),
        (
            "Error loading shared library libstdc++.so.6: No such file or directory (needed by /x)",
            "libstdc++.so.6",
        ),
        ("libcudart.so.12: cannot open shared object file: No such file or directory", "libcudart.so.12"),
        ("/x/model.so: undefined symbol: llama_nothing", "undefined symbol: llama_nothing"),
    ],
)
def test_explain_names_the_library_of_any_loader(text: str, named: str) -> None:
    assert named in _diagnosis.explain(ImportError(text))


def test_include_and_library_folders_of_a_build(tmp_path: Path) -> None:
    folder = copy_package(tmp_path)
    code = "import llamacy; print(llamacy.get_include()); print(llamacy.get_library_dir())"
    with pytest.raises(AssertionError, match=r"FileNotFoundError: .*llama\.h is missing: build llamacy first"):
        run_python(code, env={"PYTHONPATH": str(folder)}, cwd=folder)
    for name, text in {"include/llama.h": "", "_lib/build.json": "{}"}.items():
        path = folder / "llamacy" / name
        path.parent.mkdir()
        path.write_text(text)
    package = (folder / "llamacy").resolve()
    shown = run_python(
        code,
        options=["-P"] if sys.version_info >= (3, 11) else [],
        env={"PYTHONPATH": str(folder)},
        cwd=folder,
    )
    assert shown.stdout.splitlines() == [str(package / "include"), str(package / "_lib")]


def test_library_folder_of_a_system_build_is_that_one(tmp_path: Path) -> None:
    folder = copy_package(tmp_path)
    facts = folder / "llamacy" / "_lib" / "build.json"
    facts.parent.mkdir()
    facts.write_text(json.dumps({"library_folder": "/opt/llama/lib"}))
    shown = run_python("import llamacy; print(llamacy.get_library_dir())", env={"PYTHONPATH": str(folder)}, cwd=folder)
    assert shown.stdout.strip() == "/opt/llama/lib"


def test_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_errors_page_has_every_error() -> None:
    page = (REPO / "docs" / "errors.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", page, re.MULTILINE))
    for name, cls in vars(errors).items():
        if isinstance(cls, type) and issubclass(cls, errors.LlamacyError):
            assert rows.pop(name) == ", ".join(f"`{base.__name__}`" for base in cls.__bases__), name
    assert not rows


def test_pages_link_to_files_that_are_there() -> None:
    for page in [REPO / "README.md", *sorted((REPO / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_architecture_page_has_every_module_of_core() -> None:
    page = (REPO / "docs" / "architecture.md").read_text(encoding="utf-8")
    core = PACKAGE / "core"
    modules = {path.stem for path in [*core.glob("*.pyx"), *core.glob("*.py")]} - {"__init__"}
    assert modules
    named = set(re.findall(r"`(\w+)`", page))
    assert modules <= named, f"docs/architecture.md doesn't name {', '.join(sorted(modules - named))}"
