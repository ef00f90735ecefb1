"""Log-probabilities in the shapes of OpenAI's APIs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from llamacy.generate.responses import ChatLogprobs, ChatTokenLogprob, CompletionLogprobs, TopLogprob

if TYPE_CHECKING:
    from llamacy.core.logprobs import LogprobRecord
    from llamacy.core.vocab import Vocab


class LogprobWriter:
    """Write what records say in the shapes of responses.

    Parameters
    ----------
    vocab
        Spells the tokens. Special ones are spelled out here, though they leave no text.
    """

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._n_chars = 0
        self.n_written = 0

    def prompt(self, tokens: Iterable[int], record: LogprobRecord) -> CompletionLogprobs:
        """Return the entries of a prompt; the first token has no log-probability."""
        first, *_ = tokens
        written = self._empty()
        self._add(written, first, None, None)
        for token, logprob, ids, values in record:
            self._add(written, token, logprob, self._tops(ids, values) if record.n_top else None)
        return written

    def completion(self, record: LogprobRecord, numbers: range) -> CompletionLogprobs:
        """Return the entries of these generated tokens for a text completion."""
        written = self._empty()
        for number in numbers:
            token, logprob, ids, values = record[number]
            tops = self._tops(ids, values)
            tops.setdefault(self._name(token), logprob)
            self._add(written, token, logprob, tops)
        return written

    def chat(self, record: LogprobRecord, numbers: range) -> ChatLogprobs:
        """Return the entries of these generated tokens for a chat completion."""
        content: list[ChatTokenLogprob] = []
        for number in numbers:
            token, logprob, ids, values = record[number]
            tops = [self._top(top, value) for top, value in zip(ids, values, strict=True)]
            content.append({**self._top(token, logprob), "top_logprobs": tops})
        return {"content": content, "refusal": None}

    @staticmethod
    def _empty() -> CompletionLogprobs:
        return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}

    def _add(
        self, written: CompletionLogprobs, token: int, logprob: float | None, tops: dict[str, float] | None
    ) -> None:
        written["tokens"].append(self._name(token))
        written["token_logprobs"].append(logprob)
        written["top_logprobs"].append(tops)
        written["text_offset"].append(self._n_chars)
        # characters, by the bytes that begin one
        self._n_chars += sum(byte & 0xC0 != 0x80 for byte in self._vocab.piece(token, special=False))
        self.n_written += 1

    def _tops(self, ids: Iterable[int], values: Iterable[float]) -> dict[str, float]:
        tops: dict[str, float] = {}
        for token, value in zip(ids, values, strict=True):
            tops.setdefault(self._name(token), value)
        return tops

    def _name(self, token: int) -> str:
        """Return the text of a token; of one that is no whole text, its bytes as OpenAI spells them."""
        piece = self._vocab.piece(token)
        try:
            return piece.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)

    def _top(self, token: int, logprob: float) -> TopLogprob:
        piece = self._vocab.piece(token)
        return {"token": piece.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(piece)}
