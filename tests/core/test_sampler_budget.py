"""The reasoning budget: expected texts and states are spelled out by hand."""

from __future__ import annotations

import threading
from array import array

import numpy as np
import pytest

from llamacy.core.candidates import Candidates
from llamacy.core.reasoning_budget import closing_tokens, end_reasoning, reasoning_state
from llamacy.core.sampler import Sampler, SamplerChain
from llamacy.errors import SamplerError


@pytest.fixture
def vocab(smollm2_model):
    return smollm2_model.vocab


def row(vocab, best=7):
    logits = np.zeros(vocab.n_tokens, np.float32)
    logits[best] = 5
    return Candidates(logits)


def forced(sampler, vocab):
    """Return the token that the sampler leaves alone, or None when it changes nothing."""
    candidates = row(vocab)
    sampler.apply(candidates)
    if len(candidates) == 1:
        return int(candidates.ids[0])
    assert np.array_equal(np.asarray(candidates.logits), np.asarray(row(vocab).logits))
    return None


def write(sampler, vocab, text):
    for token in vocab.tokenize(text, add_special=False):
        sampler.accept(token)


def write_forced(sampler, vocab, most=40):
    """Let the sampler force what it wants, and return it as text."""
    tokens = []
    while (token := forced(sampler, vocab)) is not None:
        tokens.append(token)
        sampler.accept(token)
        assert len(tokens) <= most
    return vocab.detokenize(tokens).decode()


def byte_tokens(vocab, text):
    """Return the tokens of one byte each that spell a text."""
    pieces = {vocab.piece(token): token for token in range(vocab.n_tokens - 1, -1, -1)}
    return [pieces[bytes([byte])] for byte in text.encode()]


def test_budget_ends_the_block_after_so_many_tokens(vocab):
    sampler = Sampler.reasoning_budget(vocab, 3, message=" Enough.\n")
    assert reasoning_state(sampler) == "idle"
    assert forced(sampler, vocab) is None
    write(sampler, vocab, "Well <think>")
    assert reasoning_state(sampler) == "counting"
    for word in (" one", " two"):
        write(sampler, vocab, word)
        assert forced(sampler, vocab) is None
    write(sampler, vocab, " three")
    assert reasoning_state(sampler) == "forcing"
    assert write_forced(sampler, vocab) == " Enough.\n</think>"
    assert reasoning_state(sampler) == "done"


def test_block_that_ends_in_time_is_left_alone(vocab):
    sampler = Sampler.reasoning_budget(vocab, 30)
    write(sampler, vocab, "<think> one two </think> three")
    assert reasoning_state(sampler) == "done"
    assert forced(sampler, vocab) is None


def test_later_blocks_are_left_alone(vocab):
    sampler = Sampler.reasoning_budget(vocab, 2)
    write(sampler, vocab, "<think> one")
    write(sampler, vocab, "</think> <think> one two three four")
    assert reasoning_state(sampler) == "done"
    assert forced(sampler, vocab) is None


def test_budget_of_0_ends_the_block_at_once(vocab):
    sampler = Sampler.reasoning_budget(vocab, 0)
    write(sampler, vocab, "<think>")
    assert write_forced(sampler, vocab) == "</think>"


def test_block_that_the_prompt_began_counts_from_the_start(vocab):
    sampler = Sampler.reasoning_budget(vocab, 2, in_block=True)
    assert reasoning_state(sampler) == "counting"
    write(sampler, vocab, " one two")
    assert write_forced(sampler, vocab) == "</think>"
    assert write_forced(Sampler.reasoning_budget(vocab, 0, in_block=True), vocab) == "</think>"


@pytest.mark.parametrize("spelling", [("<", "th", "ink", ">"), ("<think", ">"), tuple("<think>")], ids=str)
def test_tags_are_found_however_they_are_tokenized(vocab, spelling):
    sampler = Sampler.reasoning_budget(vocab, 0)
    for part in ("a<<thin", *spelling):
        assert reasoning_state(sampler) == "idle"
        write(sampler, vocab, part)
    assert reasoning_state(sampler) == "forcing"


def test_any_of_several_tags_begins_and_ends_a_block(vocab):
    tags = {"start": ("<think>", "[THINK]"), "end": ("</think>", "[/THINK]")}
    sampler = Sampler.reasoning_budget(vocab, 9, **tags)
    write(sampler, vocab, "[THINK]")
    assert reasoning_state(sampler) == "counting"
    write(sampler, vocab, " a [/THINK]")
    assert reasoning_state(sampler) == "done"
    sampler = Sampler.reasoning_budget(vocab, 0, **tags)
    write(sampler, vocab, "[THINK]")
    assert write_forced(sampler, vocab) == "</think>"


