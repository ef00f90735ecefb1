"""What grammars leave of whole vocabularies, and how chains choose from that, against Python and NumPy."""

from __future__ import annotations

import codecs
import contextlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from llamacy.core.batch import Batch
from llamacy.core.candidates import Candidates
from llamacy.core.model import Model
from llamacy.core.sampler import Sampler, SamplerChain
from llamacy.errors import GrammarError, SamplerError
from tests.core import sampler_reference as reference
from tests.helpers import vendor_dir
from tests.helpers.masks import allowed

REAL = ["llama-spm", "gpt-2", "qwen2"]
N_ROWS = 12


@pytest.fixture(scope="module", params=REAL)
def vocab(request: pytest.FixtureRequest) -> Any:
    """A real vocabulary, without a model."""
    with Model(vendor_dir() / "models" / f"ggml-vocab-{request.param}.gguf", vocab_only=True) as model:
        yield model.vocab


@pytest.fixture(scope="module")
def gpt2() -> Any:
    with Model(vendor_dir() / "models" / "ggml-vocab-gpt-2.gguf", vocab_only=True) as model:
        yield model.vocab


def ends(vocab: Any) -> set[int]:
    return {token for token in range(vocab.n_tokens) if vocab.is_eog(token)}


def pieces_of(vocab: Any) -> dict[bytes, int]:
    return {vocab.piece(token): token for token in range(vocab.n_tokens) if not vocab.is_control(token)}


def completions(begun: bytes) -> list[str]:
    """Return the lowest and the highest character that some bytes begin, among others."""
    found = []
    for last in (b"\x80", b"\xbf"):
        for fill in (b"\x80", b"\x8f", b"\x90", b"\x9f", b"\xa0", b"\xbf"):
            for n_last in range(3):
                with contextlib.suppress(UnicodeDecodeError):
                    found.append((begun + fill + last * n_last).decode())
    return found


def fitting(vocab: Any, written: bytes, beginning: str) -> set[int]:
    """Return the tokens after which the text is well-formed so far and `beginning` matches it, or some completion."""
    pattern = re.compile(beginning, re.DOTALL)
    found = set()
    for token in range(vocab.n_tokens):
        piece = vocab.piece(token)
        if not piece or vocab.is_eog(token) or b"\0" in piece:
            continue
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            text = decoder.decode(written + piece)
        except UnicodeDecodeError:
            continue
        begun = decoder.getstate()[0]
        if any(pattern.fullmatch(text + char) for char in (completions(begun) if begun else [""])):
            found.add(token)
    return found


