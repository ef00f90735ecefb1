"""Reads the public headers of llama.cpp into declarations.

The parser is deliberately small: it reads the dialect that those headers are written in (C, with a few C++
declarations under ``__cplusplus``), not C in general. A construct that it does not know raises
:class:`HeaderSyntaxError` with the file and line, so that a new upstream idiom is noticed rather than
skipped.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from buildtools.declarations import (
    Declarations,
    DeclaratorParser,
    Enum,
    HeaderSyntaxError,
    Macro,
    Struct,
    Token,
    Typedef,
    matching,
    split_arguments,
    tokenize,
)

__all__ = ["array_bound", "evaluate", "parse_header"]

_DEPRECATED = frozenset({"DEPRECATED", "GGML_DEPRECATED"})
_WITH_ARGUMENTS = frozenset({"GGML_ATTRIBUTE_FORMAT"})
_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_DEFINE = re.compile(r"\s*#\s*define\s+(\w+)(\([^)]*\))?(.*)", re.DOTALL)
_DIRECTIVE = re.compile(r"\s*#\s*(\w+)\s*(.*)", re.DOTALL)
# What the headers are read as: C++ with GCC or Clang on a 64-bit POSIX system. Branches of other platforms
# differ in export decorations and in GGML_MEM_ALIGN, whose value nothing here depends on.
_PREDEFINED = {"__cplusplus": "201703", "__GNUC__": "12", "UINTPTR_MAX": "18446744073709551615"}

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a // b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.LShift: lambda a, b: a << b,
    ast.BitOr: lambda a, b: a | b,
}
_COMPARE: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}


def evaluate(expression: str, macros: dict[str, str], *, undefined: int | None = None) -> int | None:
    """Evaluate an integer constant expression of the preprocessor; None when it is not one.

    ``undefined`` is the value of an unknown identifier: 0 inside ``#if``, none inside an array bound.
    """
    text = re.sub(r"defined\s*\(?\s*(\w+)\s*\)?", lambda m: "1" if m.group(1) in macros else "0", expression)
    text = re.sub(r"sizeof\s*\(\s*u?int(\d+)_t\s*\)", lambda m: str(int(m.group(1)) // 8), text)
    text = re.sub(r"\b(0[xX][0-9A-Fa-f]+|\d+)[uUlL]+\b", r"\1", text)
    text = re.sub(r"!(?!=)", " not ", text.replace("&&", " and ").replace("||", " or "))
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, macros, undefined)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return None


def _value(node: ast.expr, macros: dict[str, str], undefined: int | None) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        found = evaluate(macros[node.id], macros) if node.id in macros else undefined
        if found is None:
            raise ValueError(node.id)
        return found
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = (_value(side, macros, undefined) for side in (node.left, node.right))
        return _BINARY[type(node.op)](left, right)
    if isinstance(node, ast.UnaryOp):
        operand = _value(node.operand, macros, undefined)
        return -operand if isinstance(node.op, ast.USub) else int(not operand)
    if isinstance(node, ast.BoolOp):
        values = [bool(_value(part, macros, undefined)) for part in node.values]
        return int(all(values) if isinstance(node.op, ast.And) else any(values))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
        left, right = (_value(side, macros, undefined) for side in (node.left, node.comparators[0]))
        return int(_COMPARE[type(node.ops[0])](left, right))
    raise ValueError(ast.dump(node))


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _preprocess(text: str, declarations: Declarations) -> str:
    """Blank out comments, directives and inactive branches, keeping offsets; record the active macros."""
    text = _COMMENT.sub(lambda m: m.group() if m.group().startswith('"') else _blank(m.group()), text)
    known = dict(_PREDEFINED)
    stack: list[tuple[bool, bool]] = []  # (this branch is read, some branch of this #if was read)
    output: list[str] = []
    lines = text.splitlines(keepends=True)
    index, offset = 0, 0
    while index < len(lines):
        line = lines[index]
        if not line.lstrip().startswith("#"):
            active = all(read for read, _ in stack)
            output.append(line if active else _blank(line))
            offset += len(line)
            index += 1
            continue
        while line.rstrip().endswith("\\") and index + 1 < len(lines):
            index += 1
            line += lines[index]
        directive = _DIRECTIVE.match(line)
        word, rest = (directive.group(1), directive.group(2).strip()) if directive else ("", "")
        if word in ("if", "ifdef", "ifndef"):
            if word == "if":
                condition = bool(evaluate(rest, known, undefined=0))
            else:
                condition = (rest.split()[0] in known) == (word == "ifdef")
            stack.append((condition, condition))
        elif word in ("elif", "else"):
            _, taken = stack.pop()
            condition = not taken and (word == "else" or bool(evaluate(rest, known, undefined=0)))
            stack.append((condition, taken or condition))
        elif word == "endif":
            stack.pop()
        elif word == "define" and all(read for read, _ in stack):
            match = _DEFINE.match(line)
            if match:
                name, value = match.group(1), " ".join(match.group(3).replace("\\\n", " ").split())
                known[name] = value
                declarations.macros[name] = Macro(name, value, match.group(2) is not None, offset)
        output.append(_blank(line))
        offset += len(line)
        index += 1
    return "".join(output)


def array_bound(expression: str, constants: dict[str, str]) -> str:
    """Normalise an array bound to its value, or leave it as it is spelled."""
    value = evaluate(expression, constants)
    return expression if value is None else str(value)


class _HeaderParser:
    """Walks the tokens of one preprocessed header."""

    def __init__(self, name: str, text: str, constants: dict[str, str]) -> None:
        self.text = text
        self.declarations = Declarations(name)
        self.tokens = tokenize(_preprocess(text, self.declarations))
        constants.update((macro.name, macro.value) for macro in self.declarations.constants())
        self.types = DeclaratorParser(bound=lambda expression: array_bound(expression, constants))

    def run(self) -> Declarations:
        index = 0
        while index < len(self.tokens):
            start = self.tokens[index].offset
            try:
                index = self._statement(index)
            except (HeaderSyntaxError, IndexError, ValueError) as error:
                line = self.text.count("\n", 0, start) + 1
                raise HeaderSyntaxError(f"{self.declarations.name}:{line}: {error}") from error
        return self.declarations

    def _statement(self, index: int) -> int:
        tokens = self.tokens
        text = tokens[index].text
        if text in (";", "}"):  # the brace closes extern "C"
            return index + 1
        if text == "extern" and tokens[index + 1].text.startswith('"'):
            return index + 3
        if text == "namespace":
            self.declarations.namespaces[tokens[index + 1].text] = tokens[index].offset
            return matching(tokens, index + 2) + 1
        end = self._end(index)
        statement = tokens[index:end]
        if text == "typedef":
            self._typedef(statement[1:], tokens[index].offset)
        elif text == "using":
            name = statement[1].text
            self._add_typedef(name, self.types.variable(statement[3:])[1], tokens[index].offset)
        elif text in ("struct", "enum") and any(token.text == "{" for token in statement):
            self._aggregate(statement, tokens[index].offset)
        elif text == "struct" and len(statement) == 2:
            self.declarations.add_struct(Struct(statement[1].text, None, offset=tokens[index].offset))
        elif text == "static":
            equals = [token.text for token in statement].index("=")
            name, _ = self.types.variable(statement[1:equals])
            value = " ".join(token.text for token in statement[equals + 1 :])
            self.declarations.macros[name] = Macro(name, value, offset=tokens[index].offset)
        else:
            self._function(statement)
        return end + 1

    def _end(self, index: int) -> int:
        """Return the index of the semicolon that ends the statement at ``index``."""
        depth = 0
        for position in range(index, len(self.tokens)):
            text = self.tokens[position].text
            if text in ("(", "{", "["):
                depth += 1
            elif text in (")", "}", "]"):
                depth -= 1
            elif text == ";" and depth == 0:
                return position
        raise HeaderSyntaxError("statement without an end")

    def _function(self, statement: list[Token]) -> None:
        deprecated = False
        flat: list[Token] = []
        index = 0
        while index < len(statement):
            token = statement[index]
            if token.text in _WITH_ARGUMENTS:
                index = matching(statement, index + 1) + 1
                continue
            if token.text in _DEPRECATED:
                end = matching(statement, index + 1)
                declared = split_arguments(statement[index + 2 : end])[:-1]
                if len(declared) != 1:
                    raise HeaderSyntaxError("unknown form of a deprecated declaration")
                flat.extend(declared[0])
                deprecated, index = True, end + 1
                continue
            flat.append(token)
            index += 1
        function = self.types.function(flat, deprecated=deprecated)
        self.declarations.functions[function.name] = function

    def _typedef(self, statement: list[Token], offset: int) -> None:
        if any(token.text == "{" for token in statement):
            name = statement[-1].text
            if statement[1].text == "{":
                statement = [statement[0], Token(name, offset), *statement[1:]]
            self._aggregate(statement[:-1], offset)
            return
        name, type_ = self.types.variable(statement)
        if statement[0].text == "struct":
            self.declarations.add_struct(Struct(statement[1].text, None, offset=offset))
        if type_ != name:  # typedef struct x x: nothing that a mirror has to say twice
            self._add_typedef(name, type_, offset)

    def _add_typedef(self, name: str, type_: str, offset: int) -> None:
        self.declarations.typedefs[name] = Typedef(name, type_, offset)

    def _aggregate(self, statement: list[Token], offset: int) -> None:
        name = statement[1].text
        opening = next(index for index, token in enumerate(statement) if token.text == "{")
        body = statement[opening + 1 : matching(statement, opening)]
        if statement[0].text == "enum":
            enumerators = tuple(part[0].text for part in split_arguments(body) if part)
            self.declarations.enums[name] = Enum(name, enumerators, offset)
            return
        methods: list[str] = []
        fields = tuple(self._fields(body, methods))
        self.declarations.add_struct(Struct(name, fields, tuple(methods), offset))

    def _fields(self, body: list[Token], methods: list[str]) -> Iterator[tuple[str, str]]:
        index = 0
        while index < len(body):
            if body[index].text in ("struct", "union") and body[index + 1].text == "{":
                end = matching(body, index + 1)
                nested = list(self._fields(body[index + 2 : end], methods))
                prefix = ""
                if body[end + 1].text != ";":
                    prefix, end = f"{body[end + 1].text}.", end + 1
                yield from ((prefix + name, type_) for name, type_ in nested)
                index = end + 2
                continue
            texts = [token.text for token in body[index:]]
            end = index + texts.index(";")
            if "{" in texts[: end - index]:  # an inline C++ method
                opening = index + texts.index("{")
                methods.append(self.types.function(self._method_head(body[index:opening])).name)
                index = matching(body, opening) + 1
                continue
            member = body[index:end]
            if "=" in texts[: end - index]:
                member = body[index : index + texts.index("=")]
            yield self.types.variable(member)
            index = end + 1

    @staticmethod
    def _method_head(tokens: list[Token]) -> list[Token]:
        return tokens[:-1] if tokens[-1].text == "const" else tokens


def parse_header(path: Path, constants: dict[str, str] | None = None) -> Declarations:
    """Parse one header.

    ``constants`` holds the values of the macros of the headers read before it, for array bounds; those of
    this header are added.
    """
    text = path.read_text(encoding="utf-8")
    return _HeaderParser(path.name, text, {} if constants is None else constants).run()
