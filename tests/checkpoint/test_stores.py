"""What both stores do alike: against a plain list, and against each other."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from llamacy.checkpoint.disk import DiskStore
from llamacy.checkpoint.fingerprint import Fingerprint
from llamacy.checkpoint.format import file_size
from llamacy.checkpoint.prefix import Media, Prefix
from llamacy.checkpoint.ram import RamStore
from llamacy.checkpoint.snapshot import Snapshot
from llamacy.checkpoint.store import Store
from llamacy.errors import ClosedError

from .processes import FACTS, is_right, snapshot_of

OTHER = Fingerprint({**FACTS, "type_k": "Q8_0"})
TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=6)
OWNERS = st.sampled_from([FACTS, FACTS, FACTS, OTHER])

MakeStore = Callable[..., Store[Any]]


@pytest.fixture(params=["ram", "disk"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path, closing: Callable[[Any], Any]) -> MakeStore:
    """Return a function that makes a store of one kind for so many snapshots of `snapshot_of`."""

    def make(n: int = 100, like: Snapshot | None = None) -> Store[Any]:
        snapshot = like or snapshot_of([1, 2])
        if request.param == "ram":
            return closing(RamStore(n * snapshot.n_bytes))
        return closing(DiskStore(tmp_path / "store", n * file_size(snapshot)))

    return make


def found(store: Store[Any], tokens: list[int], **options: Any) -> list[int] | None:
    """Return the tokens of what a store finds."""
    hit = store.get(FACTS, Prefix(tokens), **options)
    if hit is None:
        return None
    assert is_right(hit.snapshot)
    return hit.snapshot.prefix.tokens.tolist()


def test_store_is_shown_with_what_it_holds(tmp_path: Path) -> None:
    snapshot = snapshot_of([1, 2])
    ram, disk = RamStore(1 << 20), DiskStore(tmp_path / "chats", 1 << 20)
    ram.put(snapshot)
    assert repr(ram) == f"<RamStore of 1 snapshots, {snapshot.n_bytes} of 1048576 bytes>"
    disk.put(snapshot)
    disk.put(snapshot_of([3]))
    assert repr(disk).startswith(f"<DiskStore {str(tmp_path / 'chats')!r} of 2 snapshots, ")
    for store in (ram, disk):
        store.close()
    assert (repr(ram), repr(disk)) == ("<RamStore closed>", "<DiskStore closed>")


def test_longest_beginning_is_found(make_store: MakeStore) -> None:
    store = make_store()
    for tokens in ([1], [1, 2, 3], [1, 2, 4], [2]):
        assert store.put(snapshot_of(tokens))
    assert found(store, [1, 2, 3, 5]) == [1, 2, 3]
    assert found(store, [1, 2, 5]) == [1]
    assert found(store, [3]) is None
    hit = store.get(FACTS, Prefix([1, 2, 3, 5]))
    assert hit is not None
    assert hit.n_elements == 3


def test_part_of_one_is_found_where_it_can_be_cut(make_store: MakeStore) -> None:
    store = make_store()
    store.put(snapshot_of([1, 2, 3, 4, 5]))
    store.put(snapshot_of([1]))
    hit = store.get(FACTS, Prefix([1, 2, 3, 7]), can_cut=True)
    assert hit is not None
    assert (hit.n_elements, hit.snapshot.prefix.tokens.tolist()) == (3, [1, 2, 3, 4, 5])
    assert found(store, [1, 2, 3, 7]) == [1]


@pytest.mark.parametrize("can_cut", [False, True])
def test_whole_prompt_is_found_only_with_logits(make_store: MakeStore, can_cut: bool) -> None:
    store = make_store()
    store.put(snapshot_of([1, 2, 3], logits=False))
    hit = store.get(FACTS, Prefix([1, 2, 3]), can_cut=can_cut)
    # a token is left to decode, for its logits
    assert (hit and hit.n_elements) == (2 if can_cut else None)
    store.put(snapshot_of([1, 2, 3], logits=True))
    hit = store.get(FACTS, Prefix([1, 2, 3]), can_cut=can_cut)
    assert (hit and hit.n_elements) == 3
    assert len(store) == 1


def test_beginning_that_ends_within_a_medium_is_not_found(make_store: MakeStore) -> None:
    store = make_store()
    one, other = (Prefix([1, 2, 3], [Media(2, key, 4, 4)]) for key in (b"one", b"other"))
    state = snapshot_of([1]).state
    store.put(Snapshot(FACTS, one, state))
    hit = store.get(FACTS, other, can_cut=True)
    assert hit is not None
    assert hit.n_elements == 2
    assert store.get(FACTS, other) is None
    store.put(Snapshot(FACTS, one.head(6), state))
    hit = store.get(FACTS, one)
    assert hit is not None
    assert hit.snapshot.prefix == one.head(6)
    assert hit.snapshot.prefix.media == one.media


def test_media_whose_elements_begin_alike_are_not_cut(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "llamacy.checkpoint.prefix._media_elements",
        lambda medium: np.array([-5, -5, -5, -len(medium.key)], np.int32).tobytes(),
    )
    store = make_store()
    one, other = (Prefix([1, 2, 3], [Media(2, key, 4, 4)]) for key in (b"one", b"other"))
    store.put(Snapshot(FACTS, one, snapshot_of([1]).state))
    hit = store.get(FACTS, other, can_cut=True)
    assert hit is not None
    assert hit.n_elements == 2


def test_least_recently_used_goes_first(make_store: MakeStore) -> None:
    store = make_store(3)
    for tokens in ([1, 1], [2, 2], [3, 3]):
        store.put(snapshot_of(tokens))
    assert found(store, [1, 1, 0]) == [1, 1]
    store.put(snapshot_of([2, 2]))  # again, which is a use
    store.put(snapshot_of([4, 4]))
    assert [found(store, [n, n]) for n in (1, 2, 3, 4)] == [[1, 1], [2, 2], None, [4, 4]]
    store.put(snapshot_of([5, 5]))
    assert [found(store, [n, n]) for n in (1, 2, 4, 5)] == [None, [2, 2], [4, 4], [5, 5]]
    assert store.stats.n_evicted == 2


def test_same_tokens_again_take_no_more_room(make_store: MakeStore) -> None:
    store = make_store()
    store.put(snapshot_of([1, 2]))
    n_bytes = store.n_bytes
    for _ in range(5):
        store.put(snapshot_of([1, 2]))
    assert (len(store), store.n_bytes) == (1, n_bytes)


def test_one_that_gets_logits_takes_its_own_place(make_store: MakeStore) -> None:
    store = make_store(2)
    store.put(snapshot_of([1, 2], logits=False))
    store.put(snapshot_of([3, 4]))
    store.put(snapshot_of([1, 2]))
    assert [found(store, [n, n + 1]) for n in (1, 3)] == [[1, 2], [3, 4]]
    assert store.stats.n_evicted == 0


def test_too_large_one_is_not_stored_and_nothing_goes(make_store: MakeStore) -> None:
    store = make_store(2)
    store.put(snapshot_of([1, 2]))
    assert not store.put(snapshot_of([3, 4], n_state_bytes=10_000))
    assert found(store, [1, 2]) == [1, 2]
    assert (store.stats.n_too_large, store.stats.n_evicted, store.stats.n_stored) == (1, 0, 1)


def test_longer_one_that_can_be_cut_takes_the_place_of_its_beginnings(make_store: MakeStore) -> None:
    store = make_store()
    for tokens in ([1], [1, 2], [2], [1, 3]):
        store.put(snapshot_of(tokens))
    store.put(snapshot_of([1, 2, 3]), can_cut=True)
    assert [found(store, tokens) for tokens in ([1], [1, 2], [2], [1, 3], [1, 2, 3])] == [
        None,
        None,
        [2],
        [1, 3],
        [1, 2, 3],
    ]


def test_chat_that_grows_pushes_nothing_else_out(make_store: MakeStore) -> None:
    store = make_store(2, like=snapshot_of([1] * 6))
    store.put(snapshot_of([2]))
    for n in range(1, 7):
        store.put(snapshot_of([1] * n), can_cut=True)
    assert found(store, [2]) == [2]
    assert (len(store), store.stats.n_evicted) == (2, 0)


def test_other_fingerprint_is_not_found(make_store: MakeStore) -> None:
    store = make_store()
    store.put(snapshot_of([1, 2]))
    store.put(snapshot_of([1], facts=OTHER))
    hit = store.get(OTHER, Prefix([1, 2, 3]), can_cut=True)
    assert hit is not None
    assert hit.snapshot.fingerprint == OTHER
    assert hit.n_elements == 1


def test_what_is_no_gain_is_neither_hit_nor_miss(make_store: MakeStore) -> None:
    store = make_store()
    store.put(snapshot_of([1, 2]))
    assert found(store, [1, 2, 3], n_least=2) is None
    assert found(store, [1, 2, 3], n_least=1) == [1, 2]
    stats = store.stats
    assert (stats.n_hits, stats.n_misses, stats.n_tokens_saved) == (1, 0, 2)
    assert found(store, [7], n_least=0) is None
    assert store.stats.n_misses == 1


def test_stats_tell_bytes_and_entries(make_store: MakeStore) -> None:
    store = make_store()
    sizes = 0
    for n in range(1, 5):
        snapshot = snapshot_of([n] * n, n_state_bytes=100 * n, logits=n % 2 == 0)
        store.put(snapshot)
        sizes += snapshot.n_bytes if isinstance(store, RamStore) else file_size(snapshot)
    stats = store.stats
    assert (stats.n_entries, stats.n_bytes, stats.n_stored) == (4, sizes, 4)
    assert stats.capacity_bytes == store.capacity_bytes
    assert stats.write_s > 0
    store.remove(snapshot_of([2, 2]))
    store.clear()
    assert (store.stats.n_entries, store.stats.n_bytes) == (0, 0)


def test_closed_store_refuses(make_store: MakeStore) -> None:
    store = make_store()
    store.close()
    store.close()
    assert store.closed
    for call in (lambda: store.put(snapshot_of([1])), lambda: store.get(FACTS, Prefix([1])), store.clear):
        with pytest.raises(ClosedError):
            call()


def test_many_threads_find_nothing_wrong(make_store: MakeStore) -> None:
    store = make_store(20)

    def work(seed: int) -> int:
        chosen, n_hits = random.Random(seed), 0
        for _ in range(200):
            tokens = [chosen.randrange(2) for _ in range(chosen.randrange(1, 7))]
            if chosen.random() < 0.5:
                store.put(snapshot_of(tokens, logits=chosen.random() < 0.5), can_cut=chosen.random() < 0.1)
                continue
            hit = store.get(FACTS, Prefix(tokens), can_cut=True)
            if hit is not None:
                n_hits += 1
                assert is_right(hit.snapshot)
                assert hit.snapshot.prefix.tokens.tolist()[: hit.n_elements] == tokens[: hit.n_elements]
        return n_hits

    with ThreadPoolExecutor(4) as pool:
        hits = list(pool.map(work, range(4)))
    assert min(hits) > 20
    assert store.stats.n_hits == sum(hits)
    assert store.stats.n_corrupt == 0
    assert store.n_bytes <= store.capacity_bytes


@pytest.mark.parametrize("capacity", [0, -5])
def test_capacity_that_is_none_is_refused(tmp_path: Path, capacity: int) -> None:
    for make in (lambda: RamStore(capacity), lambda: DiskStore(tmp_path, capacity)):
        with pytest.raises(ValueError, match="capacity_bytes"):
            make()


class StoreMachine(RuleBasedStateMachine):
    """Does the same to both stores and a list, and asks all."""

    prompts: Bundle[list[int]] = Bundle("prompts")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.ram, self.disk = RamStore(), DiskStore(self.folder)
        self.known: dict[tuple[bytes, tuple[int, ...]], bool] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(
        target=prompts,
        tokens=prompts | TOKENS,
        more=TOKENS | st.just([]),
        owner=OWNERS,
        logits=st.booleans(),
        can_cut=st.booleans(),
    )
    def put(self, tokens: list[int], more: list[int], owner: Fingerprint, logits: bool, can_cut: bool) -> list[int]:
        tokens = (tokens + more)[:9]
        snapshot = snapshot_of(tokens, n_state_bytes=9, logits=logits, facts=owner)
        key = owner.digest, tuple(tokens)
        for store in (self.ram, self.disk):
            assert store.put(snapshot, can_cut=can_cut)
        if can_cut:
            for n in range(len(tokens)):
                self.known.pop((owner.digest, tuple(tokens[:n])), None)
        self.known[key] = logits or self.known.get(key, False)
        return tokens

    @rule(tokens=prompts | TOKENS, owner=OWNERS)
    def remove(self, tokens: list[int], owner: Fingerprint) -> None:
        expected = self.known.pop((owner.digest, tuple(tokens)), None) is not None
        for store in (self.ram, self.disk):
            assert store.remove(snapshot_of(tokens, facts=owner)) == expected

    @rule()
    def reopen(self) -> None:
        self.disk.close()
        self.disk = DiskStore(self.folder)

    @rule(tokens=prompts | TOKENS, n=st.integers(1, 9), more=TOKENS | st.just([]), owner=OWNERS, can_cut=st.booleans())
    def get(self, tokens: list[int], n: int, more: list[int], owner: Fingerprint, can_cut: bool) -> None:
        tokens = tokens[:n] + more
        hits = [store.get(owner, Prefix(tokens), can_cut=can_cut) for store in (self.ram, self.disk)]
        answers = [hit and (hit.n_elements, hit.snapshot.prefix.tokens.tolist()) for hit in hits]
        assert answers[0] == answers[1]
        usable = 0
        for (digest, held), logits in self.known.items():
            same = 0
            while same < min(len(held), len(tokens)) and held[same] == tokens[same]:
                same += 1
            if digest != owner.digest or not (can_cut or same == len(held)):
                continue
            if same == len(tokens) and not (logits and same == len(held)):
                same = same - 1 if can_cut else 0
            usable = max(usable, same)
        assert (answers[0][0] if answers[0] else 0) == usable
        assert all(hit is None or is_right(hit.snapshot) for hit in hits)

    @invariant()
    def account_is_exact(self) -> None:
        assert len(self.ram) == len(self.disk) == len(self.known)
        assert self.ram.n_bytes == sum(9 + 4 * len(held) + 64 * logits for (_, held), logits in self.known.items())
        assert self.disk.n_bytes == sum(path.stat().st_size for path in self.folder.iterdir())


TestStores = StoreMachine.TestCase
TestStores.settings = settings(max_examples=120, stateful_step_count=25, deadline=None)
