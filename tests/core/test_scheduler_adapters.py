"""Adapters that change while a sequence keeps what it holds, against decoding by hand."""

from __future__ import annotations

import numpy as np
import pytest

from llamacy.core.adapter import LoraAdapter
from llamacy.core.batch import Batch
from llamacy.core.sampler import Sampler, SamplerChain
from llamacy.core.scheduler import Scheduler
from llamacy.core.sequence import Sequence
from llamacy.errors import AdapterError, ClosedError, ConcurrentUseError, MemoryOperationError
from tests.helpers import toy_tokens
from tests.helpers.compute import EXACT

TOKENS = np.array(toy_tokens("the quick brown fox jumps"), np.int32)
N = 9


@pytest.fixture
def context(make_model, make_context):
    return make_context(make_model("llama.gguf"), **EXACT, n_seq_max=2, kv_unified=True)


@pytest.fixture
def adapter(context, lora_path):
    return LoraAdapter(context.model, lora_path)


@pytest.fixture
def scheduler(context, closing):
    return closing(Scheduler(context))


def expected_row(context, make_context, stages):
    """Return the logits after TOKENS; each stage is how many of them are decoded with which adapters."""
    with make_context(context.model, **EXACT) as other, Batch(len(TOKENS)) as batch:
        n = 0
        for end, adapters in stages:
            other.set_adapters_lora(adapters)
            batch.clear()
            batch.extend(TOKENS[n:end], n)
            other.decode(batch)
            n = end
        return np.array(other.logits(-1))


def row_after(scheduler, sequence, tokens=TOKENS):
    """Let a sequence hold tokens, and return the logits after them."""
    rows = []
    sequence.sampler = SamplerChain([Sampler.greedy()])
    sequence.processors = (lambda _, row: rows.append(np.array(row)),)
    sequence.extend(tokens)
    scheduler.add(sequence)
    scheduler.next_token(sequence)
    scheduler.remove(sequence)
    sequence.processors = ()
    return rows[0]


def prefilled(scheduler, tokens=TOKENS[:N], seq_id=0):
    sequence = Sequence(seq_id, 64)
    sequence.extend(tokens)
    scheduler.add(sequence)
    scheduler.prefill(sequence)
    return sequence


def test_sequence_keeps_what_it_holds_and_goes_on_with_the_new_adapters(context, scheduler, adapter, make_context):
    sequence = prefilled(scheduler)
    scheduler.set_adapters([(adapter, 2.0)], [sequence])
    assert context.adapters_lora == ((adapter, 2.0),)
    assert sequence.n_past == N
    got = row_after(scheduler, sequence, TOKENS[N:])
    expected = expected_row(context, make_context, [(N, []), (len(TOKENS), [(adapter, 2.0)])])
    assert np.abs(expected - expected_row(context, make_context, [(len(TOKENS), [(adapter, 2.0)])])).max() > 0.01
    np.testing.assert_allclose(got, expected, atol=1e-4)


def test_settled_sequence_holds_what_the_adapters_before_computed(context, scheduler, adapter, make_context):
    sequence = prefilled(scheduler)
    scheduler.set_adapters([(adapter, 2.0)], [sequence])
    row_after(scheduler, sequence, TOKENS[N:])
    scheduler.settle(sequence)
    scheduler.set_adapters([])
    assert scheduler.resume(sequence, TOKENS) == N
    got = row_after(scheduler, sequence, TOKENS[:0])
    np.testing.assert_allclose(got, expected_row(context, make_context, [(len(TOKENS), [])]), atol=1e-4)


def test_settled_sequence_holds_nothing_for_the_new_adapters(scheduler, adapter):
    sequence = prefilled(scheduler)
    scheduler.set_adapters([(adapter, 2.0)], [sequence])
    row_after(scheduler, sequence, TOKENS[N:])
    scheduler.settle(sequence)
    assert scheduler.resume(sequence, TOKENS) == 0


def test_sequence_that_is_not_named_is_computed_anew(context, scheduler, adapter, make_context):
    sequence = prefilled(scheduler)
    scheduler.set_adapters([(adapter, 2.0)])
    got = row_after(scheduler, sequence, TOKENS[N:])
    np.testing.assert_allclose(got, expected_row(context, make_context, [(len(TOKENS), [(adapter, 2.0)])]), atol=1e-4)


