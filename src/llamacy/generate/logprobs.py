"""Log-probabilities in the shapes of OpenAI's APIs."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llamacy.core.logprobs import LogprobRecord
    from llamacy.core.vocab import Vocab
    from llamacy.generate.responses import ChatLogprobs, ChatTokenLogprob, CompletionLogprobs, TopLogprob


class LogprobWriter:
    """Write what records say in the shapes of responses.

    Parameters
    ----------
    vocab
        Spells the tokens. Special ones are spelled out here, though they leave no text.
    """

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        # counts the characters of the text so far: one that lies in several tokens is where its first bytes are
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._n_chars = 0
        self.n_written = 0

    def prompt(self, tokens: Iterable[int], record: LogprobRecord, text: bytes) -> CompletionLogprobs:
        """Return the entries of a prompt; the first token has no log-probability.

        Where its tokens lie in the text is looked up there: those that were put around it don't appear in it, special
        ones may, and a space before it doesn't.
        """
        first, *_ = tokens
        written = self.empty()
        at = self._add_prompt(written, first, None, None, text, 0)
        for token, logprob, ids, values in record:
            tops = self._tops(token, logprob, ids, values)
            at = self._add_prompt(written, token, logprob, tops, text, at)
        self._count(text[at:], final=True)  # the text of a prompt doesn't go on in what is generated
        return written

    def completion(self, record: LogprobRecord, numbers: range) -> CompletionLogprobs:
        """Return the entries of these generated tokens for a text completion."""
        written = self.empty()
        for number in numbers:
            token, logprob, ids, values = record[number]
            piece = self._vocab.piece(token, special=False)
            self._add(written, token, logprob, self._tops(token, logprob, ids, values), piece)
            self._count(piece)
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
    def empty() -> CompletionLogprobs:
        """Return entries for a text completion, of which there are none."""
        return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}

    def _add(
        self,
        written: CompletionLogprobs,
        token: int,
        logprob: float | None,
        tops: dict[str, float] | None,
        piece: bytes,
    ) -> None:
        """Add a token that leaves these bytes of text."""
        written["tokens"].append(self._name(token))
        written["token_logprobs"].append(logprob)
        written["top_logprobs"].append(tops)
        written["text_offset"].append(self._n_chars + self._is_broken_by(piece))
        self.n_written += 1

    def _add_prompt(
        self,
        written: CompletionLogprobs,
        token: int,
        logprob: float | None,
        tops: dict[str, float] | None,
        text: bytes,
        at: int,
    ) -> int:
        """Add a token of a prompt, whose bytes are at most those from `at` on; return where the next one's are."""
        piece = self._vocab.piece(token)
        if at == 0 and not text.startswith(piece):
            piece = piece.removeprefix(b" ")
        if not text.startswith(piece, at):
            piece = b""
        self._add(written, token, logprob, tops, piece)
        self._count(piece)
        return at + len(piece)

    def _count(self, data: bytes, *, final: bool = False) -> None:
        self._n_chars += len(self._decoder.decode(data, final))

    def _is_broken_by(self, piece: bytes) -> bool:
        """Tell whether these bytes don't go on with the character that was begun, which becomes one U+FFFD then."""
        begun = self._decoder.getstate()[0]
        if not begun or not piece:
            return False
        try:
            codecs.utf_8_decode(begun + piece[:1], "strict", False)
        except UnicodeDecodeError:
            return True
        return False

    def _tops(self, token: int, logprob: float, ids: Iterable[int], values: Iterable[float]) -> dict[str, float]:
        """Return the likeliest tokens and the one that came; one whose text another has appears by its bytes."""
        tops: dict[str, float] = {}
        for top, value in {**dict(zip(ids, values, strict=True)), token: logprob}.items():
            name = self._name(top)
            tops.setdefault(self._bytes_name(top) if name in tops else name, value)
        return tops

    def _name(self, token: int) -> str:
        """Return the text of a token; of one that is no whole text, its bytes as OpenAI spells them."""
        piece = self._vocab.piece(token)
        try:
            return piece.decode()
        except UnicodeDecodeError:
            return self._bytes_name(token)

    def _bytes_name(self, token: int) -> str:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in self._vocab.piece(token))

    def _top(self, token: int, logprob: float) -> TopLogprob:
        piece = self._vocab.piece(token)
        return {"token": piece.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(piece)}
