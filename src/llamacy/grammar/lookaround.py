r"""Regular expressions that look around: ``(?=…)``, ``(?!…)``, ``(?<=…)``, ``(?<!…)``, ``\b`` and ``\B``.

A text is read once, from the left. What a condition asks of the text ahead becomes a duty: an automaton that the rest
of the text has to satisfy, carried along beside the position that asked for it. What a condition asks of the text
behind was watched from the start of the text on: each look-behind has a watcher, whose expression may begin at every
character. So conditions may stand anywhere and in each other, and what remains is a subset construction over positions
with duties.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from llamacy.grammar.alphabet import Alphabet, MaskEdges
from llamacy.grammar.automaton import Dfa, chars, empty_string, everything, from_edges
from llamacy.grammar.character_class import WORD
from llamacy.grammar.charset import ANY, CharSet
from llamacy.grammar.combine import universal_state
from llamacy.grammar.positions import Positions, shortened
from llamacy.grammar.regex_syntax import Anchor, Look
from llamacy.grammar.table import MAX_STATES, normal_form, too_large
from llamacy.grammar.work import spend, uncounted

# of `llamacy.grammar.work`: for a character in a state, or a condition
_STEPS = 4

# A duty is an automaton, by its number, in a state; all duties of a set have to be met.
Duties = frozenset[tuple[int, int]]
# Positions where the expression may go on, each with the duties collected on the way.
Threads = frozenset[tuple[int, Duties]]

_FREE: Duties = frozenset()
# What is behind: nothing, a character that is no part of a word, or one that is. `_AFTER` is enough to know for those
# expressions that don't ask.
_AT_START, _AFTER, _AFTER_WORD = range(3)


class _Part(NamedTuple):
    """The whole expression, or what is inside a condition.

    `watchers` are the look-behinds that it takes to evaluate the part, inner ones before outer ones.
    """

    number: int
    reads: list[CharSet | Anchor | Look | None]
    follow: list[tuple[int, ...]]
    first: tuple[int, ...]
    watchers: tuple[int, ...]
    asks_start: bool
    asks_word: bool

    def behind(self, context: int) -> int:
        """Give as much of a context as the part asks for."""
        if context == _AT_START and self.asks_start:
            return context
        return context if context == _AFTER_WORD and self.asks_word else _AFTER


class _Duty(NamedTuple):
    """The automaton of a duty: for each state and atom the next state, -1 when the duty can't be met any more."""

    dfa: Dfa
    table: list[list[int]]
    universal: int | None


class _State(NamedTuple):
    """Where the run over a text is."""

    context: int
    watched: tuple[Threads, ...]
    threads: Threads


def looking_language(positions: Positions, *, search: bool) -> Dfa:
    """Make the language of an expression with conditions of any kind.

    Parameters
    ----------
    positions
        The expression.
    search
        Whether it may be found anywhere in a text, or has to match all of it.

    Raises
    ------
    AutomatonSizeError
        It needs more than `MAX_STATES` states, or far too many steps to find out.
    """
    return _Walker(positions).whole(search=search)