def test_both_tags_in_one_token_make_an_empty_block(vocab):
    # " not" holds both
    sampler = Sampler.reasoning_budget(vocab, 5, start=" n", end="ot")
    sampler.accept(vocab.tokenize(" not", add_special=False)[0])
    assert reasoning_state(sampler) == "done"


def test_end_waits_for_a_whole_character(vocab):
    sampler = Sampler.reasoning_budget(vocab, 2, in_block=True)
    first, second, third = byte_tokens(vocab, "€")
    write(sampler, vocab, "a")
    sampler.accept(first)
    assert reasoning_state(sampler) == "waiting"
    assert forced(sampler, vocab) is None
    sampler.accept(second)
    assert reasoning_state(sampler) == "waiting"
    sampler.accept(third)
    assert write_forced(sampler, vocab) == "</think>"


def test_end_does_not_wait_for_ever(vocab):
    sampler = Sampler.reasoning_budget(vocab, 1, in_block=True)
    first = byte_tokens(vocab, "€")[0]
    sampler.accept(first)
    n_waited = 0
    while reasoning_state(sampler) == "waiting":
        sampler.accept(first)
        n_waited += 1
    assert n_waited == 3
    assert reasoning_state(sampler) == "forcing"


def test_end_tag_that_has_begun_is_gone_on_with(vocab):
    tag = vocab.tokenize("</think>", add_special=False)
    assert len(tag) > 2
    sampler = Sampler.reasoning_budget(vocab, 2, in_block=True)
    write(sampler, vocab, "a")
    sampler.accept(tag[0])
    tokens = []
    while (token := forced(sampler, vocab)) is not None:
        tokens.append(token)
        sampler.accept(token)
    assert tokens == list(tag[1:])


def test_message_comes_whole_after_a_tag_that_has_begun(vocab):
    sampler = Sampler.reasoning_budget(vocab, 1, in_block=True, message=" Stop.")
    sampler.accept(vocab.tokenize("</think>", add_special=False)[0])
    assert write_forced(sampler, vocab) == " Stop.</think>"


@pytest.mark.parametrize(("start_within", "state"), [(0, "counting"), (6, "counting"), (2, "done")])
def test_block_that_begins_late_is_not_reasoning(vocab, start_within, state):
    sampler = Sampler.reasoning_budget(vocab, 5, start_within=start_within)
    write(sampler, vocab, "one two<think>")
    assert reasoning_state(sampler) == state


def test_token_that_was_not_forced_changes_nothing(vocab):
    sampler = Sampler.reasoning_budget(vocab, 0, in_block=True)
    write(sampler, vocab, " and then")
    assert write_forced(sampler, vocab) == "</think>"


def test_clone_and_copy_have_the_state_and_go_on_alone(vocab):
    sampler = Sampler.reasoning_budget(vocab, 3)
    write(sampler, vocab, "<think> one two")
    copy = sampler.clone()
    other = Sampler.reasoning_budget(vocab, 3)
    sampler.copy_to(other)
    write(sampler, vocab, " three")
    assert [reasoning_state(one) for one in (sampler, copy, other)] == ["forcing", "counting", "counting"]
    for one in (copy, other):
        write(one, vocab, " three")
        assert write_forced(one, vocab) == "</think>"


@pytest.mark.parametrize("in_block", [False, True])
def test_reset_goes_back_to_the_start(vocab, in_block):
    sampler = Sampler.reasoning_budget(vocab, 2, in_block=in_block)
    write(sampler, vocab, " one" if in_block else "<think> one")
    sampler.reset()
    assert reasoning_state(sampler) == ("counting" if in_block else "idle")
    write(sampler, vocab, " one" if in_block else "<think> one")
    assert reasoning_state(sampler) == "counting"
    write(sampler, vocab, " two")
    assert write_forced(sampler, vocab) == "</think>"


def test_end_reasoning_ends_only_a_block(vocab):
    chain = SamplerChain([Sampler.top_k(5), Sampler.reasoning_budget(vocab, 1000), Sampler.greedy()])
    assert not end_reasoning(chain)
    assert reasoning_state(chain) == "idle"
    write(chain, vocab, "<think> one")
    assert end_reasoning(chain)
    tokens = []
    while reasoning_state(chain) != "done":
        candidates = row(vocab)
        chain.apply(candidates)
        tokens.append(int(candidates.ids[candidates.selected]))
        chain.accept(tokens[-1])
    assert vocab.detokenize(tokens) == b"</think>"
    assert not end_reasoning(chain)
    chain.close()


