"""House rules that a program can check: size, stubs, docstrings, leftovers."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import REPO

PACKAGE = REPO / "src" / "llamacy"
MAX_LINES = 600
EXTENSIONS = sorted(PACKAGE.rglob("*.pyx"))
PYTHON = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return ".".join(["llamacy", *path.relative_to(PACKAGE).with_suffix("").parts])


def ids(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize(
    "path",
    [
        path
        for suffix in ("*.py", "*.pyi", "*.pyx", "*.pxd", "*.h")
        for path in sorted(PACKAGE.rglob(suffix))
        if path.parent.name not in ("native", "include") and "_lib" not in path.parts
    ],
    ids=ids,
)
def test_module_is_small(path: Path) -> None:
    n_lines = len(path.read_text(encoding="utf-8").splitlines())
    assert n_lines <= MAX_LINES, f"{ids(path)} has {n_lines} lines: split it by noun"


def _files_of_the_project() -> list[Path]:
    built = {"_lib", "include", "build", "__pycache__"}
    folders = ("src", "tests", "buildtools", "benchmarks", "docs", "examples")
    suffixes = {".py", ".pyi", ".pyx", ".pxd", ".h", ".hpp", ".c", ".cpp", ".md", ".toml", ".txt", ".cmake", ".map"}
    return [
        path for folder in folders for path in sorted((REPO / folder).rglob("*"))
        if path.suffix in suffixes and path.is_file() and not built & set(path.parts)
    ]  # fmt: skip


def test_nothing_is_left_to_do() -> None:
    marks = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b")
    found = [
        f"{path.relative_to(REPO)}:{number}: {line.strip()}"
        for path in _files_of_the_project()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if marks.search(line)
    ]
    assert not found, "\n".join(found)


def _has_first_line(docstring: str | None) -> bool:
    return bool(docstring) and docstring.strip().split("\n\n")[0].split("\n")[-1].rstrip().endswith(".")


def _definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield the public functions, classes and methods below a node by qualified name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if child.name.startswith("_"):
                continue
            yield prefix + child.name, child
            if isinstance(child, ast.ClassDef):
                yield from _definitions(child, f"{prefix}{child.name}.")
        elif isinstance(child, (ast.If, ast.Try)):
            yield from _definitions(child, prefix)


@pytest.mark.parametrize("path", PYTHON, ids=ids)
def test_python_definition_has_docstring(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    wrong = [] if not tree.body or _has_first_line(ast.get_docstring(tree)) else ["the module"]
    private = any(part.startswith("_") and part != "__init__" for part in path.with_suffix("").parts)
    if not private:
        wrong += [
            name
            for name, node in _definitions(tree)
            if not _has_first_line(ast.get_docstring(node)) and not _is_overload_or_setter(node)
        ]
    assert not wrong, f"no docstring whose first line ends with a full stop: {', '.join(wrong)}"


def _is_overload_or_setter(node: ast.AST) -> bool:
    return any(
        ast.unparse(decorator).endswith(("overload", ".setter")) for decorator in getattr(node, "decorator_list", ())
    )


@pytest.mark.parametrize("path", EXTENSIONS, ids=ids)
def test_extension_has_stub_and_declarations(path: Path) -> None:
    code = path.read_text(encoding="utf-8")
    has_python_api = re.search(r"^(?:def|class|cdef class|cpdef (?!enum)\w+) (?!_)", code, re.MULTILINE)
    if has_python_api:
        assert path.with_suffix(".pyi").is_file(), f"{ids(path)} has no stub"


@pytest.mark.parametrize("path", [path for path in EXTENSIONS if path.with_suffix(".pyi").is_file()], ids=ids)
def test_stub_matches_module(path: Path) -> None:
    module = importlib.import_module(name_of(path))
    stub = ast.parse(path.with_suffix(".pyi").read_text(encoding="utf-8"))
    public = set(_stub_names(stub))
    names = list(getattr(module, "__all__", ()))
    assert set(names) == public, "__all__ and the stub differ"
    assert names == sorted(names), "__all__ is not sorted"
    missing = [name for name, _ in _definitions(stub) if _resolve(module, name) is None]
    assert not missing, f"in the stub but not in the module: {', '.join(missing)}"
    for name in public:
        obj = getattr(module, name)
        if inspect.isclass(obj) and not issubclass(obj, BaseException):
            hidden = {
                attribute
                for attribute in vars(obj)
                if not attribute.startswith("_") and attribute not in _stub_attributes(stub, name)
            }
            assert not hidden, f"public in {name} but not in the stub: {', '.join(sorted(hidden))}"


def _stub_names(stub: ast.Module) -> Iterator[str]:
    for node in stub.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names = [node.name]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        else:
            continue
        yield from (name for name in names if not name.startswith("_"))


def _stub_attributes(stub: ast.Module, name: str) -> set[str]:
    (cls,) = (node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == name)
    found = {node.name for node in cls.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    found |= {node.target.id for node in cls.body if isinstance(node, ast.AnnAssign)}
    return found | {target.id for node in cls.body if isinstance(node, ast.Assign) for target in node.targets}


def _resolve(module: Any, name: str) -> Any:
    obj = module
    for part in name.split("."):
        obj = inspect.getattr_static(obj, part, None)
        if obj is None:
            return None
    return obj.__func__ if isinstance(obj, (staticmethod, classmethod)) else obj


@pytest.mark.parametrize("path", [path for path in EXTENSIONS if path.with_suffix(".pyi").is_file()], ids=ids)
def test_extension_definition_has_docstring(path: Path) -> None:
    module = importlib.import_module(name_of(path))
    stub = ast.parse(path.with_suffix(".pyi").read_text(encoding="utf-8"))
    declarations = path.with_suffix(".pxd")
    text = path.read_text(encoding="utf-8") + (
        declarations.read_text(encoding="utf-8") if declarations.is_file() else ""
    )
    # attributes that Cython exports have no docstring of their own; the class says what they are
    attributes = set(re.findall(r"^\s+cdef readonly .*?(\w+)\s*(?:#.*)?$", text, re.MULTILINE))
    wrong = [] if _has_first_line(module.__doc__) else ["the module"]
    wrong += [
        name
        for name, node in _definitions(stub)
        if not _is_overload_or_setter(node)
        and name.rpartition(".")[2] not in attributes
        and not _has_first_line(getattr(_resolve(module, name), "__doc__", None))
    ]
    assert not wrong, f"no docstring whose first line ends with a full stop: {', '.join(wrong)}"
