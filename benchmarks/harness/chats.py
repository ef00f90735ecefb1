"""Chats that grow, alone and in turn with another one, in processes with one kind of cache each."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.table import progress
from harness.worker import Worker, share_cpu

N_TURNS = 6
N_REPLY = 24
_N_FIRST, _N_LAST = 1000, 2000
# tokens of each of SmolLM2's turns that aren't words: of the template, and of the question
_N_AROUND = 21
_WORDS = (
    "sea", "water", "house", "light", "morning", "river", "stone", "garden", "bridge", "winter", "summer",
    "window", "road", "field", "bird", "horse", "market", "street", "paper", "letter", "music", "village",
    "forest", "mountain", "evening", "island", "boat", "weather", "kitchen", "station",
)  # fmt: skip
_QUESTIONS = (
    "What is this about?",
    "Which word comes most often?",
    "Is there a place among them?",
    "Name two animals.",
    "Which of them are large?",
    "What would you leave out?",
)


@dataclass
class Chat:
    """What is said to a model, turn by turn; each chat says something else from its beginning on."""

    number: int
    messages: list[dict[str, str]] = field(default_factory=list)

    def next(self, reply: str) -> list[dict[str, str]]:
        """Return the messages of the next turn, after the reply to the one before."""
        turn = (len(self.messages) + 1) // 2
        if not turn:
            return self.first(_N_FIRST)
        self.messages.append({"role": "assistant", "content": reply})
        return self._ask(turn, (_N_LAST - _N_FIRST) // (N_TURNS - 1) - N_REPLY)

    def first(self, n: int) -> list[dict[str, str]]:
        """Return the messages of the first turn, with about so many tokens."""
        return self._ask(0, n)

    def _ask(self, turn: int, n: int) -> list[dict[str, str]]:
        chosen = random.Random(f"{self.number}, {turn}")
        words = [chosen.choice(_WORDS) for _ in range(n - _N_AROUND)]
        content = f"Text {self.number}: {' '.join(words)}. {_QUESTIONS[turn]}"
        self.messages.append({"role": "user", "content": content})
        return list(self.messages)


@dataclass
class TokenChat:
    """The same in tokens of the toy vocabulary, where all that is generated is the letter "a"."""

    number: int
    tokens: list[int] = field(default_factory=lambda: [1])

    def next(self, reply: str) -> list[int]:
        """Return the prompt of the next turn, after the reply to the one before."""
        chosen = random.Random(f"{self.number}, {len(self.tokens)}")
        n = _N_FIRST if len(self.tokens) == 1 else (_N_LAST - _N_FIRST) // (N_TURNS - 1) - N_REPLY
        self.tokens += [261] * len(reply) + [chosen.randrange(262, 288) for _ in range(n - 1)]
        return list(self.tokens)


@dataclass
class Told:
    """What a process told of the turns of one chat."""

    turns: list[Mapping[str, Any]] = field(default_factory=list)

    def reused(self) -> list[float]:
        """Return for each turn after the first which share of the tokens before it was reused."""
        shares = []
        for before, turn in zip(self.turns, self.turns[1:], strict=False):
            shares.append(turn["n_cached"] / (before["n_prompt"] + before["n_generated"]))
        return shares

    def first_s(self, clock: str = "first_s") -> list[float]:
        """Return the seconds until the first text of each turn after the first."""
        return [turn[clock] for turn in self.turns[1:]]


@dataclass(frozen=True)
class Setting:
    """One kind of cache of one package."""

    package: str
    cache: str
    python: str = sys.executable

    @property
    def name(self) -> str:
        return f"{self.package}, {self.cache}"


def cache_worker(setting: Setting, model: Path, n_ctx: int) -> Worker:
    """Start a process that holds chats."""
    script = Path(__file__).with_name(f"serve_cache_{setting.package.replace('-', '_')}.py")
    return Worker(setting.name, [setting.python, str(script), str(model), str(n_ctx)])


def ask(worker: Worker, chat: Chat | TokenChat, told: Told) -> None:
    """Take the next turn of a chat."""
    prompt = chat.next(told.turns[-1]["text"] if told.turns else "")
    told.turns.append(worker.ask(json.dumps({"do": "ask", "prompt": prompt, "max_tokens": N_REPLY})))


def hold_chats(setting: Setting, model: Path, folder: Path, *, kind: type[Chat | TokenChat] = Chat) -> dict[str, Told]:
    """Hold one chat alone, and the same one in turn with another, turn by turn.

    Parameters
    ----------
    setting
        The package and its cache.
    model
        The model.
    folder
        Where a cache on disk may write.
    kind
        What the chats are made of.

    Returns
    -------
    dict
        What was told of ``"alone"``, ``"first"`` and ``"second"``.
    """
    told = {name: Told() for name in ("alone", "first", "second")}
    chats = {"alone": kind(0), "first": kind(0), "second": kind(1)}
    n_most = _N_LAST + 256
    with ExitStack() as stack:
        n_ctx = 2 * n_most if setting.cache == "sequences" else n_most
        workers = {}
        for name in ("alone", "both"):
            workers[name] = worker = stack.enter_context(cache_worker(setting, model, n_ctx))
            own = folder / f"{setting.name}, {name}"
            own.mkdir()
            worker.ask(json.dumps({"do": "open", "cache": setting.cache, "folder": str(own)}))
        share_cpu(list(workers.values()), 0)
        for turn in range(N_TURNS):
            progress(f"{setting.name}: turn {turn + 1}")
            for name in ("alone", "first", "second"):
                ask(workers["alone" if name == "alone" else "both"], chats[name], told[name])
    progress()
    return told


def settings(peer: Path | None) -> Iterator[Setting]:
    """Return what is compared."""
    for cache in ("sequences", "ram", "disk"):
        yield Setting("llamacy", cache)
    if peer is not None:
        for cache in ("none", "ram", "disk"):
            yield Setting("llama-cpp-python", cache, str(peer / "bin" / "python"))
