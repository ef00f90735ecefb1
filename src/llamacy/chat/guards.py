"""Put counting into a template's syntax tree, where the sandbox of jinja2 has no hook."""

from __future__ import annotations

from typing import Any, TypeVar

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from llamacy.chat.budget import BYTES_PER_STEP
from llamacy.errors import ChatTemplateLimitError

# no template can spell these names
STEP, TEST, CONCAT, DEEP, CONTAINS, IN, SLICE = (
    f"llamacy:{name}" for name in ("step", "test", "concat", "deep", "contains", "in", "slice")
)

#: Nodes that the syntax tree of a template may have; the largest known one has 5,000.
MAX_NODES = 25_000
#: Levels of its syntax tree.
MAX_TREE_DEPTH = 200

N = TypeVar("N", bound=nodes.Node)

_BODIES = (nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)
_CONTAINS = ("in", "notin")
_MIN_PASS = 16
# what takes more time or memory than other nodes
_HEAVY: dict[type[nodes.Node], int] = {
    nodes.Macro: 64,
    nodes.CallBlock: 64,
    nodes.For: 32,
    nodes.Dict: 16,
    nodes.Getattr: 4,
    nodes.Getitem: 4,
    nodes.List: 4,
    nodes.Name: 2,
    nodes.Tuple: 4,
}


def guard(tree: nodes.Template) -> nodes.Template:
    """Return the syntax tree of a template with counting put in."""
    n_nodes = _check_size(tree)
    tree = _Guard().visit(tree)
    tree.body.insert(0, _step(tree, n_nodes))
    return tree


def _check_size(tree: nodes.Node) -> int:
    """Return the number of nodes of a tree that is neither too large nor too deep for jinja2 and Python."""
    n_nodes, level = 0, [tree]
    for _ in range(MAX_TREE_DEPTH):
        n_nodes += len(level)
        if n_nodes > MAX_NODES:
            raise ChatTemplateLimitError(f"the chat template has more than {MAX_NODES} parts")
        level = [child for node in level for child in node.iter_child_nodes()]
        if not level:
            return n_nodes
    raise ChatTemplateLimitError(f"the chat template nests more than {MAX_TREE_DEPTH} levels deep")


def _size(body: list[nodes.Node]) -> int:
    """Return the number of nodes that one pass of a body may run, without bodies that count on their own."""
    n_nodes, rest = 0, list(body)
    while rest:
        node = rest.pop()
        n_nodes += 1
        if isinstance(node, nodes.Const) and isinstance(node.value, str):
            n_nodes += len(node.value) // BYTES_PER_STEP
        n_nodes += _HEAVY.get(type(node), 0)
        if isinstance(node, nodes.For):
            rest += [node.iter, *node.else_]
        elif isinstance(node, nodes.CallBlock):
            rest.append(node.call)
        elif not isinstance(node, _BODIES):
            rest.extend(node.iter_child_nodes())
    return n_nodes


def _placed(made: N, like: nodes.Node) -> N:
    """Return a new node that belongs to the line of another."""
    made.set_lineno(like.lineno)
    made.environment = like.environment
    return made


def _filter(node: Any, name: str, *args: nodes.Expr) -> nodes.Filter:
    return _placed(nodes.Filter(node, name, list(args), [], None, None), node)


def _step(like: nodes.Node, n: int) -> nodes.ExprStmt:
    n_steps = _placed(nodes.Const(max(n, _MIN_PASS)), like)
    return _placed(nodes.ExprStmt(_filter(n_steps, STEP)), like)


def _is_small(node: nodes.Expr) -> bool:
    """Return whether comparing with an expression costs next to nothing, since it is a constant."""
    if isinstance(node, (nodes.List, nodes.Tuple)):
        return all(isinstance(item, nodes.Const) for item in node.items)
    return isinstance(node, nodes.Const)


class _Guard(NodeTransformer):
    """Count passes of loops and macros, and what concatenation, comparison, slices and keys touch."""

    def _counted_body(self, node: Any) -> Any:
        n = _size(node.body)
        self.generic_visit(node)
        node.body.insert(0, _step(node, n))
        return node

    visit_Macro = visit_CallBlock = visit_Block = _counted_body  # noqa: N815

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        """Count the passes, and also those that the condition leaves out."""
        self._counted_body(node)
        if node.test is not None:
            node.test = _filter(node.test, TEST)
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Output:  # noqa: N802
        """Write constant texts as they are."""
        self.generic_visit(node)
        for index, child in enumerate(node.nodes):
            if isinstance(child, nodes.Const) and type(child.value) is str:
                node.nodes[index] = _placed(nodes.TemplateData(child.value), child)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802
        """Turn `a ~ b` into a call."""
        self.generic_visit(node)
        return _filter(_placed(nodes.List(node.nodes), node), CONCAT)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Expr:  # noqa: N802
        """Count what a comparison of two values touches."""
        self.generic_visit(node)
        (operand, *more) = node.ops
        if not more:
            if _is_small(operand.expr) or (_is_small(node.expr) and operand.op not in _CONTAINS):
                return node
            if operand.op in _CONTAINS:
                found = _filter(node.expr, CONTAINS, operand.expr)
                return found if operand.op == "in" else _placed(nodes.Not(found), node)
        node.expr = _filter(node.expr, DEEP)
        for operand in node.ops:
            operand.expr = _filter(operand.expr, IN if operand.op in _CONTAINS else DEEP)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Getitem:  # noqa: N802
        """Count what a slice copies."""
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _filter(node.node, SLICE)
        return node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Dict:  # noqa: N802
        """Look at keys before they are hashed."""
        self.generic_visit(node)
        for pair in node.items:
            if not isinstance(pair.key, nodes.Const):
                pair.key = _filter(pair.key, DEEP)
        return node
