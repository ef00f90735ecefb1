"""Samplers written in Python."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from llamacy.core._handle import live_handles
from llamacy.core.batch import Batch
from llamacy.core.candidates import Candidates
from llamacy.core.custom_sampler import CustomSampler
from llamacy.core.sampler import Sampler, SamplerChain
from llamacy.errors import ClosedError, SamplerError


class Ban(CustomSampler):
    """Rules a token out, and remembers what was accepted."""

    name = "ban"

    def __init__(self, token: int) -> None:
        super().__init__()
        self.token = token
        self.accepted: list[int] = []
        self.seen: list[int] = []

    def apply(self, candidates: Candidates) -> None:
        view = np.asarray(candidates)
        self.seen.append(len(view))
        view["logit"][view["id"] == self.token] = -np.inf

    def accept(self, token: int) -> None:
        self.accepted.append(token)

    def reset(self) -> None:
        self.accepted.clear()

    def clone(self) -> Ban:
        made = Ban(self.token)
        made.accepted = list(self.accepted)
        return made


class Failing(CustomSampler):
    """Raises in the method it is told to."""

    def __init__(self, where: str = "") -> None:
        self.where = where

    def _maybe(self, where: str) -> None:
        if self.where == where:
            raise LookupError(where)

    def apply(self, candidates: Candidates) -> None:  # noqa: ARG002
        self._maybe("apply")

    def accept(self, token: int) -> None:  # noqa: ARG002
        self._maybe("accept")

    def reset(self) -> None:
        self._maybe("reset")

    def clone(self) -> Failing:
        self._maybe("clone")
        return Failing(self.where)


class Function(CustomSampler):
    """Calls a function on the candidates."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def apply(self, candidates: Candidates) -> None:
        self.function(candidates)


def run(chain: SamplerChain, logits: Any) -> Candidates:
    candidates = Candidates(logits)
    chain.apply(candidates)
    return candidates


def test_custom_sampler_works_in_a_chain() -> None:
    ban = Ban(3)
    with SamplerChain([Sampler.top_k(5), ban, Sampler.greedy()]) as chain:
        assert chain.names == ("top-k", "ban", "greedy")
        assert chain[1] is ban
        assert run(chain, [0.0, 1.0, 2.0, 9.0, 3.0, 4.0, 5.0]).token == 6
        chain.accept(6)
        chain.accept(2)
        assert (ban.seen, ban.accepted) == ([5], [6, 2])
        chain.reset()
        assert ban.accepted == []


def test_custom_sampler_is_sampled_from_a_context(target_model: Any, make_context: Any) -> None:
    context = make_context(target_model)
    batch = Batch(1)
    batch.add(1, 0, logits=True)
    context.decode(batch)
    order = np.argsort(-np.asarray(context.outputs.logits()))
    ban = Ban(int(order[0]))
    with SamplerChain([ban, Sampler.greedy()]) as chain:
        assert chain.sample(context) == order[1]
        assert ban.accepted == [order[1]]
        assert ban.seen == [288]


def test_custom_sampler_can_pick_and_cut() -> None:
    def last_of_three(candidates: Candidates) -> None:
        candidates.size = 3
        candidates.selected = 2

    with SamplerChain([Function(last_of_three)]) as chain:
        candidates = run(chain, [5.0, 6.0, 7.0, 8.0])
        assert (len(candidates), candidates.token) == (3, 2)


def test_custom_sampler_can_use_other_samplers() -> None:
    with Sampler.top_k(2) as inner, SamplerChain([Function(inner.apply), Sampler.greedy()]) as chain:
        candidates = run(chain, [5.0, 9.0, 7.0, 8.0])
        assert (list(candidates.ids), candidates.token) == ([1, 3], 1)


@pytest.mark.parametrize("where", ["apply", "accept", "reset", "clone"])
def test_exception_comes_out_of_the_call_that_led_there(where: str) -> None:
    failing = Failing(where)
    calls = {
        "apply": lambda chain: run(chain, [1.0, 2.0]),
        "accept": lambda chain: chain.accept(1),
        "reset": lambda chain: chain.reset(),
        "clone": lambda chain: chain.clone().close(),
    }
    with SamplerChain([Sampler.top_k(2), failing, Sampler.greedy()]) as chain:
        for name, call in calls.items():
            if name == where:
                with pytest.raises(LookupError, match=where):
                    call(chain)
            else:
                call(chain)
        failing.where = ""
        calls[where](chain)


