"""What llama.cpp's own grammar matcher says of whole texts."""

from __future__ import annotations

from typing import Any

from llamacy.errors import GrammarError
from tests.helpers import EOS, FIRST_BYTE


def native_matches(vocab: Any, grammar: str, text: str, root: str = "root") -> bool:
    """Return whether a text is one of a grammar, spelled byte by byte with the toy vocabulary.

    Parameters
    ----------
    vocab
        The toy vocabulary of tests/data.
    grammar
        GBNF.
    text
        The text, as a model would have written it before it ends.
    """
    from llamacy.core.sampler import Sampler

    with Sampler.grammar(vocab, grammar, root) as sampler:
        for byte in text.encode():
            try:
                sampler.accept(FIRST_BYTE + byte)
            except GrammarError:
                return False
        return bool(sampler.allows(EOS))
