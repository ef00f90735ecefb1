"""Compares the header mirrors of ``llamacy.native`` with the headers of a llama.cpp tree.

``python -m buildtools.headers [TREE]`` prints the coverage of every header and exits with 1 on a difference;
the build calls :func:`check`, so that a tree that the mirrors do not describe stops it with the differences
by name instead of with a compiler error, or with a silently wrong call.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from buildtools.c_headers import parse_header
from buildtools.declarations import Declarations, Function, HeaderSyntaxError, Struct
from buildtools.errors import BuildError
from buildtools.mirrors import Mirror, parse_mirrors
from buildtools.paths import PACKAGE, ROOT
from buildtools.paths import tree as default_tree

__all__ = [
    "HEADERS",
    "INCLUDE_FOLDERS",
    "OMITTED",
    "Coverage",
    "Difference",
    "HeaderMismatch",
    "check",
    "compare",
    "coverage",
    "main",
]

MIRRORS = PACKAGE / "native"

#: Module of `llamacy.native` and the header it mirrors; each after the headers that it includes.
HEADERS = {
    "ggml": "ggml/include/ggml.h",
    "ggml_alloc": "ggml/include/ggml-alloc.h",
    "ggml_backend": "ggml/include/ggml-backend.h",
    "ggml_cpu": "ggml/include/ggml-cpu.h",
    "gguf": "ggml/include/gguf.h",
    "ggml_opt": "ggml/include/ggml-opt.h",
    "llama": "include/llama.h",
    "llama_ext": "src/llama-ext.h",
    "mtmd": "tools/mtmd/mtmd.h",
    "mtmd_helper": "tools/mtmd/mtmd-helper.h",
}

#: Folders of a llama.cpp tree that go on the include path of what cimports the mirrors.
INCLUDE_FOLDERS = ("include", "ggml/include", "src", "tools/mtmd")

_GUARD = "include guard"
_EXPORT = "decoration of a declaration, no value"
_FUNCTION_LIKE = "function-like macro for C code, expands to statements or to its own arguments"
_WRAPPER = "inline C++ classes over functions that are mirrored"

#: What the mirrors leave out on purpose, by header, and why. Anything else that is missing is a difference.
OMITTED: dict[str, dict[str, str]] = {
    "ggml.h": {
        "GGML_API": _EXPORT,
        "GGML_NORETURN": _EXPORT,
        "GGML_RESTRICT": _EXPORT,
        "GGML_DEPRECATED": _EXPORT,
        "GGML_ATTRIBUTE_FORMAT": _EXPORT,
        "GGML_UNUSED": _FUNCTION_LIKE,
        "GGML_UNUSED_VARS": _FUNCTION_LIKE,
        "GGML_PAD": _FUNCTION_LIKE,
        "GGML_UNREACHABLE": _FUNCTION_LIKE,
        "GGML_ABORT": _FUNCTION_LIKE,
        "GGML_ASSERT": _FUNCTION_LIKE,
        "GGML_TENSOR_LOCALS_1": _FUNCTION_LIKE,
        "GGML_TENSOR_LOCALS_2": _FUNCTION_LIKE,
        "GGML_TENSOR_LOCALS_3": _FUNCTION_LIKE,
        "GGML_TENSOR_LOCALS": _FUNCTION_LIKE,
        "GGML_TENSOR_UNARY_OP_LOCALS": _FUNCTION_LIKE,
        "GGML_TENSOR_BINARY_OP_LOCALS": _FUNCTION_LIKE,
        "GGML_TENSOR_TERNARY_OP_LOCALS": _FUNCTION_LIKE,
        "GGML_TENSOR_BINARY_OP_LOCALS01": _FUNCTION_LIKE,
    },
    "ggml-backend.h": {"GGML_BACKEND_API": _EXPORT},
    "llama.h": {"LLAMA_H": _GUARD, "LLAMA_API": _EXPORT, "DEPRECATED": _EXPORT},
    "llama-ext.h": {"llama_memory_breakdown_data::total": "inline C++ method, the sum of the three fields"},
    "mtmd.h": {"MTMD_H": _GUARD, "MTMD_API": _EXPORT, "namespace mtmd": _WRAPPER},
    "mtmd-helper.h": {"MTMD_HELPER_H": _GUARD, "namespace mtmd_helper": _WRAPPER},
}


@dataclass(frozen=True)
class Difference:
    """One thing that a header and its mirror do not agree on."""

    header: str
    kind: str
    name: str
    what: str

    def __str__(self) -> str:
        return f"{self.header}: {self.kind} {self.name}: {self.what}"


class HeaderMismatch(BuildError):
    """The mirrors do not describe the headers of this tree."""

    def __init__(self, tree: Path, differences: list[Difference]) -> None:
        self.differences = differences
        listed = "\n".join(f"  - {difference}" for difference in differences)
        super().__init__(
            f"the headers in {tree} differ from the mirrors in {MIRRORS.relative_to(ROOT)}:\n{listed}\n"
            "Build with the llama.cpp version that vendor/PIN.toml names (unset LLAMACY_LLAMA_CPP_DIR), or "
            "change the mirrors to match; what is left out on purpose goes into OMITTED of "
            "buildtools/headers.py. "
            "`python -m buildtools.headers TREE` shows this list."
        )


@dataclass(frozen=True)
class Coverage:
    """How much of one kind of declaration in a header is mirrored."""

    header: str
    kind: str
    total: int
    omitted: int
    different: int

    @property
    def covered(self) -> int:
        """The number of declarations that are mirrored and equal."""
        return self.total - self.omitted - self.different


class _Comparison:
    """One header beside its mirror."""

    def __init__(self, header: Declarations, mirror: Mirror, mirrors: dict[str, Mirror]) -> None:
        self.header = header
        self.mirror = mirror
        self.mirrors = mirrors
        self.omitted = OMITTED.get(header.name, {})

    def names(self) -> dict[str, list[str]]:
        """Return everything in the header that wants to be mirrored, by kind."""
        structs = self.header.structs
        methods = [f"{name}::{method}" for name in structs for method in structs[name].methods]
        return {
            "function": list(self.header.functions),
            "struct": list(structs),
            "enum": list(self.header.enums),
            "typedef": list(self.header.typedefs),
            "macro": list(self.header.macros),
            "C++": methods + [f"namespace {name}" for name in self.header.namespaces],
        }

    def run(self) -> Iterator[Difference]:
        for kind, names in self.names().items():
            for name in names:
                if name not in self.omitted:
                    for what in self._declared(kind, name):
                        yield Difference(self.header.name, kind, name, what)
        yield from self._surplus()

    def _declared(self, kind: str, name: str) -> Iterator[str]:
        mirrored = self._mirrored(kind, name)
        if mirrored is None or kind == "C++":
            yield "missing in mirror"
        elif kind == "function":
            yield from _compare_functions(self.header.functions[name], mirrored.functions[name])
        elif kind == "struct":
            yield from _compare_structs(self.header.structs[name], mirrored.structs[name])
        elif kind == "enum":
            ours, theirs = mirrored.enums[name].enumerators, self.header.enums[name].enumerators
            yield from _compare_lists("enumerator", theirs, ours)
        elif kind == "typedef":
            theirs_type, ours_type = self.header.typedefs[name].type, mirrored.typedefs[name].type
            if theirs_type != ours_type:
                yield f"is `{theirs_type}`, mirror has `{ours_type}`"
        elif kind == "macro":
            text = self.header.macros[name].value.startswith('"')
            if text != (mirrored.macros[name].value == "const char *"):
                yield f"is {'a string' if text else 'a number'}, mirror has `{mirrored.macros[name].value}`"

    def _mirrored(self, kind: str, name: str) -> Declarations | None:
        """Return what declares a name: the mirror, or a mirror that it takes the name from."""
        if name in _of_kind(self.mirror.declarations, kind):
            return self.mirror.declarations
        source = self.mirrors.get(self.mirror.imported.get(name, ""))
        if source is not None and name in _of_kind(source.declarations, kind):
            return source.declarations
        return None

    def _surplus(self) -> Iterator[Difference]:
        ours = self.mirror.declarations
        for kind, names in self.names().items():
            for name in _of_kind(ours, kind):
                if name not in names:
                    yield Difference(self.header.name, kind, name, "not in header")
        known = {name for names in self.names().values() for name in names}
        for name in self.omitted:
            if name not in known:
                yield Difference(self.header.name, "omitted", name, "not in header, remove it from OMITTED")
            elif any(name in _of_kind(ours, kind) for kind in self.names()):
                yield Difference(self.header.name, "omitted", name, "is mirrored, remove it from OMITTED")


def _of_kind(declarations: Declarations, kind: str) -> set[str]:
    kinds = {
        "function": set(declarations.functions),
        "struct": set(declarations.structs),
        "enum": set(declarations.enums),
        "typedef": set(declarations.typedefs),
        "macro": set(declarations.macros),
    }
    return kinds.get(kind, set())


def _compare_functions(theirs: Function, ours: Function) -> Iterator[str]:
    if theirs.result != ours.result:
        yield f"returns `{theirs.result}`, mirror has `{ours.result}`"
    if len(theirs.parameters) != len(ours.parameters) or theirs.variadic != ours.variadic:
        yield f"has {_count(theirs)}, mirror has {_count(ours)}"
        return
    for index, (their_type, our_type) in enumerate(zip(theirs.parameters, ours.parameters, strict=True), 1):
        if their_type != our_type:
            yield f"parameter {index} is `{their_type}`, mirror has `{our_type}`"


def _count(function: Function) -> str:
    return f"{len(function.parameters)} parameters{' and ...' if function.variadic else ''}"


def _compare_structs(theirs: Struct, ours: Struct) -> Iterator[str]:
    if theirs.fields is None:
        return  # opaque in this header: the mirror may know more, from another one
    if ours.fields is None:
        yield "is defined, mirror has no fields"
        return
    yield from _compare_lists("field", [name for name, _ in theirs.fields], [name for name, _ in ours.fields])
    our_types = dict(ours.fields)
    for name, type_ in theirs.fields:
        if name in our_types and our_types[name] != type_:
            yield f"field {name} is `{type_}`, mirror has `{our_types[name]}`"


def _compare_lists(what: str, theirs: Sequence[str], ours: Sequence[str]) -> Iterator[str]:
    missing = [name for name in theirs if name not in ours]
    surplus = [name for name in ours if name not in theirs]
    yield from (f"{what} {name} missing in mirror" for name in missing)
    yield from (f"{what} {name} not in header" for name in surplus)
    if not missing and not surplus and list(theirs) != list(ours):
        first = next(index for index, name in enumerate(theirs) if ours[index] != name)
        yield f"{what} {theirs[first]} is number {first + 1}, mirror has {ours[first]} there"


def _comparisons(tree: Path, folder: Path) -> Iterator[_Comparison]:
    constants: dict[str, str] = {}
    parsed: dict[str, Declarations] = {}
    for module, path in HEADERS.items():
        if not (tree / path).is_file():
            raise BuildError(f"{tree} is no llama.cpp tree: it has no {path}")
        parsed[module] = parse_header(tree / path, constants)
    mirrors = parse_mirrors(folder, constants)
    for module, path in HEADERS.items():
        mirror = mirrors.get(module)
        if mirror is None:
            raise BuildError(f"{folder / module}.pxd, the mirror of {path}, does not exist")
        if mirror.header != Path(path).name:
            raise BuildError(f"{module}.pxd mirrors {mirror.header!r}, expected {Path(path).name!r}")
        yield _Comparison(parsed[module], mirror, mirrors)
    yield _Comparison(_union(mirrors["handles"], list(parsed.values())), mirrors["handles"], mirrors)


def _union(handles: Mirror, headers: list[Declarations]) -> Declarations:
    """Collect what the headers say about the names in the handles, as if one header declared just those."""
    union = Declarations("handles.pxd")
    for header in headers:
        for name in handles.declarations.structs:
            if name in header.structs:
                union.add_struct(Struct(name, None))
        for name in handles.declarations.typedefs:
            if name in header.typedefs:
                union.typedefs[name] = header.typedefs[name]
    return union


def compare(tree: Path, mirrors: Path = MIRRORS) -> list[Difference]:
    """Compare every header of a llama.cpp tree with its mirror.

    Returns
    -------
    list of Difference
        In the order of the headers; empty when the mirrors describe the tree completely.

    Raises
    ------
    BuildError
        When the tree lacks a header or a mirror is missing.
    HeaderSyntaxError
        When a header or a mirror holds something that the parser does not know.
    """
    return [difference for comparison in _comparisons(tree, mirrors) for difference in comparison.run()]


def coverage(tree: Path, mirrors: Path = MIRRORS) -> list[Coverage]:
    """Count what is mirrored, omitted and different, by header and kind."""
    rows = []
    for comparison in _comparisons(tree, mirrors):
        differences = list(comparison.run())
        for kind, names in comparison.names().items():
            different = {difference.name for difference in differences if difference.kind == kind}
            omitted = sum(name in comparison.omitted for name in names)
            wrong = len(different & set(names))
            rows.append(Coverage(comparison.header.name, kind, len(names), omitted, wrong))
    return rows


def check(tree: Path, mirrors: Path = MIRRORS) -> None:
    """Raise :class:`HeaderMismatch` unless the mirrors describe the headers of ``tree``."""
    try:
        differences = compare(tree, mirrors)
    except HeaderSyntaxError as error:
        raise BuildError(
            f"cannot read the headers in {tree}: {error}; buildtools/c_headers.py has to learn it"
        ) from error
    if differences:
        raise HeaderMismatch(tree, differences)


def _print_table(rows: list[Coverage]) -> None:
    kinds = list(dict.fromkeys(row.kind for row in rows))
    print("mirrored / declared, (omitted on purpose)")
    print("".join([f"{'header':16}", *(f"{kind:>18}" for kind in kinds)]))
    for header in dict.fromkeys(row.header for row in rows):
        cells = []
        for row in (row for row in rows if row.header == header):
            cell = f"{row.covered}/{row.total}" if row.total else "-"
            cell += f" ({row.omitted})" if row.omitted else ""
            cells.append(f"{cell + (f' !{row.different}' if row.different else ''):>18}")
        print(f"{header:16}{''.join(cells)}")


def main(arguments: list[str] | None = None) -> int:
    """Print the coverage table, what is omitted and why, and every difference."""
    parser = argparse.ArgumentParser(prog="python -m buildtools.headers", description=main.__doc__)
    parser.add_argument("tree", nargs="?", type=Path, default=default_tree(), help="llama.cpp source tree")
    tree = parser.parse_args(arguments).tree
    try:
        differences = compare(tree)
        _print_table(coverage(tree))
    except (BuildError, HeaderSyntaxError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\nomitted on purpose")
    for header, names in OMITTED.items():
        for reason in dict.fromkeys(names.values()):
            print(f"  {header}: {', '.join(name for name in names if names[name] == reason)}: {reason}")
    for difference in differences:
        print(difference, file=sys.stderr)
    return 1 if differences else 0


if __name__ == "__main__":
    raise SystemExit(main())
