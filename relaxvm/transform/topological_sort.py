"""TopologicalSort: another order of the bindings of dataflow blocks."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from ..core.checkpoints import checkpoint
from ..errors import did_you_mean
from ..ir import (
    Binding,
    BindingBlock,
    DataflowBlock,
    Expr,
    ExprMutator,
    ExprVisitor,
    Function,
    IRModule,
    MatchCast,
    Var,
    free_vars,
    type_free_vars,
)
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["TopologicalSort"]

_Node = Var | str
_INPUTS: Final = "inputs"
_OUTPUTS: Final = "outputs"


class _Edges(ExprVisitor):
    """What uses what in a function: its inputs and outputs are nodes, too.

    Attributes:
        users, needs: node -> the nodes that use it, and those that it uses, in the order of the
            program.
    """

    def __init__(self) -> None:
        self.users: dict[_Node, list[_Node]] = {}
        self.needs: dict[_Node, list[_Node]] = {}
        self._defined: list[Var] = []
        self._visible: set[Var] = set()
        self._symbols: dict[Var, Var] = {}
        self._user: _Node = _OUTPUTS

    def of(self, func: Function) -> None:
        for param in func.params:
            self._add(_INPUTS, param)
            self._visible.add(param)
        self.visit(func.body)
        free = [var for var in self._defined if var not in self.needs]
        unused = [var for var in self._defined if var not in self.users]
        for var in free:
            self._add(_INPUTS, var)
        self.needs[_OUTPUTS] = [*unused, *self.needs.get(_OUTPUTS, ())]
        for var in unused:
            self.users[var] = [_OUTPUTS]

    def _add(self, needed: _Node, user: _Node) -> None:
        self.users.setdefault(needed, []).append(user)
        self.needs.setdefault(user, []).append(needed)

    def visit_binding(self, binding: Binding) -> None:
        outer, self._user = self._user, binding.var
        self._defined.append(binding.var)
        self._visible.add(binding.var)
        if isinstance(binding, MatchCast):
            for symbol in type_free_vars(binding.ty):
                self._symbols.setdefault(symbol, binding.var)
        super().visit_binding(binding)
        self._user = outer

    def visit_var(self, var: Var) -> None:
        if var in self._visible:
            self._add(var, self._user)
        else:
            self._symbol(var)

    def visit_scalar(self, scalar: Expr) -> None:
        for var in free_vars(scalar):
            self.visit_var(var)

    def visit_type(self, ty: Any) -> None:
        for var in type_free_vars(ty):
            self._symbol(var)

    def _symbol(self, var: Var) -> None:
        source = self._symbols.get(var)
        if source is not None and source is not self._user:
            self._add(source, self._user)


class _Sorter(ExprMutator):
    def __init__(self, depth_first: bool, from_inputs: bool) -> None:
        super().__init__()
        self._depth_first = depth_first
        self._from_inputs = from_inputs
        self._edges = _Edges()

    def visit_function(self, func: Function) -> Expr:
        outer, self._edges = self._edges, _Edges()
        self._edges.of(func)
        if self._depth_first:
            for users in self._edges.users.values():
                users.reverse()
        new = super().visit_function(func)
        self._edges = outer
        return new

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        new = super().visit_block(block)
        if not isinstance(new, DataflowBlock):
            return new
        rest: dict[_Node, Binding] = {
            old.var: binding for old, binding in zip(block.bindings, new.bindings, strict=True)
        }
        users, needs = self._edges.users, self._edges.needs
        ahead, behind = (users, needs) if self._from_inputs else (needs, users)
        order: list[Binding] = []
        done: set[_Node] = set()
        work: deque[_Node] = deque([_INPUTS if self._from_inputs else _OUTPUTS])
        while work:
            checkpoint()
            node = work.pop() if self._depth_first else work.popleft()
            binding = rest.pop(node, None)
            if binding is not None:
                order.append(binding)
            done.add(node)
            for other in ahead.get(node, ()):
                if other not in done and done.issuperset(behind[other]):
                    work.append(other)
        assert not rest, f"bindings that no path reaches: {list(rest)}"
        if not self._from_inputs:
            order.reverse()
        if all(a is b for a, b in zip(order, new.bindings, strict=True)):
            return new
        return DataflowBlock(order, block.span)


def _one_of(argument: str, value: str, allowed: tuple[str, str]) -> bool:
    if value not in allowed:
        raise ValueError(
            f"TopologicalSort: {argument}: expected {allowed[0]!r} or {allowed[1]!r}, got "
            f"{value!r}{did_you_mean(value, allowed)}"
        )
    return value == allowed[0]


def TopologicalSort(order: str = "depth-first", direction: str = "from-inputs") -> Pass:
    """Sort the bindings of dataflow blocks.

    Args:
        order: "depth-first", so that values are used soon, or "breadth-first".
        direction: "from-inputs", where a binding comes as soon as what it uses is there, or
            "from-outputs", where it comes as late as possible.

    Raises:
        ValueError: `order` or `direction` is something else.
    """
    depth_first = _one_of("order", order, ("depth-first", "breadth-first"))
    from_inputs = _one_of("direction", direction, ("from-inputs", "from-outputs"))

    @function_pass(name="TopologicalSort")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return _Sorter(depth_first, from_inputs).visit(func)

    return run
