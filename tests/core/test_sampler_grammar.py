"""Grammars: what they let pass, on a toy vocabulary and on the vocabularies of llama.cpp's tests."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.core.candidates import Candidates
from llamacy.core.model import Model
from llamacy.core.sampler import Sampler, SamplerChain
from llamacy.errors import GrammarError, SamplerError
from tests.helpers import vendor_dir
from tests.helpers.masks import allowed

DATE = 'root ::= [0-9]{4} "-" [0-9]{2} ("-" [0-9]{2})?'
JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array  ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""
REAL = ["llama-spm", "llama-bpe", "gpt-2", "qwen2", "phi-3"]


@pytest.fixture(scope="module", params=REAL)
def vocab(request: pytest.FixtureRequest) -> Any:
    """A real vocabulary, without a model."""
    path = vendor_dir() / "models" / f"ggml-vocab-{request.param}.gguf"
    with Model(path, vocab_only=True) as model:
        yield model.vocab


def spelled(char: str) -> set[int]:
    """Return the tokens of the toy vocabulary whose text is a letter: that of the letter, and that of the byte."""
    return {261 + ord(char) - ord("a"), 4 + ord(char)}


def accept_text(sampler: Sampler, vocab: Any, text: str) -> None:
    """Accept a text, piece by piece, as the longest tokens that fit."""
    data = text.encode()
    pieces = {vocab.piece(token): token for token in range(vocab.n_tokens) if not vocab.is_control(token)}
    while data:
        n = next(n for n in range(min(len(data), 24), 0, -1) if data[:n] in pieces)
        sampler.accept(pieces[data[:n]])
        data = data[n:]


def test_grammar_allows_what_a_regex_allows(vocab: Any) -> None:
    # independent of llama.cpp: a token is allowed when its text can begin a text that the expression matches
    beginning = re.compile(r"[0-9]{0,4}|[0-9]{4}-[0-9]{0,2}|[0-9]{4}-[0-9]{2}-[0-9]{0,2}")
    pieces = [vocab.piece(token) for token in range(vocab.n_tokens)]
    with Sampler.grammar(vocab, DATE) as sampler:
        written = ""
        for part in ("", "20", "24", "-0", "7"):
            if part:
                accept_text(sampler, vocab, part)
            written += part
            expected = {
                token
                for token, piece in enumerate(pieces)
                if piece and not vocab.is_eog(token) and beginning.fullmatch(written + piece.decode("latin-1"))
            }
            if written == "2024-07":
                expected |= {token for token in range(vocab.n_tokens) if vocab.is_eog(token)}
            assert allowed(sampler, vocab.n_tokens) == expected


def test_grammar_goes_along_with_json(vocab: Any) -> None:
    with Sampler.grammar(vocab, JSON) as sampler:
        accept_text(sampler, vocab, '{"naïve ☃": [1, -2.5e1, true], "b": {"c": "\\u00e9"}}')
        ends = {token for token in range(vocab.n_tokens) if vocab.is_eog(token)}
        assert ends
        assert ends <= allowed(sampler, vocab.n_tokens)
        for token in ends:
            assert sampler.allows(token)


def test_token_that_does_not_fit_is_refused_and_changes_nothing(vocab: Any) -> None:
    # llama.cpp throws on the one, and aborts on the next apply; it aborts on an early end of generation at once
    ends = [token for token in range(vocab.n_tokens) if vocab.is_eog(token)]
    with Sampler.grammar(vocab, DATE) as sampler:
        accept_text(sampler, vocab, "20")
        before = allowed(sampler, vocab.n_tokens)
        refused = [*ends, *range(0, vocab.n_tokens, vocab.n_tokens // 50)]
        for token in set(refused) - before:
            assert not sampler.allows(token)
            with pytest.raises(GrammarError, match="does not allow"):
                sampler.accept(token)
        assert allowed(sampler, vocab.n_tokens) == before
        accept_text(sampler, vocab, "24-07")
        sampler.accept(ends[0])


def test_chain_refuses_before_any_link_accepts(target_model: Any) -> None:
    vocab = target_model.vocab
    a, b = (vocab.tokenize(text, add_special=False)[-1] for text in ("a", "b"))
    chain = SamplerChain(
        [
            Sampler.penalties(vocab.n_tokens, 8, 1.0, 5.0),
            SamplerChain([Sampler.grammar(vocab, 'root ::= "a" "b"')]),
            Sampler.greedy(),
        ]
    )
    with chain:
        with pytest.raises(GrammarError):
            chain.accept(b)
        assert chain.allows(a)
        assert not chain.allows(b)
        chain.accept(a)
        candidates = Candidates(np.zeros(vocab.n_tokens))
        chain.apply(candidates)
        # the accepted token was counted by the penalties, the refused one was not
        left = [(token, logit) for token, logit, _ in candidates if np.isfinite(logit)]
        assert dict(left) == dict.fromkeys(spelled("b"), 0.0)
        chain.accept(b)
        candidates.fill(np.zeros(vocab.n_tokens))
        chain.apply(candidates)
        assert vocab.is_eog(candidates.token)


def test_grammar_in_a_chain_of_a_context(target_model: Any, make_context: Any) -> None:
    vocab = target_model.vocab
    context = make_context(target_model)
    batch = Batch(1)
    batch.add(1, 0, logits=True)
    context.decode(batch)
    with SamplerChain([Sampler.grammar(vocab, 'root ::= "ab."'), Sampler.dist(1)]) as chain:
        tokens = [chain.sample(context) for _ in range(4)]
        assert vocab.detokenize(tokens[:3]).decode().strip() == "ab."
        assert vocab.is_eog(tokens[3])
        # nothing may follow the end but another end
        assert vocab.is_eog(chain.sample(context))


def test_grammar_beside_the_chain_is_asked_first(target_model: Any, make_context: Any) -> None:
    vocab = target_model.vocab
    context = make_context(target_model)
    batch = Batch(1)
    batch.add(1, 0, logits=True)
    context.decode(batch)
    logits = np.asarray(context.outputs.logits())
    order = np.argsort(-logits)
    best, second = int(order[0]), int(order[1])
    with SamplerChain([Sampler.penalties(288, 1, 1.0, 0.0), Sampler.greedy()]) as chain:
        with Sampler.grammar(vocab, f"root ::= <[{best}]> <[{second}]>") as grammar:
            # allowed at once; then the best one is refused, and the choice is made again
            assert [chain.sample(context, grammar=grammar) for _ in range(2)] == [best, second]
            end = chain.sample(context, grammar=grammar)
            assert vocab.is_eog(end)
        with pytest.raises(SamplerError, match="the chain itself"):
            chain.sample(context, grammar=chain)
    with (
        SamplerChain([Sampler.logit_bias(288, {second: -np.inf}), Sampler.greedy()]) as chain,
        Sampler.grammar(vocab, f"root ::= <[{second}]>") as grammar,
        pytest.raises(GrammarError, match="no token is left"),
    ):
        chain.sample(context, grammar=grammar)


def test_token_rules_that_apply_lets_pass_by_mistake(vocab: Any) -> None:
    # after "a", llama.cpp's check of a token that begins with "a" compares its id with the token rule (though text is
    # left over), while accepting it fails and leaves the grammar without a state
    pieces = {vocab.piece(token): token for token in range(vocab.n_tokens)}
    token = pieces[b"an"]
    with Sampler.grammar(vocab, f'root ::= "a" <[{token}]> "."') as sampler:
        with pytest.raises(GrammarError):
            sampler.accept(token)
        assert not sampler.allows(token)
        sampler.accept(pieces[b"a"])
        sampler.accept(token)
        sampler.accept(pieces[b"."])


def test_clone_reset_and_copy_keep_apart(target_model: Any) -> None:
    vocab = target_model.vocab
    a, b = (vocab.tokenize(text, add_special=False)[-1] for text in ("a", "b"))
    grammar = 'root ::= "a" ("b" | "c") "a"'
    with Sampler.grammar(vocab, grammar) as one, Sampler.grammar(vocab, grammar) as two:
        one.accept(a)
        with one.clone() as clone:
            clone.accept(b)
            assert (allowed(one, 288), allowed(clone, 288)) == (spelled("b") | spelled("c"), spelled("a"))
            clone.copy_to(two)
            assert allowed(two, 288) == spelled("a")
            clone.reset()
            assert allowed(clone, 288) == spelled("a") == allowed(two, 288)
            two.accept(a)
            assert clone.allows(a)
            assert not two.allows(a)


def test_grammar_object_of_a_chain_serves_many_runs(target_model: Any) -> None:
    vocab = target_model.vocab
    a, b = (vocab.tokenize(text, add_special=False)[-1] for text in ("a", "b"))
    with SamplerChain([Sampler.grammar(vocab, 'root ::= "a" "b"'), Sampler.greedy()]) as chain:
        for _ in range(3):
            chain.accept(a)
            with pytest.raises(GrammarError):
                chain.accept(a)
            chain.reset()
            chain.accept(a)
            chain.accept(b)
            chain.reset()


def test_utf8_split_over_tokens_fits(target_model: Any) -> None:
    # the toy vocabulary has bytes only for what is not a letter
    vocab = target_model.vocab
    snowman = [4 + byte for byte in "☃".encode()]
    with Sampler.grammar(vocab, 'root ::= "☃" [à-ü]') as sampler:
        for token in snowman:
            assert allowed(sampler, 288) == {token}
            sampler.accept(token)
        assert allowed(sampler, 288) == {4 + 0xC3}
        sampler.accept(4 + 0xC3)
        assert allowed(sampler, 288) == {4 + byte for byte in range(0xA0, 0xBD)}


# lazy grammars


def spell(vocab: Any, text: str) -> list[int]:
    """Return tokens of the toy vocabulary, one a character: letters as such, the rest as bytes."""
    return [
        261 + ord(char) - ord("a") if "a" <= char <= "z" else 260 if char == " " else 4 + ord(char) for char in text
    ]


@pytest.mark.parametrize(
    ("patterns", "text", "fits", "not_fits"),
    [
        (["<do>"], "so we <d<do>", "a", "b"),
        (["(<do>)"], "x<do>", "a", "b"),
        ([r"[\s\S]*?(never)|<do>"], "x<do>", "a", "b"),
        ([r"^never|<do>"], "x<do>", "a", "b"),
        ([r"\<do\>"], "x<do>", "a", "b"),
        ([r"[\s\S]*?(<do>)[\s\S]*"], "long story <do>", "a", "b"),
        ([r"^[\s\S]*?(<do>)[\s\S]*$"], "long story <do>", "a", "b"),
        ([r"never", r"n[ou]w\s*(?:<do>)"], "and now  <do>", None, None),
        ([r"^(<do>)"], "<do>", "a", "b"),
    ],
)
def test_lazy_grammar_begins_at_its_trigger(
    target_model: Any, patterns: list[str], text: str, fits: str | None, not_fits: str | None
) -> None:
    vocab = target_model.vocab
    start = "now  <do>" if fits is None else "<do>"
    with Sampler.grammar_lazy(vocab, f'root ::= "{start}a"', trigger_patterns=patterns) as sampler:
        for token in spell(vocab, text):
            assert sampler.awaiting_trigger
            assert len(allowed(sampler, 288)) == 288
            sampler.accept(token)
        assert not sampler.awaiting_trigger
        assert allowed(sampler, 288) == spelled("a")
        with pytest.raises(GrammarError):
            sampler.accept(spell(vocab, "b")[0])
        sampler.accept(spell(vocab, "a")[0])
        sampler.reset()
        assert sampler.awaiting_trigger
        assert len(allowed(sampler, 288)) == 288


def test_trigger_token_is_part_of_the_grammar(target_model: Any) -> None:
    vocab = target_model.vocab
    x, a = spell(vocab, "xa")
    with Sampler.grammar_lazy(vocab, 'root ::= "xa"', trigger_tokens=[x]) as sampler:
        for token in (a, a, 2):
            sampler.accept(token)
        sampler.accept(x)
        assert not sampler.awaiting_trigger
        assert allowed(sampler, 288) == spelled("a")


def test_trigger_in_the_middle_of_a_token_feeds_its_rest(vocab: Any) -> None:
    pieces = {vocab.piece(token): token for token in range(vocab.n_tokens)}
    token = pieces[b"ation"]
    with Sampler.grammar_lazy(vocab, 'root ::= "tion" "al"', trigger_patterns=["t"]) as sampler:
        sampler.accept(pieces[b"a"])
        sampler.accept(token)
        assert not sampler.awaiting_trigger
        assert sampler.allows(pieces[b"al"])
        assert not sampler.allows(token)
        with sampler.clone() as clone:
            clone.accept(pieces[b"al"])
        sampler.reset()
        assert sampler.awaiting_trigger


def test_trigger_whose_token_breaks_the_grammar_is_refused(vocab: Any) -> None:
    # llama.cpp throws out of accept, with the grammar left without a state
    pieces = {vocab.piece(token): token for token in range(vocab.n_tokens)}
    with Sampler.grammar_lazy(vocab, 'root ::= "t" "x"', trigger_patterns=["t"]) as sampler:
        sampler.accept(pieces[b"a"])
        for _ in range(2):
            assert not sampler.allows(pieces[b"ation"])
            with pytest.raises(GrammarError, match="does not allow"):
                sampler.accept(pieces[b"ation"])
        assert sampler.awaiting_trigger
        sampler.accept(pieces[b"t"])
        sampler.accept(pieces[b"x"])


def test_lazy_grammar_waits_through_long_texts(target_model: Any) -> None:
    # llama.cpp runs a recursive regex over all text at each token: it overflows the stack
    vocab = target_model.vocab
    filler = spell(vocab, "b")[0]
    patterns = [r"[\s\S]*?(<do>)[\s\S]*", r"(?:x|y)*(<go>)"]
    with Sampler.grammar_lazy(vocab, 'root ::= "<do>a"', trigger_patterns=patterns) as sampler:
        for _ in range(6000):
            sampler.accept(filler)
        for token in spell(vocab, "<do>"):
            sampler.accept(token)
        assert allowed(sampler, 288) == spelled("a")


def filler_of(vocab: Any) -> tuple[int, int]:
    """Return the longest token and its bytes."""
    pieces = sorted(((vocab.piece(token), token) for token in range(vocab.n_tokens)), key=lambda item: -len(item[0]))
    piece, token = next((piece, token) for piece, token in pieces if not vocab.is_control(token))
    return token, len(piece)


@pytest.mark.parametrize(
    ("pattern", "near", "far"),
    [
        (r"^[\s\S]*(<do>)", True, False),  # anchored: past 64 KiB the text has no beginning any more
        (r"^[\s\S]*(<do>)$", True, False),
        (r"^never|<do>", True, True),
        (r"(?:^|\n)(<do>)", False, False),
        (r"\B<do>", True, True),
        (r"[\s\S]*(<do>)", True, True),
    ],
)
def test_pattern_that_looks_at_the_beginning_fires_within_its_limit(pattern: str, near: bool, far: bool) -> None:
    with Model(vendor_dir() / "models" / "ggml-vocab-gpt-2.gguf", vocab_only=True) as model:
        vocab = model.vocab
        token, size = filler_of(vocab)
        trigger = vocab.tokenize("<do>", add_special=False)
        with Sampler.grammar_lazy(vocab, 'root ::= "<do>x"', trigger_patterns=[pattern]) as sampler:
            for n_bytes, fires in ((60_000, near), (66_000, far)):
                sampler.reset()
                for _ in range(n_bytes // size):
                    sampler.accept(token)
                for one in trigger:
                    assert sampler.allows(one)
                    sampler.accept(one)
                assert sampler.awaiting_trigger is not fires


def test_repr_of_a_grammar_is_short(target_model: Any) -> None:
    with Sampler.grammar(target_model.vocab, JSON, "array") as sampler:
        assert len(repr(sampler)) < 150
        assert "grammar_root='array'" in repr(sampler)
        assert sampler.values["grammar_str"] == JSON
        assert sampler.name == "grammar"