class _Walker:
    """Runs an expression over all texts at once."""

    def __init__(self, positions: Positions) -> None:
        self._parts: list[_Part] = []
        self._part_of: dict[int, _Part] = {}
        self._watchers: list[_Part] = []
        self._watcher_of: dict[int, int] = {}
        self._duties: list[_Duty] = []
        self._duty_of: dict[Dfa, int] = {}
        self._moved: dict[tuple[Duties, int], Duties | None] = {}
        self._ahead: dict[tuple[int, int, tuple[Threads, ...], bool], Dfa] = {}
        self._n_steps = 0
        self._main = self._prepare(positions)
        self._alphabet = Alphabet(
            [WORD, ANY, *(read for part in self._parts for read in part.reads if isinstance(read, CharSet))]
        )
        mask = self._alphabet.mask
        self._n_atoms = mask[id(ANY)].bit_length()
        self._samples = [self._alphabet.spell(1 << atom).first for atom in range(self._n_atoms)]
        self._contexts = [_AFTER_WORD if WORD.has(sample) else _AFTER for sample in self._samples]
        self._masks = [
            [mask[id(read)] if isinstance(read, CharSet) else 0 for read in part.reads] for part in self._parts
        ]

    def _prepare(self, positions: Positions) -> _Part:
        """Number an expression and those inside its conditions, these first."""
        watchers: dict[int, None] = {}
        asks_start = Anchor.START in positions.reads
        asks_word = Anchor.WORD_BOUNDARY in positions.reads or Anchor.NO_WORD_BOUNDARY in positions.reads
        for read in positions.reads:
            if not isinstance(read, Look):
                continue
            inside = self._part_of.get(id(read))
            if inside is None:
                inside = self._prepare(Positions(shortened(read.item) if read.behind else read.item))
                self._part_of[id(read)] = inside
                if read.behind:
                    self._watcher_of[id(read)] = len(self._watchers)
                    self._watchers.append(inside)
            watchers.update(dict.fromkeys(inside.watchers))
            if read.behind:
                watchers[self._watcher_of[id(read)]] = None
            asks_start |= inside.asks_start
            asks_word |= inside.asks_word
        spend(sum(map(int.bit_count, positions.follow)))
        follow = [tuple(_members(after)) for after in positions.follow]
        first = tuple(_members(positions.first))
        part = _Part(len(self._parts), positions.reads, follow, first, tuple(sorted(watchers)), asks_start, asks_word)
        self._parts.append(part)
        return part

    def whole(self, *, search: bool) -> Dfa:
        """Make the language of the whole expression."""
        watched: dict[int, Threads] = {}
        for watcher in self._main.watchers:
            part = self._watchers[watcher]
            watched[watcher] = self._closed(part, _AT_START, watched, _beginning(part))
        return self._language(self._main, _AT_START, watched, anywhere=search, open_ended=search)

    def _language(
        self, part: _Part, context: int, watched: dict[int, Threads], *, anywhere: bool, open_ended: bool
    ) -> Dfa:
        """Make the language of what may come next.

        Parameters
        ----------
        part
            The expression to match.
        context, watched
            What is behind.
        anywhere
            Whether the expression may begin further on as well.
        open_ended
            Whether any text may follow a match.
        """
        start = self._state(
            part, part.behind(context), watched, self._closed(part, context, watched, _beginning(part)), open_ended
        )
        numbers = {start: 0}
        states = [start]
        edges: MaskEdges = []
        accepting: set[int] = set()
        for state in states:
            if any(position == 0 and self._met(duties) for position, duties in state.threads):
                accepting.add(len(edges))
            out: dict[int, int] = {}
            for atom in range(self._n_atoms):
                after = self._next(part, state, atom, anywhere=anywhere, open_ended=open_ended)
                if after is None:
                    continue
                number = numbers.get(after)
                if number is None:
                    number = numbers[after] = len(states)
                    if number >= MAX_STATES:
                        raise too_large()
                    states.append(after)
                out[number] = out.get(number, 0) | 1 << atom
            edges.append([(mask, number) for number, mask in out.items()])
            spend(_STEPS * self._n_atoms)
        return Dfa(*normal_form(edges, accepting, self._alphabet))

    def _state(
        self, part: _Part, context: int, watched: dict[int, Threads], threads: Threads, open_ended: bool
    ) -> _State:
        if open_ended and (0, _FREE) in threads:
            # Matched with no duty left: nothing that comes can change that.
            return _State(_AFTER, (), frozenset(((0, _FREE),)))
        return _State(context, tuple(watched[watcher] for watcher in part.watchers), threads)

    def _next(self, part: _Part, state: _State, atom: int, *, anywhere: bool, open_ended: bool) -> _State | None:
        """Read one character; None when no match is possible any more."""
        if open_ended and (0, _FREE) in state.threads:
            return state
        threads = self._advanced(part, state.threads, atom, open_ended=open_ended)
        if anywhere:
            threads.extend(_beginning(part))
        if not threads:
            return None
        context = part.behind(self._contexts[atom])
        watched: dict[int, Threads] = {}
        for watcher, before in zip(part.watchers, state.watched, strict=True):
            inside = self._watchers[watcher]
            begun = self._advanced(inside, before, atom, open_ended=False)
            begun.extend(_beginning(inside))
            watched[watcher] = self._closed(inside, context, watched, begun)
        closed = self._closed(part, context, watched, threads)
        return self._state(part, context, watched, closed, open_ended) if closed or anywhere else None

    def _advanced(self, part: _Part, threads: Threads, atom: int, *, open_ended: bool) -> list[tuple[int, Duties]]:
        """Move threads over a character, to positions whose conditions are still to be looked at."""
        masks = self._masks[part.number]
        advanced: list[tuple[int, Duties]] = []
        for position, duties in threads:
            self._n_steps += 1
            if position == 0:
                targets: tuple[int, ...] = (0,) if open_ended else ()
            else:
                targets = part.follow[position] if masks[position] >> atom & 1 else ()
            if not targets:
                continue
            left = self._duties_after(duties, atom) if duties else duties
            if left is not None:
                advanced.extend((target, left) for target in targets)
        return advanced

    def _duties_after(self, duties: Duties, atom: int) -> Duties | None:
        """Move duties over a character; None when one can't be met any more."""
        key = (duties, atom)
        if key in self._moved:
            return self._moved[key]
        left: list[tuple[int, int]] = []
        for number, state in duties:
            duty = self._duties[number]
            target = duty.table[state][atom]
            if target < 0:
                self._moved[key] = None
                return None
            if target != duty.universal:
                left.append((number, target))
        moved = self._moved[key] = frozenset(left)
        return moved

    def _met(self, duties: Duties) -> bool:
        """Say whether duties are met when the text ends here."""
        return all(state in self._duties[number].dfa.accepting for number, state in duties)

    def _closed(
        self, part: _Part, context: int, watched: dict[int, Threads], threads: Iterable[tuple[int, Duties]]
    ) -> Threads:
        """Pass all conditions that lie between here and the next character."""
        reads = part.reads
        work = list(threads)
        n_begun = len(work)
        seen = set(work)
        arrived: dict[int, set[Duties]] = {}
        while work:
            position, duties = work.pop()
            read = reads[position]
            if read is None or isinstance(read, CharSet):
                arrived.setdefault(position, set()).add(duties)
                continue
            self._n_steps += _STEPS
            for more in self._demanded(read, context, watched):
                for target in part.follow[position]:
                    thread = (target, duties | more)
                    if thread not in seen:
                        seen.add(thread)
                        work.append(thread)
        self._n_steps += n_begun + len(seen)
        spend(self._n_steps)
        self._n_steps = 0
        return frozenset(
            (position, duties) for position, found in arrived.items() for duties in _least_demanding(found)
        )

    def _demanded(self, read: Anchor | Look, context: int, watched: dict[int, Threads]) -> list[Duties]:
        """Give the sets of duties of which one has to be met for a condition to hold."""
        if read is Anchor.START:
            return [_FREE] if context == _AT_START else []
        if read is Anchor.END:
            return self._duty(empty_string())
        if isinstance(read, Anchor):
            begins_word = (context == _AFTER_WORD) == (read is Anchor.NO_WORD_BOUNDARY)
            return self._duty(_beginning_with_word() if begins_word else ~_beginning_with_word())
        inside = self._part_of[id(read)]
        if not read.behind:
            return self._duty(self._language_ahead(inside, context, watched, negated=read.negated))
        matches = [duties for position, duties in watched[self._watcher_of[id(read)]] if position == 0]
        if not read.negated:
            return matches
        # Of every way in which it could match one duty has to fail.
        failures = [
            [failed for number, state in duties for failed in self._duty(self._failing(number, state))]
            for duties in matches
        ]
        return [frozenset().union(*chosen) for chosen in product(*failures)]

    def _language_ahead(self, inside: _Part, context: int, watched: dict[int, Threads], *, negated: bool) -> Dfa:
        """Make the language that a look-ahead asks for, or rules out."""
        context = inside.behind(context)
        key = (inside.number, context, tuple(watched[watcher] for watcher in inside.watchers), negated)
        language = self._ahead.get(key)
        if language is None:
            if negated:
                language = ~self._language_ahead(inside, context, watched, negated=False)
            else:
                language = self._language(inside, context, watched, anywhere=False, open_ended=True)
            self._ahead[key] = language
        return language

    def _duty(self, dfa: Dfa) -> list[Duties]:
        """Give the ways to meet the duty to be in a language: none, one without any duty, or one."""
        if dfa.is_empty:
            return []
        if dfa.is_everything:
            return [_FREE]
        number = self._duty_of.get(dfa)
        if number is None:
            number = self._duty_of[dfa] = len(self._duties)
            table = [
                [next((target for charset, target in out if charset.has(sample)), -1) for sample in self._samples]
                for out in dfa.edges
            ]
            self._duties.append(_Duty(dfa, table, universal_state(dfa.edges, dfa.accepting)))
        return [frozenset(((number, 0),))]

    def _failing(self, number: int, state: int) -> Dfa:
        """Make the language of the texts that don't meet a duty in a state."""
        dfa = self._duties[number].dfa
        # With the state in the place of state 0, and state 0 at the end.
        place = list(range(dfa.size))
        place[state], place[0] = 0, state
        edges = [[(charset, place[target]) for charset, target in dfa.edges[old]] for old in place]
        return ~from_edges(edges, [place[old] for old in dfa.accepting])


@lru_cache(maxsize=1)
@uncounted
def _beginning_with_word() -> Dfa:
    return chars(WORD).concat(everything())


def _beginning(part: _Part) -> list[tuple[int, Duties]]:
    """Give the threads at the beginning of an expression."""
    return [(position, _FREE) for position in part.first]


def _least_demanding(found: set[Duties]) -> Iterable[Duties]:
    """Leave out sets of duties with another as a subset: whoever meets them meets that."""
    if len(found) == 1:
        return found
    return [duties for duties in found if not any(other < duties for other in found)]


def _members(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
