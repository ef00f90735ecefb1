"""From what describes JSON to its grammar, which is made once as long as it is remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from llamacy.grammar import cache
from llamacy.grammar.plain import check_plain
from llamacy.grammar.schema.compiler import compile_plain
from llamacy.grammar.schema.policy import Policy
from llamacy.grammar.sources import schema_of
from llamacy.grammar.tree import Rules

if TYPE_CHECKING:
    from llamacy.grammar.grammar import Grammar


def grammar_of_schema(
    source: object, resolver: Any, options: dict[str, Any], make: Callable[[Rules], Grammar]
) -> Grammar:
    """Return the grammar of the JSON texts that a schema allows.

    Parameters
    ----------
    source
        The schema, in any form that `schema_of` takes.
    resolver
        What references to other documents lead to, or None.
    options
        Fields of a `Policy`.
    make
        Makes the grammar of its rules.

    Raises
    ------
    SchemaError, UnsupportedSchemaError, TypeError, ImportError
        As for `Grammar.from_json_schema`.
    """
    policy = Policy.from_arguments(options)
    shown = policy if options else None
    keeps = resolver is None and policy.strict
    keys: list[cache.Key | None]
    if isinstance(source, str):
        keys = [(source, shown)] if keeps else []
        found = cache.find(keys)
    else:
        source = schema_of(source)
        keys = [cache.quick_key(source, shown)] if keeps else []
        found = cache.find(keys)
        if found is None:
            check_plain(source)
            keys += [cache.exact_key(source, shown)] if keeps else []
            found = cache.find(keys)
    if found is None:
        found = make(compile_plain(schema_of(source), policy, resolver))
    cache.remember(keys, found)
    return found