def test_adapters_may_change_several_times(context, scheduler, adapter, make_context):
    sequence = prefilled(scheduler, TOKENS[:4])
    scheduler.set_adapters([(adapter, 2.0)], [sequence])
    sequence.sampler = None
    sequence.extend(TOKENS[4:N])
    scheduler.prefill(sequence)
    scheduler.set_adapters([(adapter, -1.0)], [sequence])
    got = row_after(scheduler, sequence, TOKENS[N:])
    stages = [(4, []), (N, [(adapter, 2.0)]), (len(TOKENS), [(adapter, -1.0)])]
    np.testing.assert_allclose(got, expected_row(context, make_context, stages), atol=1e-4)
    scheduler.settle(sequence)
    scheduler.set_adapters([])
    assert scheduler.resume(sequence, TOKENS) == 4


def test_same_adapters_again_change_nothing(scheduler, adapter):
    scheduler.set_adapters([(adapter, 2.0)])
    sequence = prefilled(scheduler)
    scheduler.set_adapters([(adapter, 2.0)], [sequence])
    assert scheduler.resume(sequence, TOKENS) == N


def test_copy_holds_as_much_as_its_source(scheduler, adapter):
    sequence, other = prefilled(scheduler), Sequence(1, 64)
    scheduler.set_adapters([(adapter, 2.0)], [sequence])
    sequence.extend(TOKENS[N:])
    sequence.sampler = None
    scheduler.prefill(sequence)
    scheduler.remove(sequence)
    scheduler.copy(sequence, other)
    scheduler.settle(other)
    scheduler.set_adapters([])
    assert scheduler.resume(other, TOKENS) == N


@pytest.mark.parametrize("in_between", ["decode", "clear", "adapters"])
def test_lost_tokens_are_an_error(context, scheduler, adapter, make_context, in_between):
    sequence = prefilled(scheduler)
    scheduler.set_adapters([(adapter, 2.0)], [sequence])
    if in_between == "decode":
        with Batch(1) as batch:
            batch.extend([270], 0, (1,))
            context.decode(batch)
    elif in_between == "clear":
        context.memory.clear()
    else:
        context.set_adapters_lora([])
    sequence.extend(TOKENS[N:])
    with pytest.raises(MemoryOperationError, match="again"):
        scheduler.step()
    scheduler.remove(sequence)
    scheduler.set_adapters([])
    assert scheduler.resume(sequence, TOKENS) == 0
    got = row_after(scheduler, sequence, TOKENS[:0])
    np.testing.assert_allclose(got, expected_row(context, make_context, [(len(TOKENS), [])]), atol=1e-4)


def test_sequence_computed_with_something_else_is_not_kept(context, scheduler, adapter):
    sequence = prefilled(scheduler)
    scheduler.remove(sequence)
    context.memory.clear()
    scheduler.set_adapters([(adapter, 2.0)], [sequence])
    assert scheduler.resume(sequence, TOKENS) == 0


def test_adapters_that_are_refused_change_nothing(context, scheduler, adapter, lora_path):
    sequence = prefilled(scheduler)
    closed = LoraAdapter(context.model, lora_path)
    closed.close()
    for adapters, error in (
        ([(closed, 1.0)], ClosedError),
        ([(adapter, float("nan"))], AdapterError),
        ([(adapter, 1.0), (adapter, 2.0)], AdapterError),
        ([(5, 1.0)], TypeError),
    ):
        with pytest.raises(error):
            scheduler.set_adapters(adapters, [sequence])
    with pytest.raises(TypeError):
        scheduler.set_adapters([(adapter, 1.0)], [5])
    assert context.adapters_lora == ()
    assert scheduler.resume(sequence, TOKENS) == N


def test_adapters_are_not_set_within_a_step(scheduler, adapter):
    raised = []

    def change(_, __):
        try:
            scheduler.set_adapters([(adapter, 1.0)])
        except ConcurrentUseError as error:
            raised.append(error)

    sequence = prefilled(scheduler)
    sequence.sampler = SamplerChain([Sampler.greedy()])
    sequence.processors = (change,)
    sequence.extend(TOKENS[N:])
    scheduler.next_token(sequence)
    assert len(raised) == 1
