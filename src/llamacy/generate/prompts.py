"""Prompts: what callers give, as tokens."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamacy.core.vocab import Vocab
    from llamacy.generate.tokenizer import Tokenizer


def prompt_tokens(tokenizer: Tokenizer, prompt: str | bytes | Sequence[int]) -> array[int]:
    """Return the tokens of a prompt; special tokens that are spelled in a text are recognised.

    A text that begins with the spelling of the token that begins a text gets no second one.

    Raises
    ------
    ValueError
        The prompt is empty, and the model has no token to begin with; or an id is none of the model.
    TypeError
        It is no prompt.
    """
    vocab = tokenizer.vocab
    if not isinstance(prompt, (str, bytes)):
        return checked_tokens(vocab, prompt)
    tokens = tokenizer.tokens(prompt)
    if len(tokens) > 1 and tokens[0] == tokens[1] == vocab.bos:
        del tokens[0]
    if not tokens:
        first = vocab.bos if vocab.bos is not None else vocab.eos
        if first is None:
            raise ValueError("the prompt is empty, and the model has no token to begin with")
        tokens.append(first)
    return tokens


def checked_tokens(vocab: Vocab, tokens: Sequence[int]) -> array[int]:
    """Return token ids as an array of int32.

    Raises
    ------
    TypeError, ValueError
        There are none, or one is no id of the model.
    """
    if isinstance(tokens, (str, bytes, bytearray)) or (isinstance(tokens, memoryview) and tokens.itemsize == 1):
        raise TypeError("tokens must be ids; convert text with tokenize() first")
    try:
        ids = array("i", tokens)
    except TypeError:
        hint = "; create_chat_completion takes messages" if isinstance(tokens, Mapping) else ""
        raise TypeError(f"a prompt is a text, token ids, or a list of these, not {tokens!r:.80}{hint}") from None
    except OverflowError:
        raise ValueError(f"a token id must be from 0 to {vocab.n_tokens - 1}") from None
    if not ids:
        raise ValueError("the prompt has no tokens")
    if min(ids) < 0 or max(ids) >= vocab.n_tokens:
        wrong = next(token for token in ids if not 0 <= token < vocab.n_tokens)
        raise ValueError(f"there is no token {wrong}: ids are from 0 to {vocab.n_tokens - 1}")
    return ids


def several_prompts(prompt: Any) -> list[Any]:
    """Return the prompts that a caller gave: a text or a list of ids is one, a list of such is several.

    Raises
    ------
    ValueError
        The list is empty.
    """
    if getattr(prompt, "ndim", 1) > 1:
        prompt = list(prompt)  # a matrix of ids
    if isinstance(prompt, (str, bytes)) or not isinstance(prompt, Sequence):
        return [prompt]
    if len(prompt) == 0:
        raise ValueError("the prompt is empty: give a text, token ids, or a list of prompts")
    if isinstance(prompt[0], Iterable):
        return list(prompt)
    return [prompt]


def truncated(tokens: array[int], capacity: int, max_tokens: int | None, n_keep: int) -> array[int]:
    """Return a prompt without its middle, so that it leaves room for what is generated.

    Room is left for `max_tokens`, but no more than half of the context, and for a quarter of it when that isn't said.
    The first `n_keep` tokens stay, and as many of the last ones as fit.
    """
    most = max(capacity - (max(capacity // 4, 1) if max_tokens is None else min(max_tokens, capacity // 2)), 1)
    if len(tokens) <= most:
        return tokens
    n_keep = min(n_keep, most - 1)
    return tokens[:n_keep] + tokens[len(tokens) - (most - n_keep) :]
