"""Compare processes in short turns, so that what disturbs one disturbs the others as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median, quantiles

from harness.calls import Call
from harness.worker import Answer, Request, Worker

Measure = Callable[[Answer, str], float]

CLOCKS = ("cpu", "wall")


@dataclass
class Series:
    """Answers of several processes to the same request, one of each a round."""

    answers: dict[str, list[Answer]] = field(default_factory=dict)

    def add(self, name: str, answer: Answer) -> None:
        """Add the answer of one process in a round."""
        self.answers.setdefault(name, []).append(answer)

    def seconds(self, name: str, measure: Measure, clock: str) -> list[float]:
        """Return what a measure gives in each round."""
        return [measure(answer, clock) for answer in self.answers[name]]

    def differences(self, name: str, reference: str, measure: Measure, clock: str) -> list[float]:
        """Return how many seconds longer a process takes than another, in each round."""
        own, other = self.seconds(name, measure, clock), self.seconds(reference, measure, clock)
        return [a - b for a, b in zip(own, other, strict=True)]

    def ratio(self, name: str, reference: str, measure: Measure, clock: str) -> Ratio:
        """Return how fast a process is relative to another: 1 as fast, less is slower."""
        own, other = self.seconds(name, measure, clock), self.seconds(reference, measure, clock)
        return Ratio.of([b / a for a, b in zip(own, other, strict=True)])


@dataclass(frozen=True)
class Ratio:
    """A ratio over rounds: its median, and its quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Ratio:
        """Summarize the ratios of the rounds."""
        if len(values) < 2:
            return cls(values[0], values[0], values[0])
        low, middle, high = quantiles(values, n=4, method="inclusive")
        return cls(middle, low, high)

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f} {self.high:.3f}]"


def alternate(
    workers: Sequence[Worker], request: Request | Call, rounds: int, series: Series | None = None, *, warm: bool = True
) -> Series:
    """Run a request on every process in turn; each round turns the order around. One more round warms up."""
    return take_turns({worker.name: partial(worker.run, request) for worker in workers}, rounds, series, warm=warm)


def take_turns(
    runs: Mapping[str, Callable[[], Answer]], rounds: int, series: Series | None = None, *, warm: bool = True
) -> Series:
    """Call functions in turn; each round turns the order around. With `warm`, one more round comes before."""
    series = Series() if series is None else series
    for number in range(-warm, rounds):
        order = list(runs) if number % 2 else list(runs)[::-1]
        answers = {name: runs[name]() for name in order}
        if number >= 0:
            for name, answer in answers.items():
                series.add(name, answer)
    return series


def milliseconds(values: Sequence[float]) -> float:
    """Return the median in milliseconds."""
    return 1000 * median(values)
