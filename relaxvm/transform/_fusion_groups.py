"""Which calls of PrimFuncs of a dataflow block `FuseOps` puts into one function.

Every binding is a node of a graph, with the kind of its function (`OpPatternKind`).  A node may
join the node at which all paths from it meet again, its *sink*, if the nodes on the paths allow it.

Source: the algorithm of apache-tvm 0.27, which the text of ``relax.transform.FuseOps`` describes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ..analysis.variables import uses_of_binding
from ..ir import (
    Binding,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    GlobalVar,
    IRModule,
    Op,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..tir.function import PrimFunc
from ..tir.op_pattern import OpPatternKind
from .annotate_tir_op_pattern import OP_PATTERN

__all__ = ["fusion_groups"]

_CALLS = (Op.get("relax.call_tir"), Op.get("relax.call_tir_inplace"))


def fusion_groups(
    block: DataflowBlock, mod: IRModule, packed: frozenset[Var], most: int
) -> list[list[Binding]]:
    """Return the bindings of a block that become functions: lists of at least two.

    Args:
        mod: has the PrimFuncs, with the attribute "op_pattern".
        packed: parameters that are tuples of weights: their elements are taken outside.
        most: the greatest number of calls in a group.
    """
    nodes = _graph(block, mod, packed)
    if all(node.kind is OpPatternKind.kOpaque for node in nodes):
        return []
    _find_sinks(nodes)
    partition = _Partition(nodes, most)
    partition.join_to_masters()
    partition.join_injective()
    found: dict[_Group, list[Binding]] = {}
    for node in nodes:
        found.setdefault(node.group.root(), []).append(node.binding)
    return [bindings for bindings in found.values() if len(bindings) > 1]


class _Group:
    """Nodes that are fused so far; groups that are joined are a tree.

    Attributes:
        kind: the kind of the group as a whole.
        count: the number of its nodes.
        has_anchor: whether one of them is of the kind `kOutEWiseFusable`.
    """

    def __init__(self, kind: OpPatternKind) -> None:
        self.kind = kind
        self.count = 1
        self.has_anchor = kind is OpPatternKind.kOutEWiseFusable
        self._parent: _Group | None = None

    def root(self) -> _Group:
        """The group that this one is a part of."""
        root = self
        while root._parent is not None:
            root = root._parent
        group = self
        while group._parent is not None:  # shorten the way for the next time
            group._parent, group = root, group._parent
        return root

    def join(self, other: _Group) -> None:
        """Become a part of another group."""
        child, parent = self.root(), other.root()
        if child is parent:
            return
        parent.count += child.count
        child._parent = parent
        if child.has_anchor:
            parent.has_anchor = True
            parent.kind = max(parent.kind, child.kind)


class _Node:
    """A binding.

    Attributes:
        kind: its kind.
        users: the nodes that use it, each with the kind of the use.
        sink: the node at which all paths from it meet, None if there is none.
        depth: the number of sinks that follow each other from here.
        kind_to_sink: the kind of the uses on the paths to the sink, taken together.
    """

    def __init__(self, binding: Binding, kind: OpPatternKind) -> None:
        self.binding = binding
        self.kind = kind
        self.group = _Group(kind)
        self.users: list[tuple[_Node, OpPatternKind]] = []
        self.sink: _Node | None = None
        self.depth = 1
        self.kind_to_sink = OpPatternKind.kOpaque


def _graph(block: DataflowBlock, mod: IRModule, packed: frozenset[Var]) -> list[_Node]:
    nodes: dict[Var, _Node] = {}
    for binding in block.bindings:
        kind, operands = _kind_and_operands(binding, mod, packed)
        node = _Node(binding, kind)
        for operand in operands:
            if operand in nodes:
                nodes[operand].users.append((node, kind))
        nodes[binding.var] = node
    return list(nodes.values())


def _kind_and_operands(
    binding: Binding, mod: IRModule, packed: frozenset[Var]
) -> tuple[OpPatternKind, Iterable[Var]]:
    value = binding.value
    if isinstance(binding, VarBinding):
        if isinstance(value, Call) and value.op in _CALLS:
            callee = value.args[0]
            func = mod.functions.get(callee) if isinstance(callee, GlobalVar) else None
            if isinstance(func, PrimFunc):
                kind = OpPatternKind(int(func.attrs.get(OP_PATTERN, OpPatternKind.kOpaque)))
                return kind, _leaves(value.args[1])
        if isinstance(value, TupleGetItem) and value.tuple_value not in packed:
            return OpPatternKind.kInjective, _leaves(value.tuple_value)
    return OpPatternKind.kOpaque, uses_of_binding(binding)


def _leaves(expr: Expr) -> list[Var]:
    if isinstance(expr, Tuple):
        return [var for field in expr.fields for var in _leaves(field)]
    return [expr] if isinstance(expr, Var) else []


def _find_sinks(nodes: list[_Node]) -> None:
    """Find the immediate post-dominators; users come after a node, so walk backwards."""
    for node in reversed(nodes):
        if not node.users or not isinstance(node.binding.var, DataflowVar):
            continue
        kind = OpPatternKind.kElemWise
        sink: _Node | None = None
        for position, (user, use) in enumerate(node.users):
            if position == 0:
                sink = user
            else:
                sink, kind = _meet(sink, user, kind)
            kind = max(kind, use)
        node.sink, node.kind_to_sink = sink, kind
        node.depth = 1 if sink is None else sink.depth + 1


def _meet(
    a: _Node | None, b: _Node | None, kind: OpPatternKind
) -> tuple[_Node | None, OpPatternKind]:
    """The first common sink of two nodes, and the kind joined with those on the way to it."""
    while a is not b:
        if a is None or b is None:
            return None, kind
        deepest = max(a.depth, b.depth)
        if a.depth == deepest:
            kind = max(kind, a.kind_to_sink)
        if b.depth == deepest:
            kind = max(kind, b.kind_to_sink)
        next_a = a.sink if a.depth == deepest else a
        b = b.sink if b.depth == deepest else b
        a = next_a
    return a, kind


_Accepts = Callable[[OpPatternKind, bool], bool]
"""Whether a group of a kind may be joined; the flag says that it is the one of the sink."""


def _is_broadcast(kind: OpPatternKind, is_sink: bool) -> bool:
    return kind <= OpPatternKind.kBroadcast


def _is_injective(kind: OpPatternKind, is_sink: bool) -> bool:
    return kind <= OpPatternKind.kInjective


def _leads_to_master(kind: OpPatternKind, is_sink: bool) -> bool:
    """The sink of elementwise functions may be a reduction, or a group with an anchor."""
    return kind <= (OpPatternKind.kOutEWiseFusable if is_sink else OpPatternKind.kInjective)


class _Partition:
    """Joins groups: first elementwise functions and anchors, so that anchors get what follows them,
    then injective functions."""

    def __init__(self, nodes: list[_Node], most: int) -> None:
        self._nodes = nodes
        self._most = most

    def join_to_masters(self) -> None:
        """Join anchors with elementwise functions of their results, and elementwise functions with
        what follows."""
        for node, sink in self._candidates():
            if node.group.kind is OpPatternKind.kOutEWiseFusable:
                if node.kind_to_sink is OpPatternKind.kElemWise:
                    self._join(node, sink, _is_broadcast)
            else:
                self._join_elementwise(node, sink)

    def join_injective(self) -> None:
        """Join elementwise and injective functions with what follows."""
        for node, sink in self._candidates():
            if node.group.kind is OpPatternKind.kInjective:
                self._join(node, sink, _is_injective)
            else:
                self._join_elementwise(node, sink)

    def _join_elementwise(self, node: _Node, sink: _Node) -> None:
        is_elementwise = node.group.kind <= OpPatternKind.kBroadcast
        if is_elementwise and node.kind_to_sink <= OpPatternKind.kCommReduce:
            self._join(node, sink, _leads_to_master)

    def _candidates(self) -> Iterator[tuple[_Node, _Node]]:
        """The nodes with their sinks, where they may be joined as to number."""
        for node in self._nodes:
            sink = node.sink
            if sink is None or node.kind is OpPatternKind.kOpaque:
                continue
            if node.group.root() is not sink.group.root():
                yield node, sink

    def _join(self, node: _Node, sink: _Node, accepts: _Accepts) -> None:
        """Join the node and those on the paths to its sink with the sink, if all are accepted and
        are not too many."""
        target = sink.group.root()
        if not accepts(target.kind, True):
            return
        between = _between(node, sink, self._most)
        if target.count + sum([other.group.count for other in between]) > self._most:
            return
        if not all(accepts(other.group.root().kind, False) for other in between[1:]):
            return
        for other in between:
            other.group.join(target)


def _between(node: _Node, sink: _Node, most: int) -> list[_Node]:
    """The node and those on the paths from it to its sink: all, or more than `most` of them."""
    found: dict[_Node, None] = {node: None}
    work = [node]
    while work and len(found) <= most:
        for user, _ in work.pop().users:
            if user is not sink and user not in found:
                found[user] = None
                work.append(user)
    return list(found)
