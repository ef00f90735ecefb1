"""What bench_decode measures: requests, what counts of the answers, and what is promised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.worker import Answer, Request

# "1, 2, 3, 4, 5, 6, 7," in the vocabulary that both models share: greedy goes on counting and does not end
COUNTING = (33, 28, 216, 34, 28, 216, 35, 28, 216, 36, 28, 216, 37, 28, 216, 38, 28, 216, 39, 28)
# numbers of tokens at which the cost of a token is told
MARKS = (64, 256, 512, 1024, 2048, 4096)
# where times are noted for that: the cost at a mark is that of the second half of all tokens up to there
_EDGES = tuple(sorted({edge for mark in MARKS for edge in (mark // 2, mark)}))
# chunks of a stream are a few fewer than tokens, since a character may take several of them
_SPARE = 64

Measure = Callable[[Answer, str], float]


@dataclass(frozen=True)
class Case:
    """One line of the table.

    Parameters
    ----------
    model
        ``"micro"`` or ``"smollm2"``.
    name
        What is measured.
    request
        The request.
    rounds
        Times that each process answers it, in each set of processes.
    measure
        Seconds out of an answer.
    n_tokens
        Tokens that these seconds are for.
    target
        Least ratio native/llamacy, or None for a case that promises nothing.
    """

    model: str
    name: str
    request: Request
    rounds: int
    measure: Measure
    n_tokens: int
    target: float | None


def cases(*, quick: bool) -> list[Case]:
    """Return the cases of generating, streaming and prompt evaluation."""
    divisor = 4 if quick else 1
    found: list[Case] = []
    for model, n_generate, rounds, stream_target in (("micro", 64, 24, 0.93), ("smollm2", 32, 8, 0.99)):
        rounds //= divisor
        for sampler in ("greedy", "default"):
            request, n_timed = Request(COUNTING, n_generate, sampler), n_generate - 1
            found.append(Case(model, f"generate, {sampler}", request, rounds, after_first, n_timed, 0.97))
        for sampler in ("greedy", "default"):
            request = Request(COUNTING, n_generate, sampler, text=True)
            case = Case(model, f"streamed text, {sampler}", request, rounds, whole, n_generate, stream_target)
            found.append(case)
        n_prompt = 2048 if model == "micro" else 256
        name, request = f"prompt of {n_prompt}", Request(_prompt(n_prompt), 1)
        found.append(Case(model, name, request, max(rounds // 2, 2), until_first, n_prompt, 0.99))
    return found


def growth_request(text: bool) -> Request:
    """Return the request that tells the cost of a token at `MARKS`."""
    return Request(COUNTING, MARKS[-1] + _SPARE, "default" if text else "greedy", text=text, marks=_EDGES)


def second_half_edges() -> tuple[int, ...]:
    """Return the marks that a request needs for `second_half`."""
    return _EDGES


def second_half(mark: int) -> Measure:
    """Return the measure of the second half of the tokens up to a mark of `growth_request`."""
    begin, end = _EDGES.index(mark // 2), _EDGES.index(mark)
    return lambda answer, clock: answer.span(clock, begin, end)


def until_first(answer: Answer, clock: str) -> float:
    """Return the seconds until the first token: all that a request costs before, and the prompt."""
    return float(getattr(answer, clock)[0])


def after_first(answer: Answer, clock: str) -> float:
    """Return the seconds from the first token to the end."""
    return answer.span(clock, 0)


def whole(answer: Answer, clock: str) -> float:
    """Return the seconds of the whole request."""
    return float(getattr(answer, clock)[-1])


def _prompt(n_tokens: int) -> list[int]:
    return [1000 + 7 * i % 40000 for i in range(n_tokens)]
