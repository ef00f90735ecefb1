"""Completions and chat as people use them: beside llama-cpp-python, and beside the loop that they lie on.

Exits with status 1 when a promise isn't kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from harness.calls import Call
from harness.cases import COUNTING, MARKS, second_half, second_half_edges, whole
from harness.compare import Measure, Ratio, Series, alternate, milliseconds, take_turns
from harness.models import add_model_argument, model_path
from harness.table import print_table, progress
from harness.worker import Answer, Load, Worker, python_worker, share_cpu
from micro_model import micro_model

# bytes by which the memory of one set of processes lies elsewhere than that of the set before
_OFFSET_STEP = 528
_MESSAGES = [
    {"role": "system", "content": "You are a careful assistant and answer in one sentence."},
    {"role": "user", "content": "Count from one to ten, please."},
]
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Tell the weather of a place.",
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string"}, "unit": {"type": "string", "enum": ["C", "F"]}},
                "required": ["place"],
            },
        },
    }
]
_TOP = 5
_N_OVERHEAD = 64
# chunks of a stream that are no token, or tokens that leave no chunk
_SPARE = 64
_N_SHORT = 10
# what is also measured after many tokens: each way of writing a stream once
_LONG = ("completion", "chat, tools", f"chat, top_logprobs={_TOP}")
_MOST_ADDED_US = 5.0
_MOST_REQUEST_US = 300.0
_MOST_GROWTH = 0.03
_TURNS = 10
# tokens of an answer, at most: some paragraphs, so that the chat has 3,500 tokens on its last turn, or a few sentences
_N_LONG_ANSWER = 350
_N_SHORT_ANSWER = 72
_QUESTIONS = (
    "Tell me about the sea, and why so many people love to live close to it.",
    "What do fishermen need to know about the weather before they leave the harbour?",
    "Describe a lighthouse that stands on a rock far away from the coast.",
    "Which birds can be seen there in winter, and what do they live on?",
)
_FIRST_TOKEN_PROMISE = 3.0


@dataclass(frozen=True)
class TurnChat:
    """A chat of several turns.

    Parameters
    ----------
    n_answer
        Most tokens of an answer.
    rounds
        How often it is held, each time about something else.
    params
        What both packages load the model with.
    promise
        How many times as fast the first token of the last turn is to be, or None.
    """

    name: str
    path: Path
    n_answer: int
    rounds: int
    params: Mapping[str, Any]
    promise: float | None = None


@dataclass(frozen=True)
class PeerCase:
    """A call that both packages answer.

    Parameters
    ----------
    text
        ``"whole"``: all of the text is UTF-8. ``"stray"``: one of its first tokens isn't.
    promise
        How many times as fast llamacy is to be, or None.
    """

    name: str
    text: str
    call: Call
    rounds: int
    promise: float | None = None


def peer_cases() -> list[PeerCase]:
    """Return what is compared with the peer on the micro model."""
    found = []
    for text, promises in (("whole", (1.15, None, None)), ("stray", (1.15, 15.0, 80.0))):
        for n, promise in zip((64, 256, 512), promises, strict=True):
            rounds = {64: 8, 256: 2, 512: 1}[n] * (2 if text == "whole" else 1)
            call = Call("text", n, prompt=COUNTING)
            found.append(PeerCase(f"streamed completion of {n}", text, call, rounds, promise))
        chat = Call("chat", 512, messages=_MESSAGES)
        found.append(PeerCase("streamed chat of 512", text, chat, 1, 40.0 if text == "stray" else None))
        found.append(PeerCase("chat of 512, not streamed", text, replace(chat, stream=False), 2))
    logprobs = Call("chat", 48, messages=_MESSAGES, logprobs=_TOP)
    return [*found, PeerCase(f"streamed chat, top_logprobs={_TOP}", "whole", logprobs, 2, 80.0)]


def own_calls(n: int) -> dict[str, tuple[Call, Call]]:
    """Return what lies on the loop: each call with the loop that has the same prompt, and records the same."""
    text, chat = Call("text", n, prompt=COUNTING), Call("chat", n, messages=_MESSAGES)
    calls = {
        "completion": text,
        "chat": chat,
        "chat, tools": replace(chat, tools=_TOOLS),
        f"completion, logprobs={_TOP}": replace(text, logprobs=_TOP),
        f"chat, top_logprobs={_TOP}": replace(chat, logprobs=_TOP),
    }
    return {name: (call, replace(call, kind="loop")) for name, call in calls.items()}


def main() -> int:
    """Measure, print the tables and say whether all promises are kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_model_argument(parser)
    parser.add_argument("--llama-cpp-python", type=Path, metavar="VENV", help="measure this peer too")
    parser.add_argument("--sets", type=int, default=3, help="sets of fresh processes for llamacy alone (default 3)")
    parser.add_argument("--quick", action="store_true", help="a quarter of the rounds of llamacy alone")
    parser.add_argument("--only", default="", choices=["", "own", "peer", "turns"], help="only one of the parts")
    parser.add_argument("--json", type=Path, help="write all rows here as well")
    arguments = parser.parse_args()
    real = model_path(arguments)
    models = {"whole": micro_model(real, whole_text=True), "stray": micro_model(real)}
    print("n_threads=1; CPU time; medians, and quartiles of what is compared within a round")
    rows: list[dict[str, Any]] = []
    if arguments.only in ("", "own"):
        divisor = 4 if arguments.quick else 1
        rows += print_own(measure_own(models["whole"], arguments.sets, divisor))
    if arguments.llama_cpp_python is not None:
        python = arguments.llama_cpp_python / "bin" / "python"
        if arguments.only in ("", "peer"):
            rows += print_peer(measure_peer(models, python))
        if arguments.only in ("", "turns"):
            rows += print_turns([row for chat in turn_chats(models, real) for row in measure_turns(chat, python)])
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    missed = [row for row in rows if row["kept"] is False]
    if missed:
        print(f"{len(missed)} of {len(rows)} are not as promised")
    return 1 if missed else 0