def test_exception_in_sample_accepts_nothing(target_model: Any, make_context: Any) -> None:
    context = make_context(target_model)
    batch = Batch(1)
    batch.add(1, 0, logits=True)
    context.decode(batch)
    failing, ban = Failing("apply"), Ban(0)
    with SamplerChain([failing, ban, Sampler.greedy()]) as chain:
        for _ in range(2):
            with pytest.raises(LookupError):
                chain.sample(context)
        assert ban.accepted == []
        failing.where = "accept"
        with pytest.raises(LookupError):
            chain.sample(context)
        failing.where = ""
        chain.sample(context)
        assert len(ban.accepted) == 2


def test_keyboard_interrupt_in_a_callback_is_not_lost() -> None:
    def interrupt(candidates: Candidates) -> None:
        raise KeyboardInterrupt

    with SamplerChain([Function(interrupt)]) as chain, pytest.raises(KeyboardInterrupt):
        run(chain, [1.0])


def test_lent_candidates_expire_but_their_views_stay_readable() -> None:
    kept: list[Any] = []

    def keep(candidates: Candidates) -> None:
        kept.append((candidates, np.asarray(candidates), candidates.copy()))

    with SamplerChain([Function(keep), Sampler.greedy()]) as chain:
        for _ in range(5):
            run(chain, [1.0, 2.0, 3.0])
    for candidates, view, copy in kept:
        for use in (
            lambda: candidates[0],  # noqa: B023
            lambda: candidates.logits,  # noqa: B023
            lambda: np.asarray(candidates).shape[5],  # noqa: B023
            lambda: candidates.fill([1.0]),  # noqa: B023
            lambda: Sampler.greedy().apply(candidates),  # noqa: B023
            lambda: setattr(candidates, "selected", 0),  # noqa: B023
        ):
            with pytest.raises((ClosedError, IndexError, BufferError)):
                use()
        assert list(view["logit"]) == [1.0, 2.0, 3.0] == list(copy.logits)
        view["logit"] = 7.0
    gc.collect()


def test_views_of_different_calls_do_not_share_memory() -> None:
    views: list[Any] = []
    with SamplerChain([Function(lambda candidates: views.append(np.asarray(candidates))), Sampler.greedy()]) as chain:
        run(chain, [1.0, 2.0])
        run(chain, [3.0, 4.0])
    assert not np.shares_memory(views[0], views[1])
    assert list(views[0]["logit"]) == [1.0, 2.0]


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e20])
def test_logits_that_cannot_be_ordered_are_refused(value: float) -> None:
    # the sort of the next link would leave the array
    def spoil(candidates: Candidates) -> None:
        np.asarray(candidates)["logit"][::3] = value

    with (
        SamplerChain([Function(spoil), Sampler.top_k(200), Sampler.greedy()]) as chain,
        pytest.raises(SamplerError, match="not a number or above"),
    ):
        run(chain, np.random.default_rng(0).normal(size=5000))


def test_sorted_flag_is_not_believed() -> None:
    def reverse(candidates: Candidates) -> None:
        view = np.asarray(candidates)
        view["logit"] = view["logit"][::-1].copy()

    with SamplerChain([Sampler.top_k(3), Function(reverse), Sampler.top_k(1), Sampler.greedy()]) as chain:
        assert list(run(chain, [1.0, 2.0, 3.0]).ids) == [0]


def test_candidates_cannot_grow() -> None:
    with (
        SamplerChain([Function(lambda candidates: candidates.fill(range(100))), Sampler.greedy()]) as chain,
        pytest.raises(SamplerError, match="was given 3 candidates and left 100"),
    ):
        run(chain, [1.0, 2.0, 3.0])


def test_clone_of_the_chain_has_objects_of_its_own() -> None:
    ban = Ban(1)
    with SamplerChain([ban, SamplerChain([Ban(2)]), Sampler.greedy()]) as chain:
        chain.accept(4)
        with chain.clone() as clone:
            copy: Any = clone[0]
            assert isinstance(copy, Ban)
            assert copy is not ban
            assert copy.closed
            assert copy.accepted == [4]
            clone.accept(5)
            assert (copy.accepted, ban.accepted) == ([4, 5], [4])
            assert run(clone, [0.0, 9.0, 9.0, 1.0]).token == 3
            with clone.remove(0) as removed:
                assert removed is copy
                assert not copy.closed
        assert run(chain, [0.0, 9.0, 9.0, 1.0]).token == 3


