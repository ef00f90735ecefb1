"""Grammars put together: GBNF text with rules that JSON schemas and regular expressions define."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from llamacy.errors import GrammarError
from llamacy.grammar.check import check
from llamacy.grammar.emit import emit
from llamacy.grammar.language import pattern_rules
from llamacy.grammar.parse import parse_part
from llamacy.grammar.schema.compiler import compile_plain
from llamacy.grammar.schema.policy import Policy
from llamacy.grammar.tree import Choice, Node, Ref, Repeat, Rules
from llamacy.grammar.work import limited

_NAME = re.compile(r"[A-Za-z0-9-]+")


def check_parts(schemas: object, patterns: object) -> None:
    """Refuse names that no rule can have, those that say two things, and patterns that are no text.

    Raises
    ------
    TypeError
        They are no mappings, a name or pattern is no text.
    GrammarError
        A name has other characters than letters, digits and ``-``, or is among the schemas and the patterns.
    """
    for kind, parts in (("schemas", schemas), ("patterns", patterns)):
        if not isinstance(parts, Mapping):
            raise TypeError(f"{kind} is a mapping from names of rules, not {parts!r:.60}")
        for name in parts:
            if not isinstance(name, str):
                raise TypeError(f"{kind} has the key {name!r:.60}, which is no str; keys are names of rules")
            if not _NAME.fullmatch(name):
                raise GrammarError(f"{kind} has the key {name!r:.60}; a rule is named with letters, digits and -")
    assert isinstance(schemas, Mapping)
    assert isinstance(patterns, Mapping)
    for name, pattern in patterns.items():
        if name in schemas:
            raise GrammarError("the rule is defined twice, in schemas and in patterns").in_rule(name)
        if not isinstance(pattern, str):
            raise TypeError(f"{name}: a pattern is a regular expression as text, not {pattern!r:.60}")


@limited
def template_text(
    text: str, root: str, schemas: Mapping[str, Any], patterns: Mapping[str, str], policy: Policy, resolver: Any
) -> str:
    """Return a template with the rules that it lacks.

    Parameters
    ----------
    text
        The template.
    root
        Name of the rule that a text must match.
    schemas
        What JSON some rules are, as `check_plain` has nothing against.
    patterns
        What other texts some rules are, as regular expressions that match all of it.
    policy, resolver
        As for `Grammar.from_json_schema`.

    Raises
    ------
    GrammarError
        As for `Grammar.from_template`.
    """
    known = {**schemas, **patterns}
    part = parse_part(text, known)
    for name in known:
        if name not in part.used and name != root:
            kind = "schemas" if name in schemas else "patterns"
            raise GrammarError(f"{kind} defines the rule, but no other one uses it; leave it out").in_rule(name)
    starts: dict[str, Node] = {}
    made: dict[str, Node] = {}
    for name in known:
        # numbered on through all of them, so that only rules that are the same have the same name
        first = len(made)
        try:
            if name in schemas:
                rules = compile_plain(schemas[name], policy, resolver, f"json-{first}", first, name)
            else:
                rules = pattern_rules(patterns[name], f"pattern-{first}")
        except GrammarError as error:
            error.in_rule(name)
            raise
        starts[name] = Ref(rules.root)
        made.update(rules.rules)
    taken = part.used | known.keys()
    both = taken & made.keys()
    if both:
        names = _other_names(both, taken | made.keys())
        starts = {name: renamed(node, names) for name, node in starts.items()}
        made = {names.get(name, name): renamed(node, names) for name, node in made.items()}
    made = starts | made
    check(Rules(root, part.rules | made), part.error, part.stacked)
    return f"{text}\n{emit(Rules(root, made))}" if made else text


def _other_names(names: Collection[str], taken: Collection[str]) -> dict[str, str]:
    """Return for each of some names one that isn't taken."""
    n = 0
    while any(f"{name}-{n}" in taken for name in names):
        n += 1
    return {name: f"{name}-{n}" for name in names}


def renamed(node: Any, names: Mapping[str, str]) -> Any:
    """Return a node in which rules have other names.

    Parameters
    ----------
    node
        Of a tree of rules.
    names
        Other names of rules; those that aren't in it stay.
    """
    kind = type(node)
    if kind is Ref:
        return Ref(names.get(str(node), node))
    if kind is tuple or kind is Choice:
        return kind([renamed(part, names) for part in node])
    if kind is Repeat:
        return Repeat(renamed(node.item, names), node.minimum, node.maximum)
    return node
