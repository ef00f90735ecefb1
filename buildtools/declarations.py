"""C declarations, normalised so that two spellings of one type compare equal.

Both readers build on this: the one of the headers (``c_headers``) and the one of their mirrors (``mirrors``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

__all__ = [
    "Declarations",
    "DeclaratorParser",
    "Enum",
    "Function",
    "HeaderSyntaxError",
    "Macro",
    "Struct",
    "Token",
    "Typedef",
    "matching",
    "split_arguments",
    "tokenize",
]


class HeaderSyntaxError(Exception):
    """A header or mirror contains something that the parser does not understand."""


@dataclass(frozen=True)
class Token:
    """One lexical token and where it starts in the text."""

    text: str
    offset: int


@dataclass(frozen=True)
class Function:
    """A function: parameter types are normalised, names are kept for messages only."""

    name: str
    result: str
    parameters: tuple[str, ...]
    parameter_names: tuple[str, ...]
    variadic: bool = False
    deprecated: bool = False
    offset: int = 0


@dataclass(frozen=True)
class Struct:
    """A struct: ``fields`` is None when it is only declared, members of anonymous unions are flattened."""

    name: str
    fields: tuple[tuple[str, str], ...] | None
    methods: tuple[str, ...] = ()
    offset: int = 0


@dataclass(frozen=True)
class Enum:
    """An enumeration and the names of its enumerators in order; their values are the compiler's business."""

    name: str
    enumerators: tuple[str, ...]
    offset: int = 0


@dataclass(frozen=True)
class Typedef:
    """A name for another type."""

    name: str
    type: str
    offset: int = 0


@dataclass(frozen=True)
class Macro:
    """A macro, or a ``static const`` variable, which callers use in the same way."""

    name: str
    value: str
    function_like: bool = False
    offset: int = 0


@dataclass
class Declarations:
    """Everything one header declares, by name, in the order of the header."""

    name: str
    functions: dict[str, Function] = field(default_factory=dict)
    structs: dict[str, Struct] = field(default_factory=dict)
    enums: dict[str, Enum] = field(default_factory=dict)
    typedefs: dict[str, Typedef] = field(default_factory=dict)
    macros: dict[str, Macro] = field(default_factory=dict)
    namespaces: dict[str, int] = field(default_factory=dict)

    def constants(self) -> Iterator[Macro]:
        """Yield the macros that stand for a value."""
        return (macro for macro in self.macros.values() if macro.value and not macro.function_like)

    def add_struct(self, struct: Struct) -> None:
        """Record a struct; a definition replaces a forward declaration, never the other way round."""
        known = self.structs.get(struct.name)
        if known is None or known.fields is None:
            self.structs[struct.name] = struct


# Decorations that say nothing about the type of what they decorate.
_DECORATIONS = frozenset(
    {
        "LLAMA_API",
        "GGML_API",
        "GGML_BACKEND_API",
        "MTMD_API",
        "GGML_NORETURN",
        "GGML_RESTRICT",
        "GGML_CALL",
        "extern",
        "struct",
        "enum",
        "inline",
        "std",
        "::",
    }
)
_TEMPLATES = frozenset({"map", "vector", "pair", "unique_ptr"})
_MULTIWORD = frozenset({"unsigned", "signed", "long", "short", "int", "char", "double"})

_TOKEN = re.compile(r'[A-Za-z_]\w*|0[xX][0-9A-Fa-f]+[uUlL]*|\d[\w.]*|"(?:\\.|[^"\\])*"|\.\.\.|::|\S')


def tokenize(text: str) -> list[Token]:
    """Split text without comments and directives into tokens."""
    return [Token(match.group(), match.start()) for match in _TOKEN.finditer(text)]


def matching(tokens: list[Token], start: int) -> int:
    """Return the index of the bracket that closes the one at ``start``."""
    pairs = {"(": ")", "[": "]", "{": "}", "<": ">"}
    opening = tokens[start].text
    closing, depth = pairs[opening], 0
    for index in range(start, len(tokens)):
        if tokens[index].text == opening:
            depth += 1
        elif tokens[index].text == closing:
            depth -= 1
            if depth == 0:
                return index
    raise HeaderSyntaxError(f"unbalanced {opening!r}")


def split_arguments(tokens: list[Token]) -> list[list[Token]]:
    """Split a token list at its top-level commas."""
    parts: list[list[Token]] = [[]]
    depth, angles, previous = 0, 0, ""
    for token in tokens:
        if token.text in ("(", "[", "{"):
            depth += 1
        elif token.text in (")", "]", "}"):
            depth -= 1
        elif token.text == "<" and previous in _TEMPLATES:  # and not the shift in ``1 << 2``
            angles += 1
        elif token.text == ">" and angles:
            angles -= 1
        if token.text == "," and depth == 0 and angles == 0:
            parts.append([])
        else:
            parts[-1].append(token)
        previous = token.text
    return [] if parts == [[]] else parts


@dataclass(frozen=True)
class _FunctionType:
    result: str
    parameters: tuple[str, ...]
    parameter_names: tuple[str, ...]
    variadic: bool

    def pointer(self) -> str:
        parameters = ", ".join(self.parameters + (("...",) if self.variadic else ()))
        return f"{self.result} (*)({parameters})"


