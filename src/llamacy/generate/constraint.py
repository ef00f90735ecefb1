"""What a grammar becomes for one request."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from llamacy.errors import GrammarError

if TYPE_CHECKING:
    from llamacy.core.sampler import Sampler
    from llamacy.core.vocab import Vocab

# the end of the text that is always kept while a trigger is awaited (_grammar_sampler.h)
_MAX_WORD_BYTES = 512
# grammars of which the native form is kept
_MAX_KEPT = 8
_FIELDS = ("text", "root", "lazy", "trigger_patterns", "trigger_words", "trigger_tokens", "reasoning")


class GrammarSamplers:
    """Makes native samplers of grammars; those of late are kept, since parsing one again takes long.

    Parameters
    ----------
    vocab
        Vocabulary of the model.

    Thread safety
    -------------
    May be used by several threads at once.
    """

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._lock = threading.Lock()
        self._kept: dict[Any, Sampler] = {}  # the one that was used last is the last one

    def sampler(self, grammar: Any, spelled: frozenset[int]) -> Sampler:
        """Return a sampler as `grammar_sampler` does."""
        from llamacy.grammar import Grammar

        if type(grammar) is not Grammar:
            return grammar_sampler(grammar, self._vocab, spelled=spelled)  # it may change
        key = (grammar, spelled)
        with self._lock:
            kept = self._kept.pop(key, None)
            if kept is None:
                kept = grammar_sampler(grammar, self._vocab, spelled=spelled)
                if len(self._kept) >= _MAX_KEPT:
                    self._kept.pop(next(iter(self._kept))).close()
            self._kept[key] = kept
            return kept.clone()

    def close(self) -> None:
        """Free what is kept."""
        with self._lock:
            while self._kept:
                self._kept.popitem()[1].close()


def grammar_sampler(grammar: Any, vocab: Vocab, *, spelled: Iterable[int] = ()) -> Sampler:
    """Return a native sampler in the state in which a text begins; it belongs to one request.

    Special tokens are left out of text, so they don't fit the grammar by their spelling, but for those of `spelled`.

    Parameters
    ----------
    grammar
        A `llamacy.grammar.Grammar`, or an object with its attributes and its `accepts_prefix`.
    vocab
        Vocabulary of the model.
    spelled
        Special tokens that are spelled out in the text.

    Raises
    ------
    TypeError
        It is no grammar.
    GrammarError
        llama.cpp can't use the grammar or one of its triggers, or no text begins with a trigger word.
    """
    from llamacy.core.sampler import Sampler

    if isinstance(grammar, (str, bytes)):
        raise TypeError("grammar must be a Grammar, not text; use Grammar.from_string(text)")
    if not all(hasattr(grammar, name) for name in _FIELDS):
        raise TypeError(
            f"grammar must be a Grammar, not {type(grammar).__name__}; make one with Grammar.from_string, "
            "from_json_schema or from_regex"
        )
    if not grammar.lazy:
        return Sampler.grammar(vocab, grammar.text, grammar.root, special=spelled)
    words = [*map(_pattern_of, grammar.trigger_words)]
    for word in grammar.trigger_words:
        if not _may_begin_with(grammar, word):
            raise GrammarError(
                f"trigger word {word!r:.60}: no text of the grammar begins with it, so it would never be written"
            )
    return Sampler.grammar_lazy(
        vocab,
        grammar.text,
        grammar.root,
        trigger_patterns=[*words, *grammar.trigger_patterns],
        trigger_tokens=grammar.trigger_tokens,
        reasoning=grammar.reasoning,
        special=spelled,
    )


def _may_begin_with(grammar: Any, word: str) -> bool:
    try:
        accepted: bool = grammar.accepts_prefix(word)
    except GrammarError:
        return True  # the grammar speaks of tokens, which can't be told from a text
    return accepted


def _pattern_of(word: str) -> str:
    """Return the pattern that is nothing but a word."""
    n_bytes = len(word.encode())
    if n_bytes > _MAX_WORD_BYTES:
        raise GrammarError(f"a trigger word has at most {_MAX_WORD_BYTES} bytes, not {n_bytes}: {word[:40]!r}…")
    return "".join(f"\\{char}" if char in "\\.^$|()*+?[]{}/" else char for char in word)
