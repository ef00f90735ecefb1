"""Prompts for text that goes between two others (fill in the middle)."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llamacy.core.vocab import Vocab


def infill_tokens(vocab: Vocab, prefix: str | bytes, suffix: str | bytes, *, suffix_first: bool = False) -> array[int]:
    """Return the prompt with which a model writes what lies between two texts.

    Parameters
    ----------
    vocab
        Vocabulary of the model.
    prefix, suffix
        The texts before and after; special tokens are not recognised in them.
    suffix_first
        The order suffix, prefix, middle (SPM) instead of prefix, suffix, middle (PSM).

    Raises
    ------
    ValueError
        The model has no tokens for this.
    """
    tokens = {"prefix": vocab.fim_pre, "suffix": vocab.fim_suf, "middle": vocab.fim_mid}
    missing = [name for name, token in tokens.items() if token is None]
    if missing:
        raise ValueError(
            f"this model can't fill in the middle: it has no token for the {' and the '.join(missing)}; leave `suffix` "
            "out, or use a model that was trained for it"
        )

    def marked(name: str, text: str | bytes) -> list[int]:
        mark = tokens[name]
        assert mark is not None
        return [mark, *vocab.tokenize(text, add_special=False, parse_special=False)]

    before, after, middle = marked("prefix", prefix), marked("suffix", suffix), [tokens["middle"]]
    first = [vocab.bos] if vocab.add_bos and vocab.bos is not None else []
    parts = after + before if suffix_first else before + after
    return array("i", first + parts + middle)  # type: ignore[operator]
