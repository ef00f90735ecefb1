"""A request at work: its choices are carried forward side by side."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from llamacy.errors import DecodeAbortedError
from llamacy.generate import cancellation

if TYPE_CHECKING:
    from llamacy.core.stream import TokenStream
    from llamacy.generate.choice import Choice
    from llamacy.generate.slots import Slots

_logger = logging.getLogger("llamacy")

Event = tuple["Choice", "str | None", range]


class Run:
    """Generate the choices of a request, as many at once as there is room for.

    Ctrl-C, `abort`, and the end of its time stop it: what there is stays, and choices that were not at their end get
    the finish reason ``"abort"``.

    Parameters
    ----------
    slots
        Where it runs.
    choices
        What is generated.
    timeout_s
        Seconds from the beginning after which it is aborted.

    Attributes
    ----------
    choices
        What is generated.
    prompt_s, generation_s
        Seconds until the first token, and from there on.
    """

    def __init__(self, slots: Slots, choices: Sequence[Choice], timeout_s: float | None = None) -> None:
        self._slots = slots
        self.choices = choices
        self._timeout_s = timeout_s
        self._cancellation = cancellation.current.get()
        self._streams: list[TokenStream] = []
        self._wave: Sequence[Choice] = ()
        self._aborted = False
        self._began = 0.0
        self._end_s: float | None = None
        self.prompt_s = self.generation_s = 0.0

    def counts(self) -> tuple[int, int, int]:
        """Return the tokens of the prompts, how many of them were in the memory already, and those generated so far.

        A prompt that several choices have counts once.
        """
        n_prompt = n_cached = n_generated = 0
        prompts: set[int] = set()
        for choice in self.choices:
            job = choice.job
            n_generated += choice.n_generated
            if id(job.prompt) not in prompts:
                prompts.add(id(job.prompt))
                n_prompt += len(job.prompt)
                n_cached += job.n_cached
        return n_prompt, n_cached, n_generated

    def begin(self) -> None:
        """Take the sequences; what is wrong with the request is found here, before anything is computed.

        Raises
        ------
        ConcurrentUseError, ContextLengthError, GrammarError
            As for `Slots.begin`.
        """
        self._end_s = None if self._timeout_s is None else time.perf_counter() + self._timeout_s
        self._slots.check_lengths([choice.job for choice in self.choices])
        self._begin_wave(0)

    def end(self) -> None:
        """Give the sequences back; nothing happens when that was done."""
        self._slots.end(self._streams)

    def events(self) -> Generator[Event, None, None]:
        """Generate, and yield pieces: the choice, its text, and the tokens whose log-probabilities go with it.

        The text of the last event of each choice is None.
        """
        n_done = 0
        while True:
            yield from self._wave_events()
            n_done += len(self._wave)
            if n_done == len(self.choices):
                return
            self._begin_wave(n_done)

    def all_events(self) -> list[Event]:
        """Generate to the end, and return what `events` yields; no Ctrl-C gets past it."""
        return list(self.events())  # nothing of Python runs between two events that is not in there

    def _begin_wave(self, n_done: int) -> None:
        self._began = time.perf_counter()
        choices = self.choices[n_done : n_done + self._slots.n_sequences]
        self._wave = choices[: self._slots.n_fitting([choice.job for choice in choices])]
        # an abort that came after the last token of the wave before ends this one too
        self._aborted |= n_done > 0 and self._slots.scheduler.aborted
        self._aborted |= self._cancellation is not None and self._cancellation.cancelled
        if self._aborted:
            self.end()
            self._streams = []
            return
        try:
            self._streams = self._slots.begin(
                [choice.job for choice in self._wave],
                timeout_s=None if self._end_s is None else max(self._end_s - self._began, 0.0),
                after=self._streams,
                cancellation=self._cancellation,
            )
        except (DecodeAbortedError, KeyboardInterrupt) as reason:
            self._streams = []
            self._stop(reason)

    def _wave_events(self) -> Generator[Event, None, None]:
        first: float | None = None
        spent = self.generation_s
        active = {choice: choice.begin(stream) for choice, stream in zip(self._wave, self._streams)}  # noqa: B905
        try:
            while active:
                for choice, pieces in list(active.items()):
                    piece = next(pieces, None)
                    if first is None:
                        first = time.perf_counter()
                        self.prompt_s += first - self._began
                    if piece is not None:
                        yield piece
                        if len(active) == 1:
                            yield from pieces  # no other one takes turns
                        continue
                    del active[choice]
                    self.generation_s = spent + time.perf_counter() - first
                    self._aborted |= choice.finish_reason == "abort"
                    yield choice, None, _NONE
        except KeyboardInterrupt as reason:
            self._stop(reason)
        if first is not None:
            self.generation_s = spent + time.perf_counter() - first
        for choice in self._wave:  # those that an abort left without an end
            if choice.finish_reason is None:
                yield choice.abort()
                yield choice, None, _NONE

    def _stop(self, reason: BaseException) -> None:
        self._aborted = True
        if isinstance(reason, KeyboardInterrupt):
            _logger.info("interrupted: the request ends here")


_NONE = range(0)