# llamacy alone


def measure_own(path: Path, n_sets: int, divisor: int) -> list[dict[str, Any]]:
    """Measure what calls add to the loop: for a token, for a request, and for a token after many."""
    per_token: dict[str, Series] = {}
    per_request: dict[str, Series] = {}
    growth: dict[str, Series] = {}
    for number in range(n_sets):
        load = Load(path, n_ctx=MARKS[-1] + 2 * _SPARE + 256, offset=number * _OFFSET_STEP)
        with python_worker("llamacy", load) as worker:
            share_cpu((worker,), number)
            for name, pair in own_calls(_N_OVERHEAD + 1).items():
                progress(f"set {number + 1} of {n_sets}: {name}")
                marked = [replace(call, marks=token_marks(call)) for call in pair]
                _turns(worker, marked, max(24 // divisor, 2), per_token.setdefault(name, Series()))
            for name, pair in own_calls(1).items():
                short = [replace(call, times=_N_SHORT, keep=True, marks=()) for call in pair]
                _turns(worker, short, max(8 // divisor, 2), per_request.setdefault(name, Series()))
            for name in _LONG:
                progress(f"set {number + 1} of {n_sets}: {name} after many tokens")
                long = [replace(call, marks=second_half_edges()) for call in own_calls(MARKS[-1] + _SPARE)[name]]
                _turns(worker, long, max(2 // divisor, 1), growth.setdefault(name, Series()), warm=False)
    progress()
    rows = []
    for name, series in per_token.items():
        promise = None if "logprobs" in name else _MOST_ADDED_US
        rows.append(_added(f"{name}: a token", series, between_tokens, _N_OVERHEAD, promise))
    for name, series in per_request.items():
        promise = _MOST_REQUEST_US if name in ("completion", "chat") else None
        rows.append(_added(f"{name}: a request of one token", series, whole, _N_SHORT, promise))
    for name, series in growth.items():
        first = next(row for row in rows if row["name"] == f"{name}: a token")
        rows += _grown(name, series, first["added_us"][0])
    return rows


def _turns(worker: Worker, pair: Sequence[Call], rounds: int, series: Series, *, warm: bool = True) -> None:
    call, loop = pair
    runs: Mapping[str, Callable[[], Answer]] = {"call": lambda: worker.run(call), "loop": lambda: worker.run(loop)}
    take_turns(runs, rounds, series, warm=warm)


def token_marks(call: Call) -> tuple[int, int]:
    """Return which chunks have the first and the last token; the first chunk of a chat says the role."""
    first = 2 if call.kind == "chat" else 1
    return first, first + _N_OVERHEAD


def between_tokens(answer: Answer, clock: str) -> float:
    """Return the seconds from the first token to the last one; how a request ends is in those of one token."""
    return answer.span(clock, 0, 1)


def _added(name: str, series: Series, measure: Measure, n: int, most: float | None) -> dict[str, Any]:
    added = Ratio.of([1e6 * seconds / n for seconds in series.differences("call", "loop", measure, "cpu")])
    return {
        "name": name,
        "loop_us": 1e6 * median(series.seconds("loop", measure, "cpu")) / n,
        "call_us": 1e6 * median(series.seconds("call", measure, "cpu")) / n,
        "added_us": [added.median, added.low, added.high],
        "promise": None if most is None else f"<= {most:g} us",
        "kept": None if most is None else added.median <= most,
    }


def _grown(name: str, series: Series, first: float) -> list[dict[str, Any]]:
    """Return what a token costs at each mark, and how much more than the loop there and what was added at first."""
    rows: list[dict[str, Any]] = []
    for mark in MARKS[1:]:
        row = _added(f"{name}: token {mark}", series, second_half(mark), mark - mark // 2, None)
        growth = (row["added_us"][0] - first) / (row["loop_us"] + first)
        if mark == MARKS[-1]:
            row.update(promise=f"<= {_MOST_GROWTH:.0%} growth", kept=growth <= _MOST_GROWTH)
        rows.append({**row, "growth": growth})
    return rows


def print_own(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Print the table of llamacy alone."""
    lines: list[tuple[str, ...]] = [("microseconds", "loop", "call", "added", "growth", "promise", "")]
    for row in rows:
        growth = f"{row['growth']:+.1%}" if "growth" in row else ""
        low_high = "{:.1f} [{:.1f} {:.1f}]".format(*row["added_us"])
        times = (f"{row['loop_us']:.1f}", f"{row['call_us']:.1f}", low_high)
        lines.append((row["name"], *times, growth, row["promise"] or "", _said(row["kept"])))
    print_table(lines)
    return rows


# beside the peer


def measure_peer(models: Mapping[str, Path], python: Path) -> list[dict[str, Any]]:
    """Measure streams and chats of both packages."""
    rows = []
    for number, (text, path) in enumerate(models.items()):
        load = Load(path, n_ctx=1024, n_batch=512)
        with python_worker("llamacy", load) as own, python_worker("llama-cpp-python", load, str(python)) as peer:
            share_cpu((own, peer), number)
            seeds: dict[str, int] = {}
            for case in peer_cases():
                if case.text != text:
                    continue
                if text == "stray" and case.call.kind not in seeds:
                    seeds[case.call.kind] = stray_seed(own, case.call)
                call = replace(case.call, seed=seeds.get(case.call.kind, case.call.seed))
                progress(f"{text} text: {case.name}")
                for worker in (own, peer):
                    worker.run(replace(call, max_tokens=1))
                series = alternate((own, peer), call, case.rounds, warm=False)
                rows.append(_beside(f"{text} text: {case.name}", series, whole, call.max_tokens, case.promise))
    progress()
    return rows


def stray_seed(worker: Worker, call: Call) -> int:
    """Return a seed with which a byte that isn't UTF-8 comes among the first tokens."""
    for seed in range(1, 1000):
        text = worker.run(replace(call, max_tokens=16, seed=seed)).text.decode()
        if "\ufffd" in text:
            return seed
    raise RuntimeError("no text of the micro model had a byte that isn't UTF-8")


def turn_chats(models: Mapping[str, Path], real: Path) -> list[TurnChat]:
    """Return the chats whose first tokens are measured."""
    whole_text, stray, equal = models["whole"], models["stray"], {"flash_attn": False}
    return [
        TurnChat("micro, whole text", whole_text, _N_LONG_ANSWER, 4, equal, _FIRST_TOKEN_PROMISE),
        TurnChat("micro, whole text, short answers", whole_text, _N_SHORT_ANSWER, 4, equal),
        TurnChat("micro, whole text, defaults", whole_text, _N_LONG_ANSWER, 4, {}),
        TurnChat("micro, stray text, defaults", stray, _N_LONG_ANSWER, 4, {}),
        TurnChat("SmolLM2, short answers", real, _N_SHORT_ANSWER, 2, equal),
        TurnChat("SmolLM2, short answers, defaults", real, _N_SHORT_ANSWER, 2, {}),
    ]


def measure_turns(chat: TurnChat, python: Path) -> list[dict[str, Any]]:
    """Measure the time to the first token on each turn of a chat."""
    load = Load(chat.path, n_ctx=_TURNS * (chat.n_answer + 64))
    turns = [Series() for _ in range(_TURNS)]
    peer_worker = python_worker("llama-cpp-python", load, str(python), **chat.params)
    with python_worker("llamacy", load, **chat.params) as own, peer_worker as peer:
        share_cpu((own, peer), 0)
        for number in range(chat.rounds):
            progress(f"{chat.name}: chat of {_TURNS} turns, round {number + 1}")
            workers = (own, peer) if number % 2 else (peer, own)
            for worker in workers:
                for series, answer in zip(turns, conversation(worker, number, chat.n_answer), strict=True):
                    series.add(worker.name, answer)
    progress()
    rows = []
    for turn, series in enumerate(turns, start=1):
        least = chat.promise if turn == _TURNS else None
        rows.append(_beside(f"{chat.name}: first token on turn {turn}", series, first_chunk, 1, least))
    return rows


def conversation(worker: Worker, number: int, n_answer: int) -> list[Answer]:
    """Hold a chat, and return its answers. No two chats, and no two questions of one, are the same."""
    messages: list[dict[str, Any]] = []
    answers = []
    for turn in range(_TURNS):
        question = f"Question {number}.{turn + 1}: {_QUESTIONS[turn % len(_QUESTIONS)]}"
        messages.append({"role": "user", "content": question})
        # the first chunk says the role only
        call = Call("chat", n_answer, messages=messages, temperature=0.0, keep=turn > 0, marks=(2,))
        answers.append(worker.run(call))
        messages.append({"role": "assistant", "content": answers[-1].text.decode()})
    return answers


def first_chunk(answer: Answer, clock: str) -> float:
    """Return the seconds until the first text."""
    return float(getattr(answer, clock)[0])


def _beside(name: str, series: Series, measure: Measure, n: int, least: float | None) -> dict[str, Any]:
    own, peer = (series.seconds(side, measure, "cpu") for side in ("llamacy", "llama-cpp-python"))
    ratio = series.ratio("llamacy", "llama-cpp-python", measure, "cpu")
    texts = [series.answers[side][0].text for side in ("llamacy", "llama-cpp-python")]
    n_same = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    return {
        "name": name,
        "llamacy_ms": milliseconds(own) / n,
        "peer_ms": milliseconds(peer) / n,
        "times": [ratio.median, ratio.low, ratio.high],
        "same": n_same / max(map(len, texts)),
        "promise": None if least is None else f">= {least:g}",
        "kept": None if least is None else ratio.median >= least,
    }


def print_peer(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Print what a token takes in both packages."""
    print("\nbeside llama-cpp-python: milliseconds a token")
    _print_beside(rows)
    return rows


def print_turns(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Print what a first token takes in both packages."""
    print("\nbeside llama-cpp-python: milliseconds to the first token")
    _print_beside(rows)
    return rows


def _print_beside(rows: Sequence[dict[str, Any]]) -> None:
    lines: list[tuple[str, ...]] = [("case", "llamacy", "peer", "times as fast", "promise", "", "same text")]
    for row in rows:
        times = (f"{row['llamacy_ms']:.3f}", f"{row['peer_ms']:.3f}", str(Ratio(*row["times"])))
        lines.append((row["name"], *times, row["promise"] or "", _said(row["kept"]), f"{row['same']:.0%}"))
    print_table(lines)


def _said(kept: bool | None) -> str:
    return {True: "kept", False: "MISSED", None: ""}[kept]


if __name__ == "__main__":
    sys.exit(main())
