"""Whether a text is one that a grammar describes, and where it stops being one.

All ways through the grammar are followed at once. What a way has still to do is a stack of positions, and a set of
stacks is kept as a tree from their tops down in which equal parts are one object, so that sets which arise again, as
they do after each element of a list, are recognised: then nothing is left to do but one look into a dictionary a
character. The idea of merged stacks is Tomita's (graph-structured stacks, 1985). Stacks that differ only in how often
a repetition was read are one, with the set of these numbers as bits, so that a text that can be divided in many ways
takes no more of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import length_hint
from threading import Lock

from llamacy.grammar.charset import CharSet
from llamacy.grammar.check import check
from llamacy.grammar.emit import character_class, literal
from llamacy.grammar.network import CALL, CHARACTER, COUNT, RETURN, SPLIT, Network
from llamacy.grammar.tree import Rules

_MAX_SETS = 100_000  # remembered from one text to the next
_FEW = 8  # members of a set that are looked at one by one
_SHOWN = 12  # of the things that an explanation lists in one line

_NOTHING = 0  # the set of no stacks
_END = 1  # the set of the empty stack
_BELOW = 2  # stands for whatever lies below
_IS_BELOW = -1  # its position

END_OF_TEXT = "end of text"


@dataclass(frozen=True)
class Mismatch:
    """Where a text left a grammar.

    Attributes
    ----------
    position
        How many characters fit.
    line, column
        The same, counted from 1.
    found
        The character that doesn't fit, or ``"end of text"`` when the text is too short.
    expected
        What would fit, as it would be written in GBNF (``'"'`` in quotes, ``[0-9]``), and ``"end of text"``.
    rules
        The rules that those belong to.
    """

    position: int
    line: int
    column: int
    found: str
    expected: tuple[str, ...]
    rules: tuple[str, ...]

    def __str__(self) -> str:
        shown = ", ".join(self.expected[:_SHOWN]) + (", …" if len(self.expected) > _SHOWN else "")
        rules = ", ".join(self.rules[:_SHOWN]) + (", …" if len(self.rules) > _SHOWN else "")
        found = self.found if self.found == END_OF_TEXT else repr(self.found)
        where = f" (in {'rule' if len(self.rules) == 1 else 'rules'} {rules})" if rules else ""
        return f"line {self.line}, column {self.column}: found {found}, expected {shown or 'nothing'}{where}"


class _LeftGrammarError(Exception):
    """No way through the grammar goes on with a character."""


class _State(dict[str, "_State"]):
    """A set of stacks, and what each character that was met makes of it."""

    __slots__ = ("_matcher", "stacks")

    def __init__(self, matcher: Matcher, stacks: int) -> None:
        super().__init__()
        self._matcher = matcher
        self.stacks = stacks

    def __missing__(self, char: str) -> _State:
        state = self[char] = self._matcher._step(self.stacks, char)
        return state


class Matcher:
    """What a grammar says about texts.

    It remembers what it worked out, so the second text takes less time than the first.

    Parameters
    ----------
    rules
        The grammar.

    Raises
    ------
    GrammarError
        The grammar is wrong, or speaks of tokens.

    Thread safety: any number of threads; one of them works at a time.
    """

    def __init__(self, rules: Rules) -> None:
        check(rules)
        self._network = Network(rules)
        self._orders: dict[tuple[int, ...], list[int]] = {}
        self._lock = Lock()
        self._forget()

    def _forget(self) -> None:
        # A set of stacks is a number; its members are (position, set of what lies below it) with a position only once.
        # A position beyond those of the network is one within a repetition, with a bit for each number of times that it
        # may have been read. Those of one repetition have no bit in common and differ in what lies below.
        self._members: list[tuple[tuple[int, int], ...]] = [(), ((RETURN, _NOTHING),), ((_IS_BELOW, _NOTHING),)]
        self._numbers = {members: number for number, members in enumerate(self._members)}
        self._counts: list[tuple[int, int]] = []
        self._count_numbers: dict[tuple[int, int], int] = {}
        self._unions: dict[frozenset[int], int] = {}
        self._expanded: dict[tuple[int, int], int] = {}
        self._closed: dict[int, int] = {_NOTHING: _NOTHING, _END: _END}
        self._moves_on: dict[tuple[int, str], list[tuple[int, list[int]]] | None] = {}
        self._states: dict[int, _State] = {}
        alive = self._network.alive[self._network.start]
        self._start = self._state(self._push(self._network.start, _END) if alive else _NOTHING)

    # questions

    def matches(self, text: str) -> bool:
        """Say whether a text is one of the grammar."""
        with self._lock:
            state, n_read = self._read(text)
            return n_read == len(text) and self._may_end(state)

    def accepts_prefix(self, text: str) -> bool:
        """Say whether a text is the beginning of one of the grammar, or all of it."""
        with self._lock:
            state, n_read = self._read(text)
            return n_read == len(text) and state.stacks != _NOTHING

    def explain(self, text: str) -> Mismatch | None:
        """Say where a text leaves the grammar, and what was expected there; None when it is one of the grammar."""
        with self._lock:
            state, n_read = self._read(text)
            if n_read == len(text) and self._may_end(state):
                return None
            expected, rules = self._expected(state)
        before = text[:n_read]
        return Mismatch(
            position=n_read,
            line=before.count("\n") + 1,
            column=n_read - before.rfind("\n"),
            found=text[n_read] if n_read < len(text) else END_OF_TEXT,
            expected=expected,
            rules=rules,
        )

    def _read(self, text: str) -> tuple[_State, int]:
        """Read as much of a text as fits; return what is left to do then, and how much it was."""
        if len(self._members) + len(self._moves_on) > _MAX_SETS:
            self._forget()
        state = self._start
        chars = iter(text)
        try:
            for char in chars:
                state = state[char]
        except _LeftGrammarError:
            return state, len(text) - length_hint(chars) - 1
        return state, len(text)

    def _may_end(self, state: _State) -> bool:
        return (RETURN, _NOTHING) in self._members[self._close(state.stacks)]

    def _expected(self, state: _State) -> tuple[tuple[str, ...], tuple[str, ...]]:
        network = self._network
        expected: dict[str, None] = {}
        rules: dict[str, None] = {}
        ends = False
        for position, _ in self._members[self._close(state.stacks)]:
            if position == RETURN:
                ends = True
                continue
            text = network.text[position]
            index = network.index[position]
            expected[character_class(text) if isinstance(text, CharSet) else literal(text[index : index + 60])] = None
            rules[network.rule[position]] = None
        if ends:
            expected[END_OF_TEXT] = None
        return tuple(expected), tuple(rules)

    # sets of stacks

    def _number(self, members: tuple[tuple[int, int], ...]) -> int:
        number = self._numbers.get(members)
        if number is None:
            number = self._numbers[members] = len(self._members)
            self._members.append(members)
        return number

    def _push(self, position: int, stacks: int) -> int:
        return self._number(((position, stacks),)) if position != RETURN else stacks

    def _unite(self, parts: Iterable[int]) -> int:
        """Return the union of sets, however many they are."""
        distinct = set(parts)
        distinct.discard(_NOTHING)
        if len(distinct) < 2:
            return distinct.pop() if distinct else _NOTHING
        if len(distinct) == 2:  # those that are met again and again
            group = frozenset(distinct)
            if group not in self._unions:
                self._find_unions([group])
            return self._unions[group]
        missing: list[frozenset[int]] = []
        members = self._merge(distinct, missing)
        if missing:
            self._find_unions(missing)
            members = self._merge(distinct, [])
        return self._number(members)

    def _find_unions(self, todo: list[frozenset[int]]) -> None:
        while todo:
            missing: list[frozenset[int]] = []
            members = self._merge(todo[-1], missing)
            if missing:
                todo += missing
            else:
                self._unions[todo.pop()] = self._number(members)

    def _merge(self, group: Collection[int], missing: list[frozenset[int]]) -> tuple[tuple[int, int], ...]:
        """Return the members of a union; first those unions that have to be known for it are added to `missing`."""
        n_positions = len(self._network.kind)
        if len(group) == 2:
            one, other = [self._members[part] for part in group]
            if one[-1][0] < n_positions or other[-1][0] < n_positions:  # most have no repetitions to be compared
                merged = dict(one)
                for position, below in other:
                    there = merged.setdefault(position, below)
                    if there != below:
                        merged[position] = self._known_union(frozenset((there, below)), missing)
                return tuple(sorted(merged.items()))
        merged = {}
        several: dict[int, set[int]] = {}
        loops: dict[int, dict[int, int]] = {}
        for part in group:
            for position, below in self._members[part]:
                if position >= n_positions:
                    loop, times = self._counts[position - n_positions]
                    masks = loops.setdefault(loop, {})
                    masks[below] = masks.get(below, 0) | times
                elif merged.setdefault(position, below) != below:
                    several.setdefault(position, {merged[position]}).add(below)
        for position, belows in several.items():
            merged[position] = self._known_union(frozenset(belows), missing)
        members = list(merged.items())
        for loop, masks in loops.items():
            if len(masks) > 1:
                masks = self._disjoint(masks, missing)
            members += [(self._counted(loop, times), below) for below, times in masks.items()]
        return tuple(sorted(members))

    def _disjoint(self, masks: dict[int, int], missing: list[frozenset[int]]) -> dict[int, int]:
        """Return the numbers of times with what lies below, each only once, given those of several sets."""
        seen = shared = 0
        for times in masks.values():
            shared |= seen & times
            seen |= times
        if not shared:
            return masks
        found: dict[int, int] = {}
        belows: dict[int, set[int]] = {}
        for below, times in masks.items():
            if times & ~shared:
                found[below] = times & ~shared
            for bit in _bits(times & shared):
                belows.setdefault(bit, set()).add(below)
        together: dict[frozenset[int], int] = {}
        for bit, those in belows.items():
            key = frozenset(those)
            together[key] = together.get(key, 0) | 1 << bit
        for key, times in together.items():
            below = self._known_union(key, missing)
            found[below] = found.get(below, 0) | times
        return found

    def _known_union(self, group: frozenset[int], missing: list[frozenset[int]]) -> int:
        union = self._unions.get(group)
        if union is None:
            missing.append(group)
            return _NOTHING
        return union

    # moves

    def _state(self, stacks: int) -> _State:
        state = self._states.get(stacks)
        if state is None:
            state = self._states[stacks] = _State(self, stacks)
        return state

    def _step(self, stacks: int, char: str) -> _State:
        """Read a character."""
        members = self._members[stacks]
        if len(members) > _FEW or self._closed.get(stacks) == stacks:
            # Many ways, as through a repetition that was read a varying number of times, are fewer when the characters
            # on top of them are what they are told apart by; so it goes on with these.
            result = self._close(self._read_by(self._close(stacks), char))
            self._closed[result] = result
        else:
            result = self._unite([self._read_at(position, below, char) for position, below in members])
        if result == _NOTHING:
            raise _LeftGrammarError
        return self._state(result)

    def _read_at(self, position: int, below: int, char: str) -> int:
        """Return what a character makes of the stacks with a position on top."""
        if position == RETURN:
            return _NOTHING
        key = (position, char)
        if key in self._moves_on:
            moves = self._moves_on[key]
        else:
            moves = self._moves_on[key] = self._find_moves(position, char)
        if moves is None:
            parts = [self._read_by(self._expand(position, below), char)]
        else:
            parts = []
            for follow, path in moves:
                rest = below
                for later in path:
                    rest = self._number(((later, rest),))
                parts.append(self._push(follow, rest))
        if self._is_nullable(position):
            parts.append(self._read_by(self._close(below), char))
        return self._unite(parts)

    def _read_by(self, stacks: int, char: str) -> int:
        """Return what a character makes of stacks whose tops are characters."""
        network = self._network
        return self._unite(
            [
                self._push(network.follow[position], below)
                for position, below in self._members[stacks]
                if position != RETURN and network.reads(position, char)
            ]
        )

    def _find_moves(self, position: int, char: str) -> list[tuple[int, list[int]]] | None:
        """Return where a character leads from a position, whatever lies below it.

        Returns
        -------
        list or None
            Positions, each with those that come to lie between it and what was below, from the bottom up. None when
            these are not single stacks.
        """
        network = self._network
        moves = []
        for top, rest in self._members[self._expand(position, _BELOW)]:
            if not network.reads(top, char):
                continue
            path = []
            while rest != _BELOW:
                members = self._members[rest]
                if len(members) != 1:
                    return None
                ((later, rest),) = members
                path.append(later)
            moves.append((network.follow[top], path[::-1]))
        return moves

    def _close(self, stacks: int) -> int:
        """Bring characters, or the end, to the top of all stacks."""
        closed = self._closed
        todo = [] if stacks in closed else [stacks]
        while todo:
            number = todo[-1]
            members = self._members[number]
            missing = [below for at, below in members if at != RETURN and below not in closed and self._is_nullable(at)]
            if missing:
                todo += missing
                continue
            todo.pop()
            parts = [
                _END if position == RETURN else closed[below]
                for position, below in members
                if position == RETURN or self._is_nullable(position)
            ]
            if len(members) > _FEW:  # many at once, which have most of what they lead to in common
                n_positions = len(self._network.kind)
                parts.append(self._expand_all([member for member in members if RETURN < member[0] < n_positions]))
                members = tuple([member for member in members if member[0] >= n_positions])
            parts += [self._expand(position, below) for position, below in members]
            closed[number] = self._unite(parts)
        return closed[stacks]

    def _is_nullable(self, position: int) -> bool:
        network = self._network
        n_positions = len(network.kind)
        if position < n_positions:
            return network.nullable[position]
        loop, times = self._counts[position - n_positions]
        return network.nullable[network.follow[loop]] and self._may_leave(loop, times)

    def _may_leave(self, loop: int, times: int) -> bool:
        """Say whether a repetition may end after one of some numbers of times."""
        return times >> self._network.bounds[loop][0] != 0 or self._network.nullable[self._network.entry[loop]]

    def _after(self, loop: int, times: int, below: int) -> int:
        """Return the stacks of a repetition that was read once more than one of some numbers of times."""
        minimum, maximum = self._network.bounds[loop]
        times <<= 1
        if maximum is None:
            if times >> minimum > 1:  # more than enough is as good as enough
                times = times & (1 << minimum) - 1 | 1 << minimum
            return self._push(self._counted(loop, times), below)
        more = times & (1 << maximum) - 1
        if more == times:
            return self._push(self._counted(loop, times), below)
        last = self._push(self._network.follow[loop], below)
        return self._unite([self._push(self._counted(loop, more), below), last]) if more else last

    def _counted(self, loop: int, times: int) -> int:
        """Return the position within a repetition for a set of numbers of times."""
        counted = (loop, times)
        number = self._count_numbers.get(counted)
        if number is None:
            number = self._count_numbers[counted] = len(self._network.kind) + len(self._counts)
            self._counts.append(counted)
        return number

    def _expand(self, position: int, below: int) -> int:
        """Bring characters to the top of a stack as far as what lies below its top is not needed."""
        network = self._network
        if position == RETURN:
            return _NOTHING
        key = (position, below)
        result = self._expanded.get(key)
        if result is not None:
            return result
        if position >= len(network.kind):
            loop, times = self._counts[position - len(network.kind)]
            result = self._expand(network.entry[loop], self._after(loop, times, below))
            if self._may_leave(loop, times):
                result = self._unite([result, self._expand(network.follow[loop], below)])
        elif network.kind[position] == CHARACTER:
            result = self._push(position, below)
        else:
            result = self._expand_all([(position, below)])
        self._expanded[key] = result
        return result

    def _expand_all(self, members: Sequence[tuple[int, int]]) -> int:
        network = self._network
        stacks = dict(members)
        positions = tuple(stacks)
        order = self._orders.get(positions)
        if order is None:
            order = network.leftmost(positions)
            if len(positions) == 1:
                self._orders[positions] = order
        several: dict[int, list[int]] = {}  # what is still to be united when its position is come to
        tops: dict[int, int] = {}
        changed = True
        while changed:  # more than once where positions lead to each other
            changed = False
            done = set()
            for here in order:
                done.add(here)
                rest = stacks.get(here, _NOTHING)
                if rest == _NOTHING:
                    continue
                if here in several:
                    rest = stacks[here] = self._unite(several.pop(here))
                if network.kind[here] == CHARACTER:
                    tops[here] = rest
                    continue
                for other, its_rest in self._moves(here, rest):
                    before = stacks.get(other, _NOTHING)
                    if before == _NOTHING:
                        stacks[other] = its_rest
                        changed = changed or other in done
                    elif before != its_rest:
                        if other in done:
                            after = stacks[other] = self._unite((before, its_rest))
                            changed = changed or after != before
                        else:
                            several.setdefault(other, [before]).append(its_rest)
        return self._number(tuple(sorted(tops.items())))

    def _moves(self, position: int, rest: int) -> list[tuple[int, int]]:
        """Return where a position that reads no character goes on, with what lies below then."""
        network = self._network
        kind = network.kind[position]
        if kind == SPLIT:
            return [(target, rest) for target in network.targets[position] if target != RETURN]
        entry, follow = network.entry[position], network.follow[position]
        moves = []
        if kind == CALL:
            moves.append((entry, self._push(follow, rest)))
        elif kind == COUNT and network.bounds[position][1] != 0:
            moves.append((entry, self._after(position, 1, rest)))
        leaves = network.nullable[entry] if kind == CALL else self._may_leave(position, 1)
        if leaves and follow != RETURN:
            moves.append((follow, rest))
        return moves


def _bits(mask: int) -> list[int]:
    """Return which bits of a number are set."""
    return [bit for bit, digit in enumerate(reversed(f"{mask:b}")) if digit == "1"]
