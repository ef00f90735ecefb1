"""Reads the ``.pxd`` mirrors into the same declarations as the headers they mirror.

Only what the mirrors use of Cython's grammar is understood: ``cimport`` lines and one ``cdef extern from``
block with structs, enums, typedefs, functions and ``const`` declarations that stand for macros.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from buildtools.c_headers import array_bound
from buildtools.declarations import (
    Declarations,
    DeclaratorParser,
    Enum,
    HeaderSyntaxError,
    Macro,
    Struct,
    Token,
    Typedef,
    tokenize,
)

__all__ = ["Mirror", "parse_mirrors"]

# A struct or enum that shares its name with a function is renamed in the mirror, which then gives its C name.
# A member struct without a name of its own is declared under the name `decltype(outer::member)`.
_RENAMED = re.compile(r'^\s*(?:ctypedef\s+)?(?:struct|enum)\s+(\w+)\s+"([^"]+)"', re.MULTILINE)
_MEMBER = re.compile(r"decltype\((\w+)::(\w+)\)")
_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|#[^\n]*')
_VERBATIM = re.compile(r'"""(.*?)"""', re.DOTALL)
_CIMPORT = re.compile(r"from\s+([\w.]+)\s+cimport\s+\(?(.*?)\)?$", re.DOTALL)
_EXTERN = re.compile(r'cdef extern from (?:"([^"]+)"|\*)\s*(?:nogil)?\s*:')
_AGGREGATE = re.compile(r'(ctypedef\s+)?(struct|enum)\s+(\w+)(?:\s+"([^"]+)")?\s*(:?)$')
_SUFFIX = re.compile(r"\)((?:\s*(?:noexcept|nogil|except\s*\+))+)\s*$")


@dataclass
class Mirror:
    """What one ``.pxd`` declares under C names.

    Attributes
    ----------
    header : str
        The header named by its ``cdef extern from`` ("*" for the handles).
    imported : dict
        Names taken from other mirrors, and the module each comes from.
    throwing : set
        Functions declared ``except +``.
    """

    name: str
    header: str
    declarations: Declarations
    imported: dict[str, str] = field(default_factory=dict)
    throwing: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Line:
    """A logical line: continued inside brackets, without its comment."""

    number: int
    indent: int
    text: str


def _logical_lines(text: str) -> list[_Line]:
    text = _VERBATIM.sub(lambda match: "\n" * match.group().count("\n"), text)
    text = _STRING_OR_COMMENT.sub(lambda match: match.group() if match.group().startswith('"') else "", text)
    lines: list[_Line] = []
    pending, start, depth = "", 0, 0
    for number, line in enumerate(text.splitlines(), 1):
        if not pending and not line.strip():
            continue
        if not pending:
            start = number
        pending = f"{pending} {line.strip()}" if pending else line.rstrip()
        depth += line.count("(") - line.count(")")
        if depth == 0:
            lines.append(_Line(start, len(pending) - len(pending.lstrip()), pending.strip()))
            pending = ""
    return lines


class _MirrorParser:
    def __init__(self, path: Path, text: str, renamed: dict[str, str], constants: dict[str, str]) -> None:
        self.path = path
        self.lines = _logical_lines(text)
        self.mirror = Mirror(path.stem, "", Declarations(path.name))
        self.members: dict[str, tuple[tuple[str, str], ...]] = {}  # of structs declared by decltype
        self.types = DeclaratorParser(
            rename=lambda name: renamed.get(name, name),
            bound=lambda bound: array_bound(bound, constants),
        )

    def run(self) -> Mirror:
        position = 0
        while position < len(self.lines):
            line = self.lines[position]
            position += 1
            body: list[_Line] = []
            if line.text.endswith(":") and not line.text.startswith("cdef extern"):
                while position < len(self.lines) and self.lines[position].indent > line.indent:
                    body.append(self.lines[position])
                    position += 1
            try:
                self._line(line, body)
            except (HeaderSyntaxError, IndexError, ValueError) as error:
                raise HeaderSyntaxError(f"{self.path.name}:{line.number}: {error}") from error
        return self.mirror

    def _line(self, line: _Line, body: list[_Line]) -> None:
        declarations, text = self.mirror.declarations, line.text
        if match := _CIMPORT.match(text):
            module = match.group(1).removeprefix("llamacy.native.")
            names = (name.strip() for name in match.group(2).split(","))
            self.mirror.imported.update((name, module) for name in names if name)
        elif match := _EXTERN.match(text):
            self.mirror.header = match.group(1) or "*"
        elif match := _AGGREGATE.match(text):
            self._aggregate(match, body)
        elif text.startswith("ctypedef "):
            name, type_ = self.types.variable(self._declarator_tokens(text.removeprefix("ctypedef ")))
            declarations.typedefs[name] = Typedef(name, type_)
        elif "(" not in text:
            if not text.startswith("const "):
                raise HeaderSyntaxError(f"not a constant: {text}")
            name, type_ = self.types.variable(tokenize(text))
            declarations.macros[name] = Macro(name, type_)
        else:
            function = self.types.function(self._declarator_tokens(text))
            declarations.functions[function.name] = function
            if re.search(r"\)\s*except\s*\+$", text):
                self.mirror.throwing.add(function.name)

    @staticmethod
    def _declarator_tokens(text: str) -> list[Token]:
        match = _SUFFIX.search(text)
        return tokenize(text[: match.start() + 1] if match else text)

    def _aggregate(self, match: re.Match[str], body: list[_Line]) -> None:
        kind, name, c_name = match.group(2), match.group(3), match.group(4)
        declarations = self.mirror.declarations
        if kind == "enum":
            enumerators = tuple(line.text for line in body)
            declarations.enums[c_name or name] = Enum(c_name or name, enumerators)
            return
        fields: list[tuple[str, str]] = []
        for line in body:
            if line.text == "pass":
                continue
            field_name, type_ = self.types.variable(self._declarator_tokens(line.text))
            member = _MEMBER.fullmatch(type_)
            if member:
                fields.extend((f"{field_name}.{inner}", inner_type) for inner, inner_type in self.members[type_])
            else:
                fields.append((field_name, type_))
        if c_name and _MEMBER.fullmatch(c_name):
            self.members[c_name] = tuple(fields)
        else:
            declarations.add_struct(Struct(c_name or name, tuple(fields) or None))


def parse_mirrors(folder: Path, constants: dict[str, str]) -> dict[str, Mirror]:
    """Parse every mirror of a folder, by module name; ``constants`` are the macros in array bounds."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.pxd"))}
    renamed = {name: c_name for text in texts.values() for name, c_name in _RENAMED.findall(text)}
    return {
        path.stem: _MirrorParser(path, text, renamed, constants).run()
        for path, text in texts.items()
        if path.stem != "__init__"
    }