def test_copy_of_state_between_chains() -> None:
    with SamplerChain([Ban(1), Sampler.greedy()]) as one, SamplerChain([Ban(1), Sampler.greedy()]) as two:
        one.accept(4)
        before: Any = two[0]
        one.copy_to(two)
        after: Any = two[0]
        assert after is not before
        assert after.accepted == [4]
        assert before.closed
        two.accept(5)
        assert after.accepted == [4, 5]


def test_custom_sampler_that_cannot_be_cloned() -> None:
    with SamplerChain([Function(lambda _: None), Sampler.greedy()]) as chain:
        with pytest.raises(SamplerError, match="does not define clone"):
            chain.clone()
        with SamplerChain([Function(lambda _: None), Sampler.greedy()]) as other:
            with pytest.raises(SamplerError, match="does not define clone"):
                chain.copy_to(other)
            run(other, [1.0, 2.0])
        assert run(chain, [1.0, 2.0]).token == 1


@pytest.mark.parametrize("result", [None, "self", Sampler.greedy()], ids=["None", "self", "other"])
def test_clone_that_returns_something_else_is_refused(result: Any) -> None:
    class Odd(CustomSampler):
        def apply(self, candidates: Candidates) -> None:
            pass

        def clone(self) -> Any:
            return self if result == "self" else result

    with SamplerChain([Odd(), Sampler.greedy()]) as chain, pytest.raises(SamplerError, match="must return a new"):
        chain.clone()
    if isinstance(result, Sampler):
        result.close()


def test_apply_must_be_defined() -> None:
    with SamplerChain([CustomSampler(), Sampler.greedy()]) as chain, pytest.raises(NotImplementedError):
        run(chain, [1.0])


def test_custom_sampler_belongs_to_one_chain() -> None:
    ban = Ban(1)
    with SamplerChain([ban]) as chain:
        with pytest.raises(ClosedError, match="belongs to the chain"):
            SamplerChain([ban])
        assert chain.remove(0) is ban
        with SamplerChain([ban, Sampler.greedy()]) as other:
            assert run(other, [0.0, 9.0]).token == 0
    with pytest.raises(ClosedError):
        SamplerChain([ban])
    closed = Ban(2)
    closed.close()
    with pytest.raises(ClosedError):
        SamplerChain([closed])


def test_standalone_custom_sampler_is_just_an_object() -> None:
    with Ban(1) as ban:
        assert (ban.name, ban.seed, ban.closed, ban.allows(3), ban.awaiting_trigger) == (
            "ban",
            None,
            False,
            True,
            False,
        )
        candidates = Candidates([1.0, 2.0])
        ban.apply(candidates)
        assert candidates[1] == (1, -np.inf, 0.0)
        with pytest.raises(SamplerError, match="copy the state of the chain"):
            ban.copy_to(Ban(1))
    assert ban.closed
    assert repr(ban) == "<Ban closed>"
    assert CustomSampler().name == "CustomSampler"


def test_objects_live_as_long_as_their_chain_and_are_freed_once() -> None:
    before = live_handles()
    ban = Ban(1)
    alive = weakref.ref(ban)
    chain = SamplerChain([ban, Sampler.greedy()])
    del ban
    gc.collect()
    assert alive() is not None
    assert run(chain, [0.0, 9.0]).token == 0
    clone = chain.clone()
    assert live_handles()["callback"] == before["callback"] + 2
    chain.close()
    assert alive() is None
    assert run(clone, [0.0, 9.0]).token == 0
    del chain, clone
    gc.collect()
    assert live_handles() == before


def test_cycle_of_chain_and_sampler_is_collected() -> None:
    before = live_handles()
    ban: Any = Ban(1)
    ban.chain = SamplerChain([ban, Sampler.greedy()])
    alive = weakref.ref(ban)
    del ban
    gc.collect()
    assert alive() is None
    assert live_handles() == before


def test_callback_that_uses_its_own_chain_is_refused() -> None:
    errors: list[str] = []

    def misuse(candidates: Candidates) -> None:
        for use in (chain.close, chain.clone, chain.reset, lambda: chain.remove(0), lambda: chain.accept(1)):
            try:
                use()
            except RuntimeError as error:
                errors.append(type(error).__name__)

    with SamplerChain([Function(misuse), Sampler.greedy()]) as chain:
        assert run(chain, [1.0, 2.0]).token == 1
    assert errors == ["ConcurrentUseError"] * 5
