"""Grammars: which texts a model may write.

`Grammar` is made of GBNF, JSON Schemas, types, regular expressions or lists of texts. Nothing here needs a model or the
compiled part of the package.
"""

from __future__ import annotations

from llamacy.grammar.grammar import Grammar as Grammar
