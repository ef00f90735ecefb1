"""The grammar of what a model may write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from os import fspath
from typing import TYPE_CHECKING, Any

from llamacy.errors import GrammarError, GrammarSyntaxError
from llamacy.grammar import cache
from llamacy.grammar.emit import emit
from llamacy.grammar.parse import parse, parse_part
from llamacy.grammar.tree import Rules

if TYPE_CHECKING:
    from llamacy.grammar.matcher import Matcher, Mismatch
    from llamacy.types import ReasoningTags, StrPath

_MAX_TOKEN = 2**31 - 1


class Grammar:
    """A set of texts, of which a model may write one.

    Grammars are made by the static methods, which refuse what is wrong at once. A grammar never changes and holds no
    state of a run: it can be used for any number of them, also at the same time, and be pickled.

    Attributes
    ----------
    text : str
        The grammar in GBNF, as llama.cpp reads it.
    root : str
        Name of the rule that a text must match.
    lazy : bool
        The model writes what it likes until a trigger; from there on the grammar holds.
    trigger_patterns : tuple of str
        Regular expressions (ECMAScript). The grammar begins with the first group that matched something, or with the
        match.
    trigger_words : tuple of str
        Texts with which the grammar begins.
    trigger_tokens : tuple of int
        Tokens with which the grammar begins.
    reasoning : ReasoningTags or None
        What the model's reasoning stands between, in which no trigger counts.

    Thread safety: any number of threads.
    """

    __slots__ = (
        "_matcher",
        "_rules",
        "lazy",
        "reasoning",
        "root",
        "text",
        "trigger_patterns",
        "trigger_tokens",
        "trigger_words",
    )

    text: str
    root: str
    lazy: bool
    trigger_patterns: tuple[str, ...]
    trigger_words: tuple[str, ...]
    trigger_tokens: tuple[int, ...]
    reasoning: ReasoningTags | None
    _rules: Rules | None
    _matcher: Matcher | None

    def __init__(self) -> None:
        raise TypeError("a Grammar is made by Grammar.from_string, from_json_schema and the other methods like them")

    # making

    @staticmethod
    def from_string(
        text: str,
        root: str = "root",
        *,
        lazy: bool = False,
        trigger_patterns: Iterable[str] = (),
        trigger_words: Iterable[str] = (),
        trigger_tokens: Iterable[int] = (),
        reasoning: ReasoningTags | None = None,
    ) -> Grammar:
        """Make a grammar of GBNF text.

        Parameters
        ----------
        text
            The grammar.
        root
            Name of the rule that a text must match.
        lazy, trigger_patterns, trigger_words, trigger_tokens, reasoning
            See the attributes; a lazy grammar needs one trigger at least, and only a lazy one may have any.

        Raises
        ------
        GrammarSyntaxError
            The text can't be read, or llama.cpp can't use it; the error says where.
        GrammarError
            The text is empty or has no rule `root`, or triggers are wrong.
        """
        _check_text(text)
        _check_root(root)
        triggers = _triggers(lazy, trigger_patterns, trigger_words, trigger_tokens, reasoning)
        return _make(text, root, parse(text, root), lazy, *triggers)

    @staticmethod
    def from_file(
        path: StrPath,
        root: str = "root",
        *,
        lazy: bool = False,
        trigger_patterns: Iterable[str] = (),
        trigger_words: Iterable[str] = (),
        trigger_tokens: Iterable[int] = (),
        reasoning: ReasoningTags | None = None,
    ) -> Grammar:
        """Make a grammar of a file with GBNF text in UTF-8.

        Parameters
        ----------
        path
            The file.
        root, lazy, trigger_patterns, trigger_words, trigger_tokens, reasoning
            As for `from_string`.

        Raises
        ------
        OSError
            The file can't be read.
        GrammarError
            As for `from_string`; or the file is not UTF-8.
        """
        from pathlib import Path

        from llamacy._paths import file_name

        try:
            text = Path(file_name(path)).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise GrammarError(f"{fspath(path)} is not UTF-8: {error}") from None
        try:
            return Grammar.from_string(
                text,
                root,
                lazy=lazy,
                trigger_patterns=trigger_patterns,
                trigger_words=trigger_words,
                trigger_tokens=trigger_tokens,
                reasoning=reasoning,
            )
        except GrammarSyntaxError as error:
            message = str(error).removeprefix(f"line {error.line}, column {error.column}: ")
            raise GrammarSyntaxError(f"{message} (in {fspath(path)})", line=error.line, column=error.column) from None

    @staticmethod
    def from_json_schema(schema: object, *, resolver: Any = None, **policy: Any) -> Grammar:
        """Make the grammar of the JSON texts that a schema allows.

        A schema that was compiled lately is not compiled again, unless there is a resolver or `strict` is off.

        Parameters
        ----------
        schema
            A JSON Schema as a dict, a bool or JSON text; a pydantic model class or `TypeAdapter`; or, when pydantic is
            installed, a dataclass, a `TypedDict` or an annotation such as ``list[int]``. It is never changed.
        resolver
            Where schemas for references to the outside come from: a callable that returns the schema for a URI, or a
            registry of the package `referencing`. Without one they are refused.
        **policy
            See `llamacy.grammar.schema.policy.Policy`.

        Raises
        ------
        SchemaError
            The schema is wrong, or nothing satisfies it; the error says where.
        UnsupportedSchemaError
            The schema says what a grammar can't enforce.
        TypeError
            There is no such option, or the schema is nothing of that kind.
        ImportError
            The schema is a type, and pydantic is not installed.

        Warns
        -----
        SchemaRelaxedWarning
            With ``strict=False``: something that can't be enforced was left out.
        """
        from llamacy.grammar.from_schema import grammar_of_schema

        return grammar_of_schema(schema, resolver, policy, _of_rules)

    @staticmethod
    def from_template(
        text: str,
        root: str = "root",
        *,
        schemas: Mapping[str, object] | None = None,
        patterns: Mapping[str, str] | None = None,
        resolver: Any = None,
        **policy: Any,
    ) -> Grammar:
        """Make a grammar of GBNF text in which some rules are JSON Schemas or regular expressions.

        A tool call, for example::

            Grammar.from_template(
                'root ::= "<call>" name ":" arguments "</call>"',
                schemas={"arguments": {"type": "object", "properties": {"city": {"type": "string"}}}},
                patterns={"name": "[a-z]+"},
            )

        Parameters
        ----------
        text
            The grammar. It uses the names of `schemas` and `patterns` like those of its own rules. The other rules that
            these come with have names that no rule of the text has.
        root
            Name of the rule that a text must match.
        schemas
            By the name of a rule, what JSON it stands for, in any form that `from_json_schema` takes.
        patterns
            By the name of a rule, a regular expression, as `from_regex` takes it.
        resolver, **policy
            As for `from_json_schema`; the same for all schemas.

        Raises
        ------
        GrammarSyntaxError
            The text can't be read, uses a rule that no one defines, or llama.cpp can't use the grammar.
        GrammarError
            A schema or pattern is wrong in a way that `from_json_schema` or `from_regex` tells: the error is what they
            raise, its `rule` says whose it is. Or one of them is not used, or its name is no name or used twice.
        TypeError
            There is no such option, or something is nothing of that kind.

        Warns
        -----
        SchemaRelaxedWarning
            As for `from_json_schema`.
        """
        from llamacy.grammar.plain import check_plain
        from llamacy.grammar.schema.policy import Policy
        from llamacy.grammar.sources import schema_of
        from llamacy.grammar.template import check_parts, template_text

        chosen = Policy.from_arguments(policy)
        _check_text(text)
        _check_root(root)
        schemas, patterns = schemas or {}, patterns or {}
        check_parts(schemas, patterns)
        read: dict[str, Any] = {}
        for name, source in schemas.items():
            try:
                read[name] = schema_of(source)
                check_plain(read[name])
            except GrammarError as error:
                error.in_rule(name)
                raise
        keys: list[cache.Key | None] = []
        if resolver is None and chosen.strict:
            parts = [text, root, list(read.items()), list(patterns.items())]
            keys.append(cache.exact_key(parts, chosen if policy else None))
        found = cache.find(keys)
        if found is None:
            whole = template_text(text, root, read, patterns, chosen, resolver)
            found = _make(whole, root, None, False, (), (), ())
            cache.remember(keys, found)
        return found

    @staticmethod
    def from_regex(pattern: str) -> Grammar:
        """Make the grammar of the texts that a regular expression matches from their beginning to their end.

        Parameters
        ----------
        pattern
            A regular expression (ECMA-262, flag u) without back-references.

        Raises
        ------
        GrammarError
            The pattern is wrong, says what is not regular, is too large, or matches nothing.
        """
        from llamacy.grammar.language import pattern_text

        return _make(pattern_text(pattern), "root", None, False, (), (), ())

    @staticmethod
    def from_choices(strings: Iterable[str]) -> Grammar:
        """Make the grammar of some texts and no others.

        Parameters
        ----------
        strings
            The texts; in which order and how often makes no difference.

        Raises
        ------
        GrammarError
            There are none, they are too many, or one of them can't be text (NUL, half of a surrogate pair).
        """
        from llamacy.grammar.language import choices_text

        texts = _texts(strings, "strings", empty=True)
        if not texts:
            raise GrammarError("strings is empty: a grammar needs one text at least")
        return _make(choices_text(texts), "root", None, False, (), (), ())

    @staticmethod
    def json() -> Grammar:
        """Return the grammar of any JSON text; see `builtin`."""
        return Grammar.builtin("json")

    @staticmethod
    def json_object() -> Grammar:
        """Return the grammar of any JSON object; see `builtin`."""
        return Grammar.builtin("json_object")

    @staticmethod
    def builtin(name: str) -> Grammar:
        """Return one of the grammars that come with the package.

        Parameters
        ----------
        name
            One of `llamacy.grammar.builtin.NAMES`; that module says what each of them is.

        Raises
        ------
        GrammarError
            There is no such grammar.
        """
        from llamacy.grammar.builtin import builtin_text

        text = builtin_text(name)
        return _make(text, "root", None, False, (), (), ())

    def with_triggers(
        self,
        *,
        trigger_patterns: Iterable[str] = (),
        trigger_words: Iterable[str] = (),
        trigger_tokens: Iterable[int] = (),
        reasoning: ReasoningTags | None = None,
    ) -> Grammar:
        """Return this grammar as a lazy one, with these triggers and tags in place of those that it has.

        Raises
        ------
        GrammarError
            There are no triggers, or they are wrong.
        """
        triggers = _triggers(True, trigger_patterns, trigger_words, trigger_tokens, reasoning)
        grammar = _make(self.text, self.root, self._rules, True, *triggers)
        object.__setattr__(grammar, "_matcher", self._matcher)
        return grammar

    # texts

    def matches(self, text: str) -> bool:
        """Say whether a text is one of the grammar.

        Triggers play no part in it. The time is linear in the length of the text for grammars like that of JSON.

        Raises
        ------
        GrammarError
            The grammar speaks of tokens, which can't be told from a text.
        """
        return self._matching().matches(text)

    def accepts_prefix(self, text: str) -> bool:
        """Say whether a text is the beginning of one of the grammar, or all of it.

        Raises
        ------
        GrammarError
            As for `matches`.
        """
        return self._matching().accepts_prefix(text)

    def explain(self, text: str) -> Mismatch | None:
        """Say where a text leaves the grammar and what was expected there; None when it is one of the grammar.

        Raises
        ------
        GrammarError
            As for `matches`.
        """
        return self._matching().explain(text)

    def _matching(self) -> Matcher:
        matcher = self._matcher
        if matcher is None:
            from llamacy.grammar.matcher import Matcher

            matcher = Matcher(self._rules or Rules(self.root, parse_part(self.text).rules))
            object.__setattr__(self, "_matcher", matcher)
        return matcher

    # being a value

    def _value(self) -> tuple[Any, ...]:
        triggers = (self.trigger_patterns, self.trigger_words, self.trigger_tokens)
        return (self.text, self.root, self.lazy, *triggers, self.reasoning)

    def __eq__(self, other: object) -> bool:
        return self._value() == other._value() if isinstance(other, Grammar) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._value())

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Grammar can't be changed; make another one to have another {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a Grammar can't be changed")

    def __reduce__(self) -> tuple[Any, ...]:
        text, root, *rest = self._value()
        return _make, (text, root, None, *rest)

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 60 else self.text[:59] + "…"
        shown = [repr(text), f"root={self.root!r}"] + ["lazy=True"] * self.lazy
        for name in ("trigger_patterns", "trigger_words", "trigger_tokens", "reasoning"):
            if getattr(self, name):
                shown.append(f"{name}={getattr(self, name)!r}")
        return f"Grammar({', '.join(shown)})"


def _make(
    text: str,
    root: str,
    rules: Rules | None,
    lazy: bool,
    patterns: tuple[str, ...],
    words: tuple[str, ...],
    tokens: tuple[int, ...],
    reasoning: ReasoningTags | None = None,
) -> Grammar:
    """Return a grammar of what was checked before."""
    grammar = object.__new__(Grammar)
    put = object.__setattr__
    put(grammar, "text", text)
    put(grammar, "root", root)
    put(grammar, "lazy", lazy)
    put(grammar, "trigger_patterns", patterns)
    put(grammar, "trigger_words", words)
    put(grammar, "trigger_tokens", tokens)
    put(grammar, "reasoning", reasoning)
    put(grammar, "_rules", rules)
    put(grammar, "_matcher", None)
    return grammar


def _of_rules(rules: Rules) -> Grammar:
    # the tree is some hundred times the size of its text, and a matcher, which few need, reads the text as fast
    return _make(emit(rules), rules.root, None, False, (), (), ())


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise TypeError(
            f"a grammar is GBNF text, not {type(text).__name__}; Grammar.from_json_schema takes schemas and types"
        )
    if text.lstrip()[:1] == "{":
        raise GrammarError("the grammar begins with {, as no GBNF does; Grammar.from_json_schema takes JSON Schemas")


def _check_root(root: object) -> None:
    if not isinstance(root, str):
        raise TypeError(f"root is the name of a rule, not {root!r:.60}")


# triggers


def _triggers(
    lazy: bool, patterns: Iterable[str], words: Iterable[str], tokens: Iterable[int], reasoning: ReasoningTags | None
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...], ReasoningTags | None]:
    if not isinstance(lazy, bool):
        raise TypeError(f"lazy must be True or False, not {lazy!r:.60}")
    found = (_texts(patterns, "trigger_patterns"), _texts(words, "trigger_words"), tuple(map(_token, tokens)))
    if lazy and not any(found):
        raise GrammarError("a lazy grammar needs trigger_patterns, trigger_words or trigger_tokens")
    if not lazy and (any(found) or reasoning is not None):
        raise GrammarError(
            "only a lazy grammar has triggers, and reasoning without any: pass lazy=True, or leave them out"
        )
    if reasoning is not None:
        from llamacy.types import ReasoningTags

        if not isinstance(reasoning, ReasoningTags):
            raise TypeError(f"reasoning must be a ReasoningTags, not {reasoning!r:.60}")
    return (*found, reasoning)


def _texts(values: Iterable[str], name: str, *, empty: bool = False) -> tuple[str, ...]:
    if isinstance(values, str):
        raise TypeError(f"{name} is a sequence of texts, not one; give [{values!r:.60}]")
    found = tuple(values)
    for value in found:
        if not isinstance(value, str):
            raise TypeError(f"{name} holds {value!r:.60}, which is no str")
        if not value and not empty:
            raise GrammarError(f"{name} holds an empty text")
        if "\0" in value:
            raise GrammarError(f"{name} holds {value!r:.60} with a NUL character, which no model can write")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise GrammarError(f"{name} holds {value!r:.60} with half of a surrogate pair") from None
    return found


def _token(value: int) -> int:
    if isinstance(value, bool):
        raise TypeError(f"trigger_tokens holds {value!r}, which is no token")
    number = index(value)
    if not 0 <= number <= _MAX_TOKEN:
        raise GrammarError(f"trigger_tokens holds {number}; tokens are numbered from 0 to {_MAX_TOKEN}")
    return number
