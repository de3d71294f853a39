"""`relaxvm.graph(program)`: a picture of the data flow of a program, of its IR or its bytecode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..executable import VMExecutable
from ..executable.formats.places import span_text
from ..ir import (
    Binding,
    Call,
    Constant,
    ExprVisitor,
    Function,
    GlobalVar,
    If,
    IRModule,
    MatchCast,
    Tuple,
    TupleGetItem,
    Var,
)
from ..messages import describe
from ..observe.pictures import Edge, Graph, MemoryPlan, Node
from ..observe.profiler import Profile
from ..observe.program_pictures import graph_of_function, memory_plan_of, storage_sizes
from ..vm import VirtualMachine

__all__ = ["graph", "memory_plan"]


def graph(program: Any, function: str = "main", *, profile: Profile | None = None) -> Graph:
    """A picture of what a function computes::

        relaxvm.graph(Module).save("module.html")        # or .svg, or .dot for Graphviz
        relaxvm.graph(vm, profile=p)                      # coloured by time, in a notebook

    Args:
        program: an IRModule or a function of the IR, for its bindings; or an executable or a VM,
            for its instructions, without those that only check, allocate and free.
        function: its name.
        profile: of a VM of this executable: nodes are coloured by the time they take.

    Raises:
        TypeError: `program` is none of these.
        KeyError: there is no such function.
    """
    if isinstance(program, Function):
        return _graph_of_ir(program, function)
    if isinstance(program, IRModule):
        func = program[function]
        if not isinstance(func, Function):
            raise TypeError(f"graph: {function} is a {type(func).__name__}, not of Relax")
        return _graph_of_ir(func, function)
    executable = _executable(program, "graph")
    times = None
    if profile is not None:
        times = {row.pc: float(row.total_ns) for row in profile.sites if row.pc >= 0}
    return graph_of_function(executable, function, times)


def memory_plan(program: Any, function: str = "main", *args: Any, **kwargs: Any) -> MemoryPlan:
    """A picture of the storages of a function over its instructions: which tensors share one, and
    where the peak is.

    Args:
        program: an executable or a VM.
        function: its name.
        args, kwargs: arguments of the function; it is run on them to find out sizes that depend on
            them.  Without, such storages count as empty.

    Raises:
        TypeError: `program` is none of these.
        KeyError: there is no such function.
    """
    executable = _executable(program, "memory_plan")
    sizes: Mapping[int, int] | None = None
    if args or kwargs:
        vm = program if isinstance(program, VirtualMachine) else VirtualMachine(executable)
        sizes = storage_sizes(vm.functions[function].start(*args, **kwargs))
    return memory_plan_of(executable, function, sizes)


def _executable(program: Any, caller: str) -> VMExecutable:
    if isinstance(program, VirtualMachine):
        return program.executable
    if isinstance(program, VMExecutable):
        return program
    kinds = "a module, a function, an executable or a VM" if caller == "graph" else (
        "an executable or a VM")
    raise TypeError(f"{caller}: expected {kinds}, got {describe(program)}")


def _graph_of_ir(func: Function, name: str) -> Graph:
    drawer = _Drawer(name)
    for param in func.params:
        drawer.add(param, Node(param.name, str(param.ty), f"parameter {param.name}: {param.ty}",
                               0.0, "param"))  # fmt: skip
    drawer.visit(func.body)
    drawer.finish(func.body.body)
    return drawer.graph


class _Drawer(ExprVisitor):
    """Makes a node of each binding, in order; those of branches stand before their If."""

    def __init__(self, name: str) -> None:
        self.graph = Graph(name)
        self._nodes: dict[Any, int] = {}

    def add(self, var: Any, node: Node) -> None:
        self._nodes[var] = len(self.graph.nodes)
        self.graph.nodes.append(node)

    def visit_binding(self, binding: Binding) -> None:
        value: Any = binding.value
        if isinstance(value, If):
            super().visit_binding(binding)
        sources = _variables_of(value)
        node = len(self.graph.nodes)
        for source in sources:
            if source in self._nodes:
                title = f"{source.name}: {source.ty}"
                self.graph.edges.append(Edge(self._nodes[source], node, title))
        var = binding.var
        kind = "constant" if isinstance(value, Constant) else "call"
        span = getattr(binding, "span", None) or getattr(value, "span", None)
        place = f"\n{span_text(span)}" if span is not None else ""
        title = f"{var.name}: {var.ty}{place}"
        self.add(var, Node(var.name, _operation(binding, value), title, 0.0, kind))

    def finish(self, result: Any) -> None:
        node = len(self.graph.nodes)
        for source in _variables_of(result):
            if source in self._nodes:
                self.graph.edges.append(Edge(self._nodes[source], node, "result"))
        self.graph.nodes.append(Node("return", "", f"return: {result.ty}", 0.0, "result"))


class _Variables(ExprVisitor):
    def __init__(self) -> None:
        self.found: dict[Var, None] = {}

    def visit_var(self, var: Var) -> None:
        self.found[var] = None


def _variables_of(value: Any) -> list[Var]:
    if isinstance(value, If):
        ends = [branch.body for branch in (value.true_branch, value.false_branch)]
        return [var for part in (value.cond, *ends) for var in _variables_of(part)]
    visitor = _Variables()
    visitor.visit(value)
    return list(visitor.found)


def _operation(binding: Binding, value: Any) -> str:
    if isinstance(binding, MatchCast):
        return "match_cast"
    if isinstance(value, Call):
        op: Any = value.op
        if isinstance(op, GlobalVar):
            return f"call of {op.name}"
        name = str(getattr(op, "name", type(op).__name__)).removeprefix("relax.")
        first = value.args[0] if value.args else None
        inner = getattr(first, "name", None) or getattr(first, "global_symbol", None)
        return f"{name} {inner}" if name.startswith("call_") and inner else name
    if isinstance(value, TupleGetItem):
        return f"element {value.index}"
    return {Tuple: "tuple", If: "if", Constant: "constant", Var: "alias"}.get(
        type(value), type(value).__name__)