def test_end_reasoning_waits_for_a_whole_character(vocab):
    sampler = Sampler.reasoning_budget(vocab, 1000, in_block=True)
    first, second, third = byte_tokens(vocab, "€")
    sampler.accept(first)
    assert end_reasoning(sampler)
    assert forced(sampler, vocab) is None
    sampler.accept(second)
    sampler.accept(third)
    assert write_forced(sampler, vocab) == "</think>"


def test_end_reasoning_from_another_thread_while_a_chain_samples(vocab):
    chain = SamplerChain([Sampler.reasoning_budget(vocab, 10**6, in_block=True), Sampler.dist(1)])
    token = vocab.tokenize(" one", add_special=False)[0]
    ended = []
    thread = threading.Thread(target=lambda: ended.append(end_reasoning(chain)))
    for _ in range(3):
        chain.apply(row(vocab))
        chain.accept(token)
    thread.start()
    while reasoning_state(chain) == "counting":
        chain.apply(row(vocab))
        chain.accept(token)
    thread.join()
    assert ended == [True]
    assert reasoning_state(chain) == "forcing"
    chain.close()


def test_sampler_without_a_budget_has_no_state(vocab):
    chain = SamplerChain([Sampler.top_k(5)])
    assert reasoning_state(chain) is None
    assert not end_reasoning(chain)
    chain.close()


def test_forced_token_that_a_link_before_dropped_comes_all_the_same(vocab):
    chain = SamplerChain([Sampler.top_k(1), Sampler.reasoning_budget(vocab, 0, in_block=True), Sampler.greedy()])
    candidates = row(vocab)
    chain.apply(candidates)
    assert candidates.ids[candidates.selected] == vocab.tokenize("</think>", add_special=False)[0]
    chain.close()


def test_forced_token_that_is_ruled_out_raises(vocab):
    token = vocab.tokenize("</think>", add_special=False)[0]
    chain = SamplerChain(
        [
            Sampler.logit_bias(vocab.n_tokens, {token: float("-inf")}),
            Sampler.reasoning_budget(vocab, 0, in_block=True),
            Sampler.dist(1),
        ]
    )
    with pytest.raises(SamplerError, match="ruled out"):
        chain.apply(row(vocab))
    chain.close()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"budget": -1}, ValueError),
        ({"budget": 2**31}, ValueError),
        ({"budget": 1.5}, TypeError),
        ({"start": ""}, ValueError),
        ({"start": ()}, ValueError),
        ({"end": ("</a>", "")}, ValueError),
        ({"end": ["x"] * 17}, ValueError),
        ({"end": "x" * 1025}, ValueError),
        ({"start": [b"<think>"]}, TypeError),
        ({"message": b"stop"}, TypeError),
        ({"start_within": -1}, ValueError),
    ],
    ids=str,
)
def test_wrong_arguments_raise(vocab, arguments, error):
    with pytest.raises(error):
        Sampler.reasoning_budget(vocab, **({"budget": 1} | arguments))


def test_end_has_no_space_before_it_where_the_tokenizer_would_put_one(llama_model):
    vocab = llama_model.vocab
    assert vocab.piece(vocab.tokenize("</think>", add_special=False)[0]) == b" "
    for text in ("</think>", "Enough.\n</think>", "\n</think>", "€ </think>"):
        pieces = [vocab.piece(token, special=True) for token in closing_tokens(vocab, text)]
        assert b"".join(pieces).decode() == text
    sampler = Sampler.reasoning_budget(vocab, 0, in_block=True)
    tokens = []
    while (token := forced(sampler, vocab)) is not None:
        tokens.append(token)
        sampler.accept(token)
    assert tokens == closing_tokens(vocab, "</think>")


def test_accept_all_is_accept_of_each_token(vocab):
    tokens = array("i", [5, 6, 5, 7])
    one, other = (Sampler.penalties(vocab.n_tokens, 3, penalty_freq=1.0) for _ in range(2))
    one.accept_all(tokens)
    for token in tokens:
        other.accept(token)
    for sampler in (one, other):
        candidates = row(vocab, best=9)
        sampler.apply(candidates)
        logits = np.asarray(candidates.logits)
        assert {i: float(logits[i]) for i in np.flatnonzero(logits)} == {5: -1.0, 6: -1.0, 7: -1.0, 9: 5.0}


def test_accept_all_with_a_wrong_token_changes_nothing(vocab):
    sampler = Sampler.penalties(vocab.n_tokens, 3, penalty_freq=1.0)
    for wrong in (-1, vocab.n_tokens):
        with pytest.raises(SamplerError, match=f"no token {wrong}"):
            sampler.accept_all(array("i", [5, wrong]))
    candidates = row(vocab)
    sampler.apply(candidates)
    assert np.array_equal(np.asarray(candidates.logits), np.asarray(row(vocab).logits))
