"""What a grammar allows out of a whole vocabulary: how long that takes, and how long llguidance takes.

No promise is made.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from harness.models import add_model_argument, model_path
from harness.table import print_table, progress
from numpy.typing import NDArray

from llamacy.core.candidates import Candidates
from llamacy.core.model import Model
from llamacy.core.sampler import Sampler
from llamacy.core.vocab import Vocab
from llamacy.grammar import Grammar

Mask = NDArray[np.bool_]

_ROUNDS = 5
_FEW = 2100  # so many candidates have the whole vocabulary masked, and cost little more
_PERSON = '{"name":"Jon Doe and so on","age":12,"street":"12 Main street","tags":["a tag","another tag"]}'
_OPTIONAL = '{"field_0":"some text","field_1":12.5,"field_4":"more of the text here","field_99":null}'
_CODE = r"""root ::= statement+
statement ::= name " = " expression ";\n"
expression ::= term (" " [-+*/] " " term)*
term ::= name | number | "(" expression ")" | name "(" (expression (", " expression)*)? ")"
name ::= [a-zA-Z_] [a-zA-Z0-9_]*
number ::= [0-9]+ ("." [0-9]+)?
"""


@dataclass(frozen=True)
class Case:
    """A grammar, as a schema or as GBNF, and a text of it."""

    name: str
    source: dict[str, Any] | str
    text: str


@dataclass
class Timing:
    """Seconds: of what comes before the first token, of masks, and of taking tokens."""

    start_s: float
    mask_s: list[float]
    accept_s: list[float]
    masks: list[Mask]

    def cells(self) -> tuple[str, ...]:
        """Return what a table says of this."""
        microseconds = (1e6 * value for value in (median(self.mask_s), mean(self.mask_s), median(self.accept_s)))
        return f"{1e3 * self.start_s:.2f}", *(f"{value:.0f}" for value in microseconds)


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def cases() -> list[Case]:
    """Return what is measured."""
    strings = {"type": "string"}
    person = {
        "name": strings,
        "age": {"type": "integer"},
        "street": strings,
        "tags": {"type": "array", "items": strings},
    }
    kinds = ("string", "number", "boolean", "null")
    optional = {f"field_{index}": {"type": kinds[index % 4]} for index in range(100)}
    bounded = {
        "title": {"type": "string", "maxLength": 100},
        "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,8}$"},
    }
    return [
        Case("strings", _object(person, list(person)), _PERSON),
        Case("100 optional", _object(optional, []), _OPTIONAL),
        Case("bounded", _object(bounded, list(bounded)), '{"title":"the title of a long story","code":"AB-12345"}'),
        Case("words, GBNF", _CODE, "total = count + foo(12, bar_baz * 3.5);\nresult = (total / 7);\n"),
    ]


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_model_argument(parser)
    parser.add_argument("--gemma", type=Path, metavar="GGUF", help="measure Gemma 3 270M (262,144 tokens) too")
    parser.add_argument("--llguidance", type=Path, metavar="VENV", help="measure llguidance of this environment too")
    arguments = parser.parse_args()
    models = {"smollm2": model_path(arguments)}
    if arguments.gemma is not None:
        models["gemma3"] = arguments.gemma.resolve(strict=True)
    if arguments.llguidance is not None:
        sys.path += map(str, arguments.llguidance.resolve(strict=True).glob("lib/python*/site-packages"))
    lines: list[tuple[str, ...]] = [
        (
            "model",
            "grammar",
            "engine",
            "ms to start",
            "µs a mask: median",
            "mean",
            "µs to take a token",
            "masks that differ",
        )
    ]
    for name, path in models.items():
        with Model(path, vocab_only=True) as model:
            make_peer = None
            if arguments.llguidance is not None:
                begin = time.thread_time()
                make_peer = llguidance_of(model.vocab)
                print(f"{name}: llguidance took {1000 * (time.thread_time() - begin):.0f} ms for the vocabulary")
            for case in cases():
                progress(f"{name}: {case.name}")
                ours = measure(model.vocab, case, partial(Own, model.vocab))
                lines.append((name, case.name, "llamacy", *ours.cells(), ""))
                if make_peer is not None:
                    peer = measure(model.vocab, case, make_peer)
                    lines.append((name, case.name, "llguidance", *peer.cells(), differences(model.vocab, ours, peer)))
    progress()
    print_table(lines)
    return 0


class Own:
    """A grammar of llamacy."""

    def __init__(self, vocab: Vocab, source: dict[str, Any] | str) -> None:
        if isinstance(source, str):
            grammar = Grammar.from_string(source)
        else:  # with a resolver, none that was compiled before is used
            grammar = Grammar.from_json_schema(source, whitespace="compact", resolver={}.__getitem__)
        self._sampler = Sampler.grammar(vocab, grammar.text, special=False)
        self._few = np.zeros(_FEW, np.float32)
        self._all = np.zeros(vocab.n_tokens, np.float32)
        self.accept = self._sampler.accept

    def compute(self) -> Candidates:
        """Mask the vocabulary and a few candidates."""
        candidates = Candidates(self._few)
        self._sampler.apply(candidates)
        return candidates

    def mask(self, _: Candidates) -> Mask:
        """Return which tokens are allowed."""
        candidates = Candidates(self._all)
        self._sampler.apply(candidates)
        mask: Mask = np.isfinite(np.asarray(candidates)["logit"])
        return mask


def llguidance_of(vocab: Vocab) -> Callable[[dict[str, Any] | str], Any]:
    """Return what makes a matcher of llguidance for a vocabulary."""
    from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
    from llguidance.gbnf_to_lark import gbnf_to_lark

    class Texts:
        def __init__(self) -> None:
            self.eos_token_id, self.bos_token_id = vocab.eos, vocab.bos
            # 0xff says that a token is special
            self.tokens = [b"\xff" * vocab.is_control(token) + vocab.piece(token) for token in range(vocab.n_tokens)]
            self.special_token_ids: list[int] = []

        def __call__(self, text: bytes | str) -> list[int]:
            whole = text.decode() if isinstance(text, bytes) else text
            return [int(token) for token in vocab.tokenize(whole, add_special=False)]

    tokenizer = LLTokenizer(TokenizerWrapper(Texts()), n_vocab=vocab.n_tokens)
    spacing = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}

    class Peer:
        def __init__(self, source: dict[str, Any] | str) -> None:
            if isinstance(source, str):
                rules = LLMatcher.grammar_from_lark(gbnf_to_lark(source))
            else:
                rules = LLMatcher.grammar_from_json_schema(json.dumps(source), overrides=spacing)
            self._matcher = LLMatcher(tokenizer, rules)
            self.compute = self._matcher.compute_bitmask

        def accept(self, token: int) -> None:
            if not self._matcher.consume_token(token):
                raise ValueError(self._matcher.get_error())

        def mask(self, bits: bytes) -> Mask:
            return np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")[: vocab.n_tokens].astype(np.bool_)

    return Peer


def measure(vocab: Vocab, case: Case, make: Callable[[dict[str, Any] | str], Any]) -> Timing:
    """Read a text some times: once to warm up, and to keep the masks."""
    tokens = [int(token) for token in vocab.tokenize(case.text, add_special=False)]
    starts: list[float] = []
    timing = Timing(0.0, [], [], [])
    for turn in range(_ROUNDS + 1):
        begin = time.thread_time()
        engine = make(case.source)
        starts.append(time.thread_time() - begin)
        for token in tokens:
            begin = time.thread_time()
            found = engine.compute()
            middle = time.thread_time()
            if turn == 0:
                timing.masks.append(engine.mask(found))
            start = time.thread_time()
            engine.accept(token)
            end = time.thread_time()
            if turn > 0:
                timing.mask_s.append(middle - begin)
                timing.accept_s.append(end - start)
    timing.start_s = median(starts[1:])
    return timing


def differences(vocab: Vocab, ours: Timing, peer: Timing) -> str:
    """Say how many masks differ, and in how many of these the peer lets only one token pass where several would do."""
    ends = np.array([vocab.is_eog(token) for token in range(vocab.n_tokens)])
    n, n_forced = 0, 0
    for own, other in zip(ours.masks, peer.masks, strict=True):
        if np.any((own != other) & ~ends):
            n += 1
            n_forced += other.sum() == 1 and own.sum() > 1 and bool(own[other].all())
    return f"{n} of {len(ours.masks)}; {n_forced} forced"


if __name__ == "__main__":
    sys.exit(main())
