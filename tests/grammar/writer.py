"""Random texts of a grammar, written straight from its tree: nothing here knows how texts are matched."""

from __future__ import annotations

import math
import random

from llamacy.grammar.charset import CharSet
from llamacy.grammar.tree import Choice, Node, Ref, Repeat, Rules, Token


def random_text(rules: Rules, rng: random.Random, budget: int) -> str:
    """Return a text of a grammar.

    Parameters
    ----------
    rules
        The grammar.
    rng
        Where choices come from.
    budget
        How many characters and rules may be written before each choice becomes the one that ends soonest.

    Raises
    ------
    ValueError
        No text is one of the grammar.
    """
    costs = rule_costs(rules)
    if math.isinf(costs[rules.root]):
        raise ValueError("no text is one of this grammar")
    written: list[str] = []
    todo: list[Node] = [Ref(rules.root)]
    while todo:
        node = todo.pop()
        free = budget > 0
        if isinstance(node, Ref):
            budget -= 1
            todo.append(rules.rules[str(node)])
        elif isinstance(node, str):
            budget -= len(node)
            written.append(node)
        elif isinstance(node, CharSet):
            budget -= 1
            low, high = rng.choice(node)
            written.append(chr(rng.choice((low, high, rng.randint(low, high)))))
        elif isinstance(node, Choice):
            by_cost = {part: cost(part, costs) for part in node}
            possible = [part for part in node if not math.isinf(by_cost[part])]
            todo.append(rng.choice(possible) if free else min(possible, key=by_cost.__getitem__))
        elif isinstance(node, Repeat):
            todo += [node.item] * times(node, rng, free and not math.isinf(cost(node.item, costs)))
        elif isinstance(node, Token):
            raise ValueError(f"{node} has no text")
        else:
            todo += reversed(node)
    return "".join(written)


def times(node: Repeat, rng: random.Random, free: bool) -> int:
    """Return how often something is repeated: as seldom as it may be, often a little more, sometimes to the limit."""
    if not free:
        return node.minimum
    most = node.maximum if node.maximum is not None else node.minimum + 8
    most = min(most, node.minimum + 40)
    return rng.choice((node.minimum, min(node.minimum + 1, most), rng.randint(node.minimum, most), most))


def rule_costs(rules: Rules) -> dict[str, float]:
    """Return how many characters and rules it takes to get through each rule at least."""
    costs = dict.fromkeys(rules.rules, math.inf)
    changed = True
    while changed:
        changed = False
        for name, node in rules.rules.items():
            new = cost(node, costs)
            if new < costs[name]:
                costs[name] = new
                changed = True
    return costs


def cost(node: Node, costs: dict[str, float]) -> float:
    """Return how many characters and rules it takes to get through a node at least."""
    if isinstance(node, Ref):
        return 1 + costs[str(node)]
    if isinstance(node, str):
        return len(node)
    if isinstance(node, CharSet):
        return 1 if node else math.inf
    if isinstance(node, Choice):
        return min((cost(part, costs) for part in node), default=math.inf)
    if isinstance(node, Repeat):
        return cost(node.item, costs) * node.minimum if node.minimum else 0
    if isinstance(node, Token):
        return 1
    return sum(cost(item, costs) for item in node)