@pytest.mark.parametrize(
    ("grammar", "begin", "beginning"),
    [
        # allows little, much, and text of words only
        (r'root ::= "{" [ \n]* "\"" [^"\\\x00-\x1f]* "\"" "}"', b"", r'\{[ \n]*("[^"\\\x00-\x1f]*("(\})?)?)?'),
        (r'root ::= "{" [ \n]* "\"" [^"\\\x00-\x1f]* "\"" "}"', b'{"', r'\{[ \n]*("[^"\\\x00-\x1f]*("(\})?)?)?'),
        ("root ::= [a-z]+ ([ ] [a-z]+)*", b"a", r"[a-z]+( [a-z]+)* ?"),
        ("root ::= .*", b"", r".*"),
        ("root ::= [é-￿]* [0-9]", b"", r"[é-￿]*[0-9]?"),
        (r"root ::= [^\x00-\x80\u00fe]*", b"", "[^\x00-\x80\u00fe]*"),
    ],
)
def test_mask_of_a_vocabulary_is_what_python_says(vocab: Any, grammar: str, begin: bytes, beginning: str) -> None:
    pieces = pieces_of(vocab)
    with Sampler.grammar(vocab, grammar) as sampler:
        for byte in begin:
            sampler.accept(pieces[bytes([byte])])
        found = allowed(sampler, vocab.n_tokens) - ends(vocab)
        expected = fitting(vocab, begin, beginning)
        if "fe]" in grammar:
            # llama.cpp refuses the first byte of all characters that begin like one of a negated class
            assert all(vocab.piece(token).endswith((b"\xc2", b"\xc3")) for token in expected - found)
            expected &= found
        assert found == expected
        for token in [*sorted(found)[:: len(found) // 40 + 1], *range(0, vocab.n_tokens, vocab.n_tokens // 200)]:
            assert sampler.allows(token) == (token in found or (vocab.is_eog(token) and sampler.allows(token)))


def test_few_candidates_and_all_are_masked_alike(vocab: Any) -> None:
    pieces = pieces_of(vocab)
    with Sampler.grammar(vocab, r'root ::= "\"" [^"\\\x00-\x1f]* "\""') as sampler:
        for state in (None, b'"'):
            if state is not None:
                sampler.accept(pieces[state])
            whole = allowed(sampler, vocab.n_tokens)
            parts: set[int] = set()
            for begin in range(0, vocab.n_tokens, 500):
                ids = np.arange(begin, min(begin + 500, vocab.n_tokens), dtype=np.int32)
                part = Candidates(np.zeros(len(ids), np.float32), ids=ids)
                sampler.apply(part)
                view = np.asarray(part)
                parts |= set(view["id"][np.isfinite(view["logit"])].tolist())
            assert parts == whole


def test_text_never_leaves_utf8(gpt2: Any) -> None:
    # llama.cpp's grammar lets overlong forms, surrogates and what lies beyond U+10FFFF pass a negated class
    pieces = pieces_of(gpt2)
    for lead in (0xC3, 0xE0, 0xE2, 0xED, 0xF0, 0xF4):
        with Sampler.grammar(gpt2, 'root ::= [^"]*') as sampler:
            sampler.accept(pieces[bytes([lead])])
            assert allowed(sampler, gpt2.n_tokens) == fitting(gpt2, bytes([lead]), '[^"]*')
    with Sampler.grammar(gpt2, "root ::= .*") as sampler:
        for byte in (0xC0, 0xC1, 0xF5, 0xFF, 0x80):
            assert not sampler.allows(pieces[bytes([byte])])


def test_text_never_ends_within_a_character(gpt2: Any) -> None:
    pieces = pieces_of(gpt2)
    end = next(iter(ends(gpt2)))
    with Sampler.grammar(gpt2, 'root ::= "a" [à-ü]?') as sampler:
        sampler.accept(pieces[b"a"])
        assert sampler.allows(end)
        assert not sampler.complete
        sampler.accept(pieces[b"\xc3"])
        assert not sampler.allows(end)
        with pytest.raises(GrammarError):
            sampler.accept(end)
        sampler.accept(pieces[b"\xa9"])
        assert sampler.complete
        assert allowed(sampler, gpt2.n_tokens) == ends(gpt2)


def test_special_tokens_fit_by_their_spelling_only_when_told() -> None:
    with Model(vendor_dir() / "models" / "ggml-vocab-qwen2.gguf", vocab_only=True) as model:
        vocab = model.vocab
        special = next(token for token in range(vocab.n_tokens) if vocab.is_control(token) and not vocab.is_eog(token))
        spelling = vocab.piece(special).decode()
        for given, fits in ((True, True), (False, False)):
            with Sampler.grammar(vocab, f'root ::= "{spelling}"', special=given) as sampler:
                assert sampler.allows(special) is fits
                assert (special in allowed(sampler, vocab.n_tokens)) is fits
                assert sampler.values["special"] is given
        with Sampler.grammar(vocab, f'root ::= "{spelling}"', special=[special]) as sampler:
            assert allowed(sampler, vocab.n_tokens) >= {special}
            assert sampler.allows(special)
            assert sampler.values["special"] == (special,)
        other = next(token for token in range(special + 1, vocab.n_tokens) if vocab.is_control(token))
        with Sampler.grammar(vocab, f'root ::= "{spelling}"', special=[other]) as sampler:
            assert not sampler.allows(special)
            assert special not in allowed(sampler, vocab.n_tokens)
        with pytest.raises(ValueError, match="no token"):
            Sampler.grammar(vocab, 'root ::= "a"', special=[vocab.n_tokens])
        # named by a rule or a trigger, it fits either way
        with Sampler.grammar(vocab, f"root ::= <[{special}]>", special=False) as sampler:
            assert allowed(sampler, vocab.n_tokens) == {special}
        with Sampler.grammar_lazy(
            vocab, f'root ::= "{spelling}" "a"', trigger_tokens=[special], special=False
        ) as sampler:
            sampler.accept(special)
            assert sampler.allows(pieces_of(vocab)[b"a"])


def test_complete_says_when_nothing_can_follow(vocab: Any) -> None:
    pieces = pieces_of(vocab)
    with (
        Sampler.grammar(vocab, 'root ::= "a" "b"? "!"') as sampler,
        Sampler.grammar(vocab, 'root ::= "a" "b"?') as longer,
        Sampler.grammar_lazy(vocab, 'root ::= "b"', trigger_patterns=["b"]) as lazy,
        Sampler.greedy() as other,
    ):
        steps = []
        for piece in (b"a", b"!"):
            steps.append(sampler.complete)
            sampler.accept(pieces[piece])
        assert [*steps, sampler.complete] == [False, False, True]
        longer.accept(pieces[b"a"])
        assert not longer.complete
        longer.accept(pieces[b"b"])
        assert longer.complete
        with longer.clone() as clone:
            assert clone.complete
        longer.reset()
        assert not longer.complete
        lazy.accept(pieces[b"a"])
        assert not lazy.complete
        lazy.accept(pieces[b"b"])
        assert lazy.complete
        assert not other.complete


# choosing


@pytest.fixture
def context(micro_model: Any, make_context: Any) -> Any:
    """A context with some output rows, on a vocabulary of 49,152 words."""
    context = make_context(micro_model)
    batch = Batch(N_ROWS)
    for pos in range(N_ROWS):
        batch.add(1000 + 37 * pos, pos, logits=True)
    context.decode(batch)
    return context


@pytest.fixture(scope="module")
def words(micro_model: Any) -> NDArray[np.bool_]:
    """Which tokens are spelled with the first letters of the alphabet, or end the generation."""
    vocab = micro_model.vocab
    pattern = re.compile(rb"[ a-h]+")
    return np.array(
        [vocab.is_eog(token) or pattern.fullmatch(vocab.piece(token)) is not None for token in range(vocab.n_tokens)]
    )


WORDS = "root ::= [ a-h]*"
Keep = Callable[[Any, Any], tuple[Any, Any]]
BIAS = {token: -np.inf if token % 3 else 1.5 for token in range(0, 49152, 5)}


def no_change(ids: Any, logits: Any) -> tuple[Any, Any]:
    return ids, logits


def default(ids: Any, logits: Any) -> tuple[Any, Any]:
    ids, logits = reference.top_k(ids, logits, 40)
    ids, logits = reference.top_p(ids, logits, 0.95)
    ids, logits = reference.min_p(ids, logits, 0.05)
    return ids, logits / 0.8


def biased(ids: Any, logits: Any) -> tuple[Any, Any]:
    logits = logits + np.array([BIAS.get(int(token), 0.0) for token in ids])
    return reference.top_k(ids, logits, 20)


CHAINS: dict[str, tuple[Callable[[int], list[Sampler]], Keep]] = {
    "dist": (lambda seed: [Sampler.dist(seed)], no_change),
    "default": (
        lambda seed: [
            Sampler.top_k(40), Sampler.top_p(0.95), Sampler.min_p(0.05), Sampler.temp(0.8), Sampler.dist(seed)
        ],
        default,
    ),
    "top_p": (
        lambda seed: [Sampler.top_p(0.7), Sampler.dist(seed)], lambda ids, logits: reference.top_p(ids, logits, 0.7)
    ),
    "typical": (
        lambda seed: [Sampler.typical(0.6), Sampler.dist(seed)],
        lambda ids, logits: reference.typical(ids, logits, 0.6),
    ),
    "bias": (
        lambda seed: [Sampler.logit_bias(49152, BIAS), Sampler.top_k(20), Sampler.dist(seed)], biased
    ),
}  # fmt: skip


def draw(keep: Keep, ids: Any, logits: Any, rng: reference.MersenneTwister) -> int:
    ids, logits = keep(ids, logits)
    cumulative = np.cumsum(reference.softmax(logits))
    return int(ids[np.searchsorted(cumulative, rng.double() * cumulative[-1])])


@pytest.mark.parametrize("grammar_first", [False, True])
@pytest.mark.parametrize("name", CHAINS)
def test_tokens_are_drawn_as_numpy_says(
    micro_model: Any, context: Any, words: NDArray[np.bool_], name: str, grammar_first: bool
) -> None:
    make, keep = CHAINS[name]
    ids = np.arange(micro_model.vocab.n_tokens)
    with Sampler.grammar(micro_model.vocab, WORDS) as grammar, SamplerChain(make(11)) as chain:
        rng = reference.MersenneTwister(11)
        n_again = 0
        for _ in range(8):
            for row in range(N_ROWS):
                logits = np.asarray(context.outputs.logits(row), np.float64)
                token = -1 if grammar_first else draw(keep, ids, logits, rng)
                if token < 0 or not words[token]:
                    n_again += not grammar_first
                    token = draw(keep, ids[words], logits[words], rng)
                grammar.reset()
                assert chain.sample(context, row, grammar=grammar, grammar_first=grammar_first) == token
        assert grammar_first or n_again > 8


@pytest.mark.parametrize("k", [1, 2, 40, 128])
@pytest.mark.parametrize("grammar_text", [WORDS, 'root ::= " a" [a-z]*', 'root ::= " the" | " a"', 'root ::= " "? .*'])
def test_highest_that_are_allowed_are_what_a_mask_of_all_leaves(
    micro_model: Any, context: Any, k: int, grammar_text: str
) -> None:
    # a chain that measures its time works on all candidates
    vocab = micro_model.vocab
    links: list[Callable[[], Sampler]] = [
        lambda: Sampler.penalties(vocab.n_tokens, 32, 1.1, 0.3, 0.2),
        lambda: Sampler.logit_bias(vocab.n_tokens, dict.fromkeys(range(0, 49152, 7), 2.0)),
        lambda: Sampler.top_k(k),
        lambda: Sampler.min_p(0.01),
        lambda: Sampler.dist(k),
    ]
    for first in (0, 2):
        with (
            Sampler.grammar(vocab, grammar_text) as one,
            Sampler.grammar(vocab, grammar_text) as other,
            SamplerChain([make() for make in links[first:]]) as fast,
            SamplerChain([make() for make in links[first:]], no_perf=False) as full,
        ):
            for row in range(N_ROWS):
                for grammar_first in (False, True):
                    one.reset()
                    other.reset()
                    token = fast.sample(context, row, grammar=one, grammar_first=grammar_first)
                    assert token == full.sample(context, row, grammar=other, grammar_first=grammar_first)


def test_both_ways_choose_with_the_same_probabilities_without_truncation(
    micro_model: Any, context: Any, words: NDArray[np.bool_]
) -> None:
    n = 6000
    logits = np.asarray(context.outputs.logits(0), np.float64) * 4
    expected = np.where(words, np.exp(logits - logits.max()), 0.0)
    expected /= expected.sum()
    top = np.argsort(-expected)[:8]
    groups = np.append(expected[top], 1 - expected[top].sum()) * n
    for grammar_first in (False, True):
        counts = np.zeros(9)
        with (
            Sampler.grammar(micro_model.vocab, WORDS) as grammar,
            SamplerChain([Sampler.temp(0.25), Sampler.dist(5)]) as chain,
        ):
            for _ in range(n):
                grammar.reset()
                token = chain.sample(context, 0, grammar=grammar, grammar_first=grammar_first)
                assert words[token]
                counts[np.flatnonzero(top == token)[0] if token in top else 8] += 1
        # 8 degrees of freedom: a chi-square above 31.8 has a probability of 1e-4
        assert ((counts - groups) ** 2 / groups).sum() < 31.8


@pytest.mark.parametrize("links", [[Sampler.greedy], [lambda: Sampler.top_k(40), lambda: Sampler.dist(1)]])
@pytest.mark.parametrize("grammar_first", [False, True])
def test_suppressed_tokens_stay_so_and_a_dead_end_is_an_error(
    micro_model: Any, context: Any, links: list[Callable[[], Sampler]], grammar_first: bool
) -> None:
    vocab = micro_model.vocab
    choices = [token for token in range(vocab.n_tokens) if vocab.piece(token) in (b"a", b"b")]
    for kept in choices:
        bias = {token: -np.inf for token in choices if token != kept}
        with (
            Sampler.grammar(vocab, 'root ::= "a" | "b"') as grammar,
            SamplerChain([Sampler.logit_bias(vocab.n_tokens, bias), *[make() for make in links]]) as chain,
        ):
            assert chain.sample(context, 0, grammar=grammar, grammar_first=grammar_first) == kept
    bias = dict.fromkeys(choices, -np.inf)
    for no_perf in (True, False):
        with (
            Sampler.grammar(vocab, 'root ::= "a" | "b"') as grammar,
            SamplerChain(
                [Sampler.logit_bias(vocab.n_tokens, bias), *[make() for make in links]], no_perf=no_perf
            ) as chain,
        ):
            for _ in range(2):
                with pytest.raises(GrammarError, match="no token is left"):
                    chain.sample(context, 0, grammar=grammar, grammar_first=grammar_first)
            assert grammar.allows(choices[0])


def test_lazy_grammar_refuses_only_a_trigger_that_goes_wrong(micro_model: Any, context: Any) -> None:
    vocab = micro_model.vocab
    best = int(np.argmax(np.asarray(context.outputs.logits(0))))
    piece = vocab.piece(best).decode()
    for fits in (True, False):
        text = f'root ::= "{piece}"' if fits else f'root ::= "{piece}" [^{piece}]'
        with (
            Sampler.grammar_lazy(vocab, text, trigger_patterns=[piece[0]]) as grammar,
            SamplerChain([Sampler.greedy()]) as chain,
        ):
            for grammar_first in (False, True):
                grammar.reset()
                token = chain.sample(context, 0, grammar=grammar, grammar_first=grammar_first)
                assert grammar.awaiting_trigger is (piece[0] not in vocab.piece(token).decode())
                assert (token == best) or not fits
    for links in ([Sampler.greedy()], [Sampler.temp(0.001), Sampler.dist(1)]):
        with (
            Sampler.grammar_lazy(vocab, 'root ::= "☃"', trigger_patterns=[piece]) as grammar,
            SamplerChain(links) as chain,
        ):
            token = chain.sample(context, 0, grammar=grammar)
            assert piece not in vocab.piece(token).decode()
            assert grammar.awaiting_trigger


def test_grammar_of_another_vocabulary_is_refused(gpt2: Any, context: Any) -> None:
    with Sampler.grammar(gpt2, WORDS) as grammar, SamplerChain([Sampler.greedy()]) as chain:
        for grammar_first in (False, True):
            with pytest.raises(SamplerError, match="vocabulary of 50257"):
                chain.sample(context, 0, grammar=grammar, grammar_first=grammar_first)


@pytest.fixture
def closed(gpt2: Any) -> Sampler:
    sampler = Sampler.grammar(gpt2, WORDS)
    sampler.close()
    return sampler


@pytest.mark.parametrize(
    "use",
    [
        lambda sampler: sampler.apply(Candidates(np.zeros(4, np.float32))),
        lambda sampler: sampler.accept(0),
        lambda sampler: sampler.reset(),
        lambda sampler: sampler.allows(0),
        lambda sampler: sampler.complete,
        lambda sampler: sampler.clone(),
    ],
    ids=["apply", "accept", "reset", "allows", "complete", "clone"],
)
def test_closed_grammar_raises(closed: Sampler, use: Callable[[Sampler], Any]) -> None:
    with pytest.raises(ValueError, match="closed"):
        use(closed)


def test_ambiguity_that_doubles_with_each_character_is_an_error(gpt2: Any) -> None:
    # llama.cpp keeps a stack for each way, and has no memory left after some dozens of characters
    token = pieces_of(gpt2)[b"a"]
    with Sampler.grammar(gpt2, 'root ::= "a" root "b" | "a" root "c" | "a"') as sampler:
        with pytest.raises(GrammarError, match="more than 16384 ways"):
            for _ in range(40):
                sampler.accept(token)
        with pytest.raises(GrammarError, match="more than 16384 ways"):
            sampler.allows(token)
        sampler.reset()
        assert sampler.allows(token)
