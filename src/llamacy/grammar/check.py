"""What a grammar must not say: rules that are missing, begin with themselves, never end, or are too much for llama.cpp.

The refusals and their limits are those of `llamacy.core.grammar_guard`, which examines what llama.cpp makes of a
grammar: there every repetition is written out as rules. Here a repetition is one rule that knows how many it stands
for. Only rules that never end are refused here alone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import NoReturn, cast

from llamacy.errors import GrammarError
from llamacy.grammar.tree import Choice, Node, Ref, Repeat, Rules

MAX_DEPTH = 1_024  # rules that begin with a rule that begins with a rule …
MAX_VISITS = 10_000_000  # steps of llama.cpp's search for left recursion
MAX_WAYS = 16_384  # ways to go on at any point, each of which is a stack at run time

_TERMINAL = -1
_Symbols = list[tuple[int, int]]  # and how often each stands there
# tuples of numbers are nothing to the garbage collector, which large grammars would keep busy
_Alternative = tuple[tuple[int, int], ...]
_Begins = tuple[tuple[int, bool], ...]
_CHARACTER = (_TERMINAL, 1)


def check(rules: Rules, error: Callable[[str, str], GrammarError] | None = None, stacked: Container[int] = ()) -> None:
    """Refuse a grammar that can't be used.

    Parameters
    ----------
    rules
        The grammar.
    error
        Makes the error for a rule from its name and the message.
    stacked
        Identities of the repetitions that are written without a group around them where they are repeated, as in
        ``"a"*?``: llama.cpp makes no rule of those.

    Raises
    ------
    GrammarError
        The grammar has no root rule; or a rule is undefined, begins with itself, never comes to a character, never
        ends, or has more ways to go on than llama.cpp can follow.
    """
    if rules.root not in rules.rules:
        there = ", ".join(sorted(rules.rules)[:20]) or "none"
        raise GrammarError(f"the grammar has no rule {rules.root!r} to begin with; its rules are: {there}")
    _Examination(rules, error or (lambda _, message: GrammarError(message)), stacked).run()


class _Examination:
    """The rules that llama.cpp makes of a grammar, and what is asked about them.

    Attributes
    ----------
    alternatives
        Of each rule, its alternatives. A symbol is a rule or `_TERMINAL`.
    copies
        Of each rule, how many rules of llama.cpp it stands for; they end with each other.
    owners
        Of each rule, the name of the rule of the grammar that it belongs to.
    """

    def __init__(self, rules: Rules, error: Callable[[str, str], GrammarError], stacked: Container[int]) -> None:
        self.error = error
        self._stacked = stacked
        self.alternatives: list[tuple[_Alternative, ...]] = []
        self.copies: list[int] = []
        self.owners: list[str] = []
        self._numbers = {name: self._new_rule(name) for name in rules.rules}
        self._todo: list[tuple[int, Node]] = [(self._numbers[name], node) for name, node in rules.rules.items()]
        while self._todo:
            rule, node = self._todo.pop()
            parts = node if type(node) is Choice else (node,)
            self.alternatives[rule] = tuple([tuple(self._sequence(rule, part)) for part in parts])

    # from trees to rules

    def _new_rule(self, owner: str) -> int:
        self.alternatives.append(())
        self.copies.append(1)
        self.owners.append(owner)
        return len(self.owners) - 1

    def _sequence(self, rule: int, node: Node) -> _Symbols:
        found: _Symbols = []
        items = cast("tuple[Node, ...]", node) if type(node) is tuple else (node,)
        for item in items:
            if type(item) is Repeat:
                found += self._repetition(rule, item)
            elif type(item) is Ref or type(item) is tuple or type(item) is Choice:
                found.append((self._symbol(rule, item), 1))
            elif item != "":
                found.append(_CHARACTER)
        return found

    def _repetition(self, rule: int, node: Repeat) -> _Symbols:
        marks = [node]
        while type(node.item) is Repeat and id(node.item) in self._stacked:
            node = node.item
            marks.append(node)
        found: _Symbols = [(self._symbol(rule, node.item), 1)] if node.item != "" else []
        for mark in reversed(marks):
            found = self._repeated(rule, found, mark.minimum, mark.maximum)
        return found

    def _repeated(self, rule: int, item: _Symbols, minimum: int, maximum: int | None) -> _Symbols:
        if not item:
            return []
        if minimum == 0:
            found = []
        elif len(item) == 1:
            found = [(item[0][0], item[0][1] * minimum)]
        else:
            found = item * minimum
        if maximum != minimum:
            rest = self._new_rule(self.owners[rule])
            self.alternatives[rest] = ((*item, (rest, 1)) if maximum is None else tuple(item), ())
            if maximum is not None:
                self.copies[rest] = maximum - minimum
            found = [*found, (rest, 1)]
        return found

    def _symbol(self, rule: int, node: Node) -> int:
        if type(node) is Ref:
            name = str(node)
            if name not in self._numbers:
                raise self.error(name, f"rule {name!r} is not defined")
            return self._numbers[name]
        if type(node) in (tuple, Choice, Repeat):
            group = self._new_rule(self.owners[rule])
            self._todo.append((group, node))
            return group
        return _TERMINAL

    # questions

    def run(self) -> None:
        # llama.cpp takes only a rule with an empty alternative for one that may be empty
        has_empty = [any(not symbols for symbols in alternatives) for alternatives in self.alternatives]
        nullable = self._made_of(terminals=False)
        edges = [self._leftmost(rule, has_empty) for rule in range(len(has_empty))]
        order, component = _components(edges)
        self._refuse_cycles(edges, component, growing=False)
        self._bound_search(edges, has_empty, order)
        edges = [self._leftmost(rule, nullable) for rule in range(len(nullable))]
        order, component = _components(edges)
        self._refuse_cycles(edges, component, growing=True)
        self._bound_ways(nullable, order, component)
        ending = self._made_of(terminals=True)
        for rule, ends in enumerate(ending):
            if not ends:
                self._refuse(rule, f"rule {self.owners[rule]!r} never ends: each way through it needs it once more")

    def _refuse(self, rule: int, message: str) -> NoReturn:
        raise self.error(self.owners[rule], message)

    def _made_of(self, *, terminals: bool) -> list[bool]:
        """Return which rules have an alternative of nothing but such rules, and characters when `terminals` is set."""
        found = [False] * len(self.alternatives)
        uses: list[list[int]] = [[] for _ in found]  # of each rule: the alternatives that it stands in
        rule_of: list[int] = []
        left: list[int] = []  # of each alternative: symbols that are not known to be such
        todo: list[int] = []
        for rule, alternatives in enumerate(self.alternatives):
            for symbols in alternatives:
                n_missing = 0
                for symbol, _ in symbols:
                    if symbol != _TERMINAL:
                        uses[symbol].append(len(rule_of))
                        n_missing += 1
                    elif not terminals:
                        n_missing += 1
                rule_of.append(rule)
                left.append(n_missing)
                if not n_missing and not found[rule]:
                    found[rule] = True
                    todo.append(rule)
        while todo:
            for alternative in uses[todo.pop()]:
                left[alternative] -= 1
                rule = rule_of[alternative]
                if not left[alternative] and not found[rule]:
                    found[rule] = True
                    todo.append(rule)
        return found

    def _leftmost(self, rule: int, nullable: Sequence[bool]) -> _Begins:
        """Return the rules that a rule may begin with, each with whether something follows it."""
        found = []
        for symbols in self.alternatives[rule]:
            last = len(symbols) - 1
            for index, (symbol, times) in enumerate(symbols):
                if symbol == _TERMINAL:
                    break
                follows = index < last or times > 1 or self.copies[rule] > 1
                found.append((symbol, follows))
                if not nullable[symbol]:
                    break
                if times > 1:
                    found += [(symbol, follows)] * (times - 1)
        return tuple(found)

    def _refuse_cycles(self, edges: list[_Begins], component: list[int], *, growing: bool) -> None:
        """Refuse a rule that begins with itself; with `growing`, only when that leaves something to do each time."""
        for rule, begins in enumerate(edges):
            for other, follows in begins:
                if component[other] == component[rule] and (follows or not growing):
                    self._refuse(rule, f"left recursion: rule {self.owners[rule]!r} begins with itself")

    def _bound_search(self, edges: list[_Begins], nullable: list[bool], order: list[int]) -> None:
        visits = [1] * len(edges)
        depth = [1] * len(edges)
        total = 0
        for rule in order:
            once = 1 + sum(visits[other] for other, _ in edges[rule])
            deep = 1 + max((depth[other] for other, _ in edges[rule]), default=0)
            copies = self.copies[rule]
            visits[rule] = once
            depth[rule] = deep
            in_all = once * copies
            if self._goes_on(rule, nullable):  # each copy is looked at from the one before it
                visits[rule] = once * copies
                depth[rule] = deep + copies - 1
                in_all = once * copies * (copies + 1) // 2
            total += in_all
            if depth[rule] > MAX_DEPTH or total > MAX_VISITS:
                self._refuse(rule, f"rule {self.owners[rule]!r} begins with too many rules inside each other")

    def _goes_on(self, rule: int, nullable: Sequence[bool]) -> bool:
        """Say whether a rule stands for several, and the next of them may begin where the one before does."""
        if self.copies[rule] == 1:
            return False
        return all(symbol != _TERMINAL and nullable[symbol] for symbol, _ in self.alternatives[rule][0])

    def _bound_ways(self, nullable: list[bool], order: list[int], component: list[int]) -> None:
        """Bound the stacks at run time, and refuse rules that never come to a character."""
        ways = [0] * len(nullable)  # ways to begin a rule; those of a component are added up
        begins = [False] * len(nullable)  # some way begins with a character
        for group in _runs(order, component):
            total = 0
            alive = False
            for rule in group:
                here = 0
                for symbols in self.alternatives[rule]:
                    here += 1
                    for symbol, times in symbols:
                        if symbol == _TERMINAL:
                            alive = True
                            break
                        if component[symbol] != component[rule]:
                            here += ways[symbol] * (times if nullable[symbol] else 1)
                            alive = alive or begins[symbol]
                        if not nullable[symbol]:
                            break
                total += here * (self.copies[rule] if self._goes_on(rule, nullable) else 1)
            for rule in group:
                ways[rule] = total
                begins[rule] = alive
                if not alive and not nullable[rule]:
                    self._refuse(rule, f"rule {self.owners[rule]!r} never comes to a character")
        for rule in range(len(nullable)):
            if self._most_ways(rule, ways, nullable) > MAX_WAYS:
                self._refuse(rule, f"in rule {self.owners[rule]!r} there are more than {MAX_WAYS} ways to go on")

    def _most_ways(self, rule: int, ways: list[int], nullable: list[bool]) -> int:
        most = ways[rule]
        for symbols in self.alternatives[rule]:
            here = 1
            for symbol, times in reversed(symbols):
                if symbol == _TERMINAL:
                    here = 1
                elif nullable[symbol]:
                    here += ways[symbol] * times
                else:
                    here = ways[symbol]
                most = max(most, here)
        return most


def _runs(order: list[int], component: list[int]) -> Iterable[list[int]]:
    """Return the components in order."""
    run: list[int] = []
    for rule in order:
        if run and component[rule] != component[run[0]]:
            yield run
            run = []
        run.append(rule)
    if run:
        yield run


def _components(edges: list[_Begins]) -> tuple[list[int], list[int]]:
    """Group rules that begin with each other (Tarjan).

    Returns
    -------
    tuple
        The rules, each after those that it begins with; and of each rule the component that it is in.
    """
    order: list[int] = []
    component = [-1] * len(edges)
    index = [-1] * len(edges)
    low = [0] * len(edges)
    step = [0] * len(edges)
    stack: list[int] = []
    n_seen = 0
    for start in range(len(edges)):
        path = [start] if index[start] < 0 else []
        while path:
            rule = path[-1]
            if index[rule] < 0:
                index[rule] = low[rule] = n_seen
                n_seen += 1
                stack.append(rule)
            if step[rule] < len(edges[rule]):
                other = edges[rule][step[rule]][0]
                step[rule] += 1
                if index[other] < 0:
                    path.append(other)
                elif component[other] < 0:
                    low[rule] = min(low[rule], index[other])
                continue
            path.pop()
            if path:
                low[path[-1]] = min(low[path[-1]], low[rule])
            if low[rule] == index[rule]:
                while True:
                    other = stack.pop()
                    component[other] = rule
                    order.append(other)
                    if other == rule:
                        break
    return order, component
