"""Position automata of regular expressions.

Glushkov (1961), "The abstract theory of automata": the states are the places of an expression where a character is
read, so an automaton without empty moves comes out directly. Conditions such as ``^`` or a look-ahead are positions as
well, which read nothing; whoever walks the automaton says where they hold.
"""

from __future__ import annotations

from llamacy.grammar.charset import CharSet
from llamacy.grammar.regex_syntax import Alternatives, Anchor, Look, Loop, Node, Sequence
from llamacy.grammar.table import MAX_STATES, too_large

MATCH, END, SEEKER = 1, 2, 4


class Positions:
    """The positions of an expression.

    Sets of positions are `int`s with a bit for each. Position 0 stands for the end of the expression: a text that gets
    there matches (`MATCH`). Positions 1 and 2 are for those who walk the automaton: a match that nothing may come after
    (`END`), and a place before the expression (`SEEKER`).

    Attributes
    ----------
    reads
        What each position reads or demands; None for positions that stand for something else.
    follow
        The positions that may come after each.
    first
        The positions that may come first.
    chains
        Sets of positions of which one is enough, for it accepts all that the others accept: the same place in copies of
        a repeated expression, from where fewer or more rounds may follow. True when that is the highest one, False when
        it is the lowest.
    """

    __slots__ = ("chains", "first", "follow", "reads")

    reads: list[CharSet | Anchor | Look | None]
    follow: list[int]
    first: int
    chains: list[tuple[int, bool]]

    def __init__(self, node: Node) -> None:
        self.chains = []
        self.reads = [None, None, None]
        self.follow = [0, 0, 0]
        self.first = self._lay(node)

    def _lay(self, node: Node) -> int:
        """Lay an expression out from its end to its beginning; no recursion, for expressions may be deep.

        `entry` is where that begins which comes next: what may follow the part that is laid now.
        """
        reads, follow = self.reads, self.follow
        entry = MATCH
        work: list[Node | _Branching | _Copying | _Circling] = [node]
        while work:
            task = work.pop()
            if isinstance(task, (CharSet, Anchor, Look)):
                if len(reads) > MAX_STATES:
                    raise too_large("positions in a regular expression")
                entry, added = 1 << len(reads), entry
                reads.append(task)
                follow.append(added)
            elif isinstance(task, Sequence):
                work.extend(task.items)
            elif isinstance(task, Alternatives):
                work.append(_Branching(task, entry))
            elif isinstance(task, Loop):
                if task.maximum is None:
                    # A position that reads nothing stands for the beginning of the loop until that is known.
                    circle = 1 << len(reads)
                    work.append(_Circling(task, entry, len(reads)))
                    work.append(task.item)
                    reads.append(None)
                    follow.append(0)
                    entry |= circle
                else:
                    work.append(_Copying(task.item, task.minimum, task.maximum - task.minimum, entry, 0))
            elif isinstance(task, _Branching):
                if task.n_laid:
                    task.begins |= entry
                if task.n_laid == len(task.items):
                    entry = task.begins
                else:
                    entry = task.after
                    work.append(task)
                    work.append(task.items[task.n_laid])
                    task.n_laid += 1
            elif isinstance(task, _Circling):
                circle = 1 << task.position
                entry &= ~circle
                for position in range(task.position + 1, len(reads)):
                    if follow[position] & circle:
                        follow[position] = follow[position] & ~circle | entry
                if not task.loop.minimum:
                    entry |= task.after
                elif task.loop.minimum > 1:
                    work.append(_Copying(task.loop.item, task.loop.minimum - 1, 0, entry, task.position + 1))
            else:
                if task.in_optional:
                    entry |= task.after
                    if not task.optional:
                        self._chain(task.begin, task.n_copies, highest=True)
                elif task.loop_begin and not task.mandatory:
                    self._chain(task.loop_begin, task.n_copies + 1, highest=False)
                if task.n_positions == len(reads) or not task.optional + task.mandatory:
                    continue
                task.n_positions = len(reads)
                task.begin = task.begin or len(reads)
                task.in_optional = task.optional > 0
                if task.in_optional:
                    task.optional -= 1
                else:
                    task.mandatory -= 1
                work.append(task)
                work.append(task.item)
        return entry

    def _chain(self, begin: int, n_copies: int, *, highest: bool) -> None:
        """Note the same places in copies that were laid one after the other, the last one just now."""
        width = (len(self.reads) - begin) // n_copies
        if width and n_copies > 1:
            every = ((1 << width * n_copies) - 1) // ((1 << width) - 1) << begin
            self.chains.extend((every << place, highest) for place in range(width))


class _Branching:
    """Alternatives being laid, each with the same positions after it."""

    __slots__ = ("after", "begins", "items", "n_laid")

    def __init__(self, node: Alternatives, after: int) -> None:
        self.items = node.items
        self.after = after
        self.begins = 0
        self.n_laid = 0


class _Circling:
    """A loop without limit, whose body is being laid once."""

    __slots__ = ("after", "loop", "position")

    def __init__(self, loop: Loop, after: int, position: int) -> None:
        self.loop = loop
        self.after = after
        self.position = position


class _Copying:
    """Copies of an expression being laid: the optional ones, which come last in a text, then those that must be there.

    Instead of each optional copy, what comes after all of them may come. A copy that lays no position ends the work:
    more of nothing is nothing.
    """

    __slots__ = (
        "after", "begin", "in_optional", "item", "loop_begin", "mandatory", "n_copies", "n_positions", "optional",
    )  # fmt: skip

    def __init__(self, item: Node, mandatory: int, optional: int, after: int, loop_begin: int) -> None:
        self.item = item
        self.mandatory = mandatory
        self.optional = optional
        self.after = after
        self.in_optional = False
        self.begin = self.n_positions = 0
        # A loop without limit that was laid before, if the copies are the rounds that it needs besides.
        self.loop_begin = loop_begin
        self.n_copies = mandatory if loop_begin else optional


def shortened(node: Node) -> Node:
    """Cut loops at the front down to their minimum: what is searched for may as well start at the last rounds."""
    if isinstance(node, Alternatives):
        return Alternatives(tuple(map(_shortened, node.items)))
    return _shortened(node)


def _shortened(node: Node) -> Node:
    front = node.items[0] if isinstance(node, Sequence) and node.items else node
    if not isinstance(front, Loop) or front.maximum == front.minimum:
        return node
    shorter = Loop(front.item, front.minimum, front.minimum)
    return Sequence((shorter, *node.items[1:])) if isinstance(node, Sequence) else shorter
