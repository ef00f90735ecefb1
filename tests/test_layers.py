"""The layers of docs/architecture: who may import whom."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers import REPO

PACKAGE = REPO / "src" / "llamacy"
SOURCES = sorted(path for pattern in ("*.py", "*.pyi", "*.pyx", "*.pxd") for path in PACKAGE.rglob(pattern))

L2 = {"grammar", "checkpoint", "speculative", "chat"}

# modules of core from bottom to top; a module may use its own row and the rows above it here
CORE_ORDER = [
    {"_architectures", "_handle", "_callback", "_status", "_children", "_abort", "_replace", "attempt", "log"},
    {
        "backend",
        "params",
        "gguf",
        "gguf_values",
        "gguf_tensors",
        "gguf_views",
        "gguf_header",
        "model_checks",
        "wordpiece",
    },
    {"_loading", "model", "vocab", "imatrix", "quantize", "quantize_data", "quantize_run"},
    {"batch", "candidates", "logprobs", "logits_function", "packing", "vectors"},
    {
        "_context_life",
        "_observers",
        "perf",
        "context",
        "decoding",
        "batch_ext",
        "process",
        "outputs",
        "memory",
        "state",
        "_state",
        "threadpool",
        "adapter",
        "control_vector",
        "sampler",
        "sampler_base",
        "samplers",
        "_chain_links",
        "_sampling",
        "_watched_sampler",
        "custom_sampler",
        "grammar_guard",
        "grammar_sampler",
        "dry_sampler",
        "min_tokens",
        "reasoning_budget",
        "backend_sampling",
    },
    {"text", "sequence", "_step", "scheduler", "embedder", "mtmd", "audio"},
    {"stream"},
]

_TRIPLE = re.compile(r'("""|\'\'\')(.*?)\1', re.DOTALL)
_LINE = re.compile(
    r"^(?P<indent>[ \t]*)(?:from[ \t]+(?P<module>[\w.]+)[ \t]+(?P<verb>c?import)[ \t]+(?P<names>\([^)]*\)|[^\n#]*)"
    r"|(?P<plain>c?import)[ \t]+(?P<modules>[^\n#]*))",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Use:
    """One module that a file imports or cimports."""

    path: Path
    module: str
    cimport: bool
    top_level: bool

    def __str__(self) -> str:
        verb = "cimports" if self.cimport else "imports"
        return f"{self.path.relative_to(REPO)} {verb} {self.module}"


def uses(path: Path) -> list[Use]:
    """Return what a file imports, with `from package import module` resolved to the module."""
    text = _TRIPLE.sub("''", path.read_text(encoding="utf-8"))
    type_checking = {
        line
        for block in re.findall(r"^if TYPE_CHECKING:\n((?:[ \t]+[^\n]*\n|\n)+)", text, re.MULTILINE)
        for line in block.splitlines()
    }
    found = []
    for match in _LINE.finditer(text):
        if match[0].splitlines()[0] in type_checking:
            continue
        top = match["indent"] == ""
        if match["plain"]:
            for name in match["modules"].split(","):
                found.append(Use(path, name.split()[0], match["plain"] == "cimport", top))
            continue
        module, cimport = match["module"], match["verb"] == "cimport"
        for name in re.sub(r"#[^\n]*", "", match["names"].strip("()")).split(","):
            if not name.strip():
                continue
            inner = f"{module}.{name.split()[0]}"
            found.append(Use(path, inner if _is_module(inner) else module, cimport, top))
    return found


def _is_module(name: str) -> bool:
    if not name.startswith("llamacy."):
        return False
    base = PACKAGE.joinpath(*name.split(".")[1:])
    return base.is_dir() or any(base.with_name(base.name + suffix).is_file() for suffix in (".py", ".pyx", ".pxd"))


def module_of(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = ["llamacy", *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    """Return which part of the house a module is in: base, native, core, an L2 package, or L3."""
    names = module.split(".")
    if len(names) == 1:
        return "root"
    if names[1] in ("errors", "types", "_paths", "_caller", "_imports"):
        return "base"
    if names[1] in ("native", "core", *L2):
        return names[1]
    return "L3"


def internal(use: Use) -> bool:
    return use.module.split(".")[0] == "llamacy"


def check(use: Use) -> str | None:
    """Return what is wrong with one import, or None."""
    here, there = part_of(module_of(use.path)), part_of(use.module) if internal(use) else None
    top = use.module.split(".")[0]
    if top == "numpy" and use.top_level and here != "L3":
        return "NumPy is not imported when a module is"
    if here == "base" and internal(use) and there != "base":
        return "errors, types, _paths, _caller and _imports use the standard library only"
    if here == "native":
        if use.path.suffix == ".pxd" and not (use.cimport and (top in ("libc", "libcpp") or there == "native")):
            return "the mirrors use libc and libcpp only"
        if use.path.suffix == ".py" and internal(use):
            return "the mirrors have no code"
    if here == "core":
        if there in (*L2, "L3", "root"):
            return "core doesn't know who uses it"
        if use.cimport and use.path.suffix == ".pxd" and there == "native" and use.module != "llamacy.native.handles":
            return "the .pxd of a class needs no header: it uses native/handles.pxd only"
        if there == "native" and not use.cimport:
            return "the mirrors are cimported"
    if here in L2:
        if use.cimport or there == "native":
            return "features use the Python API of core"
        if there in ("L3", "root") or (there in L2 and there != here):
            return "features don't use each other, nor what is above them"
        if there == "core" and "._" in use.module:
            return "features use public modules of core"
    if here == "L3" and there == "native":
        return "only core uses the mirrors"
    return None


def test_package_has_sources() -> None:
    assert {"errors.py", "types.py", "__init__.py"} <= {path.name for path in SOURCES}
    assert any(path.suffix == ".pyx" for path in SOURCES)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_module_imports_only_what_its_layer_may(path: Path) -> None:
    breaches = [f"{use}: {wrong}" for use in uses(path) if (wrong := check(use))]
    assert not breaches, "\n".join(breaches)


@pytest.mark.parametrize(
    "path",
    [path for path in SOURCES if path.parent.name == "core" and path.stem != "__init__"],
    ids=lambda path: path.name,
)
def test_core_module_uses_lower_core_modules_only(path: Path) -> None:
    rank = {name: index for index, names in enumerate(CORE_ORDER) for name in names}
    assert path.stem in rank, f"{path.stem} has no place in CORE_ORDER: give it one"
    if path.suffix == ".pyi":
        return  # annotations may name what is above
    above = [
        str(use)
        for use in uses(path)
        if use.module.startswith("llamacy.core.") and rank[use.module.split(".")[2]] > rank[path.stem]
    ]
    assert not above, "\n".join(above)


@pytest.mark.parametrize(
    "path",
    sorted((PACKAGE / "native").glob("*.pxd")),
    ids=lambda path: path.name,
)
def test_mirror_declares_no_python_objects(path: Path) -> None:
    code = re.sub(r"#[^\n]*", "", _TRIPLE.sub("", path.read_text(encoding="utf-8")))
    found = re.findall(r"^.*\b(?:object|cdef class|list|dict|tuple|bytes|cpdef|inline)\b[^\n]*$", code, re.MULTILINE)
    found = [line for line in found if not line.strip().startswith(("void ", "#")) and '"' not in line]
    assert not found, "\n".join(found)


def test_checker_sees_breaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    monkeypatch.setitem(globals(), "REPO", tmp_path)
    for folder in ("native", "core", "grammar", "chat"):
        (tmp_path / folder).mkdir()
    for name in ("native/llama.pxd", "core/model.pyx", "chat/parse.py", "llama.py"):
        (tmp_path / name).write_text("")
    breaches = {
        "core/a.pyx": "from llamacy.native cimport (\n    llama as c_llama,  # fine\n)\nimport numpy as np\n",
        "core/b.pyx": "def f():\n    from llamacy.chat import parse\n",
        "core/c.pxd": "from llamacy.native cimport llama\n",
        "grammar/d.py": "from llamacy.native cimport llama\n",
        "grammar/e.py": "import os\nfrom llamacy.chat.parse import x\n",
        "native/f.pxd": "from cpython.object cimport PyObject\n",
        "cli.py": "from llamacy import native\n",
        "errors.py": "from llamacy.llama import Llama\n",
    }
    for name, text in breaches.items():
        path = tmp_path / name
        path.write_text(text)
        assert [use for use in uses(path) if check(use)], name
    fine = tmp_path / "core" / "fine.pyx"
    fine.write_text(
        '"""Not an import:\n\nimport numpy\n"""\nfrom llamacy.native cimport llama\nfrom llamacy import errors\n'
    )
    assert [str(use) for use in uses(fine) if check(use)] == []
