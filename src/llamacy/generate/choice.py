"""One choice of a request as it comes: text, log-probabilities, and why it ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING

from llamacy.core.stream import TextStream

if TYPE_CHECKING:
    from llamacy.core.stream import TokenStream
    from llamacy.core.text import TextAssembler
    from llamacy.generate.job import Job


class Choice:
    """A job, and the text that comes of it.

    Parameters
    ----------
    index
        Which choice of the response it is.
    job
        What is generated.
    assembler
        Makes text of its tokens, and ends it at a stop string.

    Attributes
    ----------
    finish_reason
        None while it goes on, then ``"stop"``, ``"length"`` or ``"abort"``.
    n_generated
        Tokens so far.
    stop
        Stop string that ended the text, or None.
    limit
        None, or asked about each piece of text: whether it ends the text. May be set.
    """

    def __init__(self, index: int, job: Job, assembler: TextAssembler) -> None:
        self.index = index
        self.job = job
        self._assembler = assembler
        self._stream: TokenStream | None = None
        self._aborted = False
        self.limit: Callable[[str], bool] | None = None
        # where in the text the tokens lie that have not gone out: their number, and the end of each in bytes
        self._waiting: deque[tuple[int, int]] = deque()
        self._n_noted = 0

    @property
    def finish_reason(self) -> str | None:
        """Why it ended, or None."""
        if self._aborted:
            return "abort"
        return None if self._stream is None else self._stream.finish_reason

    @property
    def n_generated(self) -> int:
        """Tokens so far."""
        return 0 if self._stream is None else self._stream.n_generated

    @property
    def stop(self) -> str | None:
        """Stop string that ended the text, or None."""
        return self._assembler.stop

    def begin(self, stream: TokenStream) -> Iterator[tuple[Choice, str, range]]:
        """Take the tokens, and return an iterator of pieces: this choice, text, and which of the tokens are in it now.

        The tokens are numbered as in the `logprobs` of the job, and only told when it has these. A token is told with
        the piece in which its last byte goes out; of those that a stop string cut off, none is.
        """
        self._stream = stream
        pieces: Iterator[tuple[Choice, str, range]]
        if self.job.logprobs is not None:
            pieces = self._noted_pieces(stream)
        else:
            pieces = zip(repeat(self), TextStream(stream, self._assembler), repeat(_NONE))
        return pieces if self.limit is None else self._limited(pieces, stream, self.limit)

    def abort(self) -> tuple[Choice, str, range]:
        """End it, and return the last piece."""
        if self.finish_reason is None:
            self._aborted = True
            if self._stream is not None:
                self._stream.finish("abort")
        return self, self._assembler.finish(), self._taken(whole=True)

    def _limited(
        self, pieces: Iterator[tuple[Choice, str, range]], stream: TokenStream, is_last: Callable[[str], bool]
    ) -> Iterator[tuple[Choice, str, range]]:
        for piece in pieces:
            if is_last(piece[1]):
                stream.finish("stop")
            yield piece

    def _noted_pieces(self, stream: TokenStream) -> Iterator[tuple[Choice, str, range]]:
        assembler, waiting = self._assembler, self._waiting
        for number, token in enumerate(stream):
            waiting.append((number, assembler.n_in))
            # a token that ends the generation leaves no text
            text = assembler.feed_token(token) if stream.finish_reason is None else assembler.finish()
            if assembler.stopped:
                stream.finish("stop")
                yield self, text, self._taken(whole=True)
                return
            yield self, text, self._taken(whole=stream.finish_reason is not None)
        yield self, assembler.finish(), self._taken(whole=True)

    def _taken(self, *, whole: bool) -> range:
        """Return the numbers of the tokens that went out since the last call; all that are in the text when `whole`."""
        assembler, waiting = self._assembler, self._waiting
        first, n_out = self._n_noted, assembler.n_out
        while waiting:
            number, start = waiting[0]
            end = waiting[1][1] if len(waiting) > 1 else assembler.n_in
            if end > n_out and not (whole and (start < n_out or not assembler.stopped)):
                break
            waiting.popleft()
            self._n_noted = number + 1
        return range(first, self._n_noted)


_NONE = range(0)