class DeclaratorParser:
    """Reads ``specifiers declarator``, the part that C and the ``.pxd`` mirrors have in common.

    Parameters
    ----------
    rename : callable
        Maps a type name to the name to compare by (the mirrors rename what Cython cannot spell).
    bound : callable
        Normalises the text of an array bound.
    """

    def __init__(self, rename: Callable[[str], str] = str, bound: Callable[[str], str] = str) -> None:
        self.rename = rename
        self.bound = bound

    def declaration(self, tokens: list[Token]) -> tuple[str, str | _FunctionType]:
        """Return the declared name ("" when there is none) and its type."""
        tokens = [token for token in tokens if token.text not in _DECORATIONS]
        base, rest = self._specifiers(tokens)
        return self._declarator(rest, base)

    def function(self, tokens: list[Token], *, deprecated: bool = False) -> Function:
        """Read a function declaration."""
        name, type_ = self.declaration(tokens)
        if isinstance(type_, str) or not name:
            raise HeaderSyntaxError(f"not a function: {' '.join(token.text for token in tokens)}")
        return Function(
            name=name,
            result=type_.result,
            parameters=type_.parameters,
            parameter_names=type_.parameter_names,
            variadic=type_.variadic,
            deprecated=deprecated,
            offset=tokens[0].offset,
        )

    def variable(self, tokens: list[Token]) -> tuple[str, str]:
        """Read anything but a function: a field, a typedef, a constant, a parameter."""
        name, type_ = self.declaration(tokens)
        return name, type_ if isinstance(type_, str) else type_.pointer()

    def _specifiers(self, tokens: list[Token]) -> tuple[str, list[Token]]:
        const, index = False, 0
        words: list[str] = []
        while index < len(tokens):
            text = tokens[index].text
            if text == "const":
                const = True
            elif not words and re.match(r"[A-Za-z_]", text):
                words.append(self.rename(text))
                if text in _TEMPLATES and index + 1 < len(tokens) and tokens[index + 1].text in ("<", "["):
                    end = matching(tokens, index + 1)
                    arguments = split_arguments(tokens[index + 2 : end])
                    words[-1] += f"<{', '.join(self.variable(part)[1] for part in arguments)}>"
                    index = end
            elif words and words[-1] in _MULTIWORD and text in _MULTIWORD:
                words.append(text)
            else:
                break
            index += 1
        if not words:
            raise HeaderSyntaxError(f"no type in: {' '.join(token.text for token in tokens)}")
        return ("const " if const else "") + " ".join(words), tokens[index:]

    def _declarator(self, tokens: list[Token], type_: str | _FunctionType) -> tuple[str, str | _FunctionType]:
        if not tokens:
            return "", type_
        head = tokens[0].text
        if head == "*":
            pointer = type_.pointer() if isinstance(type_, _FunctionType) else f"{type_} *"
            rest = tokens[1:]
            while rest and rest[0].text == "const":
                pointer, rest = f"{pointer} const", rest[1:]
            return self._declarator(rest, pointer)
        name, inner, rest = "", None, tokens
        if head == "(" and len(tokens) > 1 and tokens[1].text == "*":
            end = matching(tokens, 0)
            inner, rest = tokens[1:end], tokens[end + 1 :]
        elif re.match(r"[A-Za-z_]", head):
            name, rest = head, tokens[1:]
            if rest and rest[0].text.startswith('"'):  # a mirror that gives the C name of what it renamed
                name, rest = rest[0].text.strip('"'), rest[1:]
        type_ = self._suffixes(rest, type_)
        if inner is None:
            return name, type_
        if isinstance(type_, _FunctionType):
            return self._declarator(inner[1:], type_.pointer())
        return self._declarator(inner, type_)

    def _suffixes(self, tokens: list[Token], type_: str | _FunctionType) -> str | _FunctionType:
        if not tokens or isinstance(type_, _FunctionType):
            return type_
        if tokens[0].text == "[":
            end = matching(tokens, 0)
            bound = self.bound(" ".join(token.text for token in tokens[1:end]))
            element = self._suffixes(tokens[end + 1 :], type_)
            return f"{element}[{bound}]"
        if tokens[0].text == "(":
            end = matching(tokens, 0)
            return self._function_type(split_arguments(tokens[1:end]), type_)
        raise HeaderSyntaxError(f"unexpected {tokens[0].text!r} in a declarator")

    def _function_type(self, parts: list[list[Token]], result: str) -> _FunctionType:
        types: list[str] = []
        names: list[str] = []
        variadic = False
        for part in parts:
            if [token.text for token in part] == ["..."]:
                variadic = True
                continue
            name, type_ = self.variable(part)
            if type_.endswith(" const"):  # const on the parameter itself is not part of the function's type
                type_ = type_.removesuffix(" const")
            elif type_.startswith("const ") and "*" not in type_:
                type_ = type_.removeprefix("const ")
            types.append(type_)
            names.append(name)
        if types == ["void"]:
            types, names = [], []
        return _FunctionType(result, tuple(types), tuple(names), variadic)
