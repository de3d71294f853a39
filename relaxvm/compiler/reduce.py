"""Reducing programs that go wrong: the pass that is to blame, and the smallest program.

`blame` finds the first pass that changes what a program computes or that fails on it.  `shrink`
makes a program smaller for as long as it keeps a property.  Every edit keeps it well typed: it
removes unused functions and bindings, replaces values by simpler ones of the same type, replaces
an If by one of its branches, or returns less from "main".
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .. import ir, op
from ..executable import VMExecutable
from ..observe.compare import Tolerance, differ
from ..observe.computed import Computed
from ..observe.copies import copied
from ..tir import PrimFunc
from ..transform import Pass, PassContext
from ..vm import VirtualMachine
from .build import build

__all__ = ["Blame", "Outcome", "blame", "fails_alike", "outcome_of", "shrink"]

Holds = Callable[[ir.IRModule, list[Any]], bool]

OPTIONAL_LOWERING: Final = (
    "RewriteDataflowReshape", "WriteInPlace", "PlanMemory", "KillAfterLastUse", "ReuseShapes",
)  # fmt: skip
"""Passes of the lowering without which a program can be compiled as well, in their order."""


@dataclass(frozen=True)
class Outcome:
    """What becomes of a program: a result, or an exception of the build or of the run.

    Attributes:
        value: the result, or the exception.
        stage: "build" or "run".
    """

    value: Any
    stage: str

    @property
    def failed(self) -> bool:
        """Whether it is an exception."""
        return isinstance(self.value, BaseException)

    @property
    def kind(self) -> tuple[str, type, str]:
        """Of an exception: stage, class, and the message without its numbers and names."""
        text = str(self.value).partition("\n")[0]
        return self.stage, type(self.value), re.sub(r"'[^']*'|[\w.%]*\d[\w.%]*", "_", text)[:60]

    def difference(self, other: Outcome, tolerance: Tolerance) -> str:
        """How another outcome differs; empty if it does not."""
        return differ(Computed("", self.value), Computed("", other.value), tolerance).text


def outcome_of(
    mod: ir.IRModule, args: Sequence[Any], *, disabled: Sequence[str] = (), function: str = "main"
) -> Outcome:
    """Build a program and run a function of it on copies of arguments.

    Args:
        disabled: passes of the lowering that are left out.
    """
    try:
        with PassContext(disabled_pass=disabled):
            executable: VMExecutable = build(mod, relax_pipeline="default_build")
    except Exception as error:
        return Outcome(error, "build")
    try:
        return Outcome(VirtualMachine(executable)[function](*copied(tuple(args))), "run")
    except Exception as error:
        return Outcome(error, "run")


@dataclass(frozen=True)
class Blame:
    """The pass that is to blame.

    Attributes:
        name: of the pass.
        text: what it does: how the result differs, or the exception.
        before: the program before it.
    """

    name: str
    text: str
    before: ir.IRModule

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


def blame(
    mod: ir.IRModule,
    args: Sequence[Any],
    passes: Sequence[Pass] = (),
    *,
    tolerance: Tolerance = Tolerance(1e-4, 1e-5),  # noqa: B008  (immutable)
) -> Blame | None:
    """The first pass that changes the outcome of "main", or that fails.

    The program is run after each of `passes`, lowered with as few passes as can be; then each
    optional pass of the lowering (`OPTIONAL_LOWERING`) is added.

    Args:
        mod: the program.
        args: the arguments of "main".
        passes: passes to apply to it, in order.
        tolerance: how far results may be apart.

    Returns:
        None if no pass is to blame.
    """
    left_out = list(OPTIONAL_LOWERING)
    expected = outcome_of(mod, args, disabled=left_out)
    for each in passes:
        before = mod
        try:
            mod = each(mod)
        except Exception as error:
            return Blame(each.name, f"fails: {type(error).__name__}: {error}", before)
        found = outcome_of(mod, args, disabled=left_out).difference(expected, tolerance)
        if found:
            return Blame(each.name, found, before)
    while left_out:
        name = left_out.pop(0)
        found = outcome_of(mod, args, disabled=left_out).difference(expected, tolerance)
        if found:
            return Blame(name, found, mod)
    return None


def fails_alike(mod: ir.IRModule, args: Sequence[Any]) -> Holds:
    """A property for `shrink`: to raise the same class of exception, with a like message, at the
    same stage as a program does.

    Raises:
        ValueError: the program does not fail.
    """
    expected = outcome_of(mod, args)
    if not expected.failed:
        raise ValueError("the program does not fail: it builds and runs on these inputs")

    def holds(mod: ir.IRModule, args: list[Any]) -> bool:
        found = outcome_of(mod, args)
        return found.failed and found.kind == expected.kind

    return holds


def shrink(
    mod: ir.IRModule, args: list[Any], holds: Holds, *, seconds: float = 60
) -> tuple[ir.IRModule, list[Any]]:
    """Return the smallest module and arguments of "main" that edits find in the given time and for
    which `holds` is true."""
    shrinker = _Shrinker(mod, args, holds, time.monotonic() + seconds)
    shrinker.run()
    return shrinker.mod, shrinker.args


class _Shrinker:
    """Holds the smallest program so far."""

    def __init__(self, mod: ir.IRModule, args: list[Any], holds: Holds, end: float) -> None:
        self.mod = mod
        self.args = args
        self.holds = holds
        self.end = end

    def run(self) -> None:
        """Try all edits until none of them succeeds."""
        changed = True
        while changed and time.monotonic() < self.end:
            changed = self.keep(without_unused(self.mod), self.args)
            for name in [v.name for v, f in self.mod.items() if type(f) is ir.Function]:
                changed = self.drop_unused(name) or changed
            changed = self.fewer_results() or changed
            for rewrite in (_If, _Simpler, _Plain):
                for name in [v.name for v, f in self.mod.items() if type(f) is ir.Function]:
                    changed = self.rewrites(name, rewrite) or changed
            changed = self.fewer_params() or changed

    def keep(self, mod: ir.IRModule | None, args: list[Any]) -> bool:
        """Keep a smaller program if the property still holds."""
        if mod is None or time.monotonic() > self.end or not self.holds(mod, args):
            return False
        self.mod, self.args = mod, args
        return True

    def keep_function(self, name: str, func: ir.Function) -> bool:
        mod = _with(self.mod, name, func)
        return self.keep(without_unused(mod), self.args) or self.keep(mod, self.args)

    def drop_unused(self, name: str) -> bool:
        """Remove unused bindings, in halves, quarters, ... down to one by one."""
        changed = False
        size = len(_unused(self.mod[name])) if name in self.mod else 0
        while size:
            position = 0
            while position < len(unused := _unused(self.mod[name])):
                sweep = _Sweep(set(unused[position : position + size]))
                if self.keep(_with(self.mod, name, sweep.visit(self.mod[name])), self.args):
                    changed = True
                else:
                    position += size
            size //= 2
        return changed

    def fewer_results(self) -> bool:
        return any(self.keep_function("main", main) for main in _fewer_results(self.mod["main"]))

    def rewrites(self, name: str, rewrite: type[_Rewrite]) -> bool:
        changed = False
        position = _count(self.mod[name], rewrite) if name in self.mod else 0
        while position > 0:
            position -= 1
            for choice in range(rewrite.CHOICES):
                func = rewrite(position, choice).visit(self.mod[name])
                if func is not self.mod[name] and self.keep_function(name, func):
                    if name not in self.mod:
                        return True
                    changed = True
                    position = min(position, _count(self.mod[name], rewrite))
                    break
        return changed

    def fewer_params(self) -> bool:
        changed = False
        for position in reversed(range(len(self.args))):
            main = self.mod["main"]
            if main.params[position] not in _used(main):
                rest = [p for i, p in enumerate(main.params) if i != position]
                args = [arg for i, arg in enumerate(self.args) if i != position]
                mod = _with(self.mod, "main", main.replace(params=rest))
                changed = self.keep(mod, args) or changed
        return changed


def _with(mod: ir.IRModule, name: str, func: Any) -> ir.IRModule:
    new = mod.copy()
    new[name] = func
    return new


# Uses


class _Uses(ir.ExprVisitor):
    def __init__(self) -> None:
        self.found: set[Any] = set()

    def visit_var(self, var: ir.Var) -> None:
        self.found.add(var)

    def visit_global_var(self, var: ir.GlobalVar) -> None:
        self.found.add(var.name)

    def visit_scalar(self, scalar: ir.Expr) -> None:
        self.found.update(ir.free_vars(scalar))

    def visit_type(self, ty: Any) -> None:
        self.found.update(ir.type_free_vars(ty))


def _used(func: ir.Function) -> set[Any]:
    uses = _Uses()
    uses.visit(func)
    return uses.found


class _Definitions(ir.ExprVisitor):
    """The variables of bindings, each with those that it defines."""

    def __init__(self) -> None:
        self.found: dict[Any, list[Any]] = {}

    def visit_binding(self, binding: ir.Binding) -> None:
        defined = [binding.var]
        if isinstance(binding, ir.MatchCast):
            defined += ir.type_free_vars(binding.ty)
        self.found[binding.var] = defined
        super().visit_binding(binding)


def _unused(func: ir.Function) -> list[Any]:
    """Variables of bindings that are not used, even if they have effects."""
    used = _used(func)
    definitions = _Definitions()
    definitions.visit(func)
    return [v for v, defined in definitions.found.items() if not used.intersection(defined)]


class _Sweep(ir.ExprMutator):
    """Removes the bindings of variables."""

    def __init__(self, variables: set[Any]) -> None:
        super().__init__()
        self._variables = variables

    def visit_binding(self, binding: ir.Binding) -> Any:
        return [] if binding.var in self._variables else super().visit_binding(binding)


def without_unused(mod: ir.IRModule) -> ir.IRModule | None:
    """Remove unused functions and bindings; None if there are none."""
    new = mod.copy()
    changed = False
    for var, func in mod.items():
        if isinstance(func, ir.Function):
            unused = _unused(func)
            if unused:
                new[var] = _Sweep(set(unused)).visit(func)
                changed = True
    while True:
        called = {"main"}
        for _, func in new.items():
            if not isinstance(func, PrimFunc):
                called |= {v for v in _used(func) if isinstance(v, str)}
        dead = [var for var in new if var.name not in called]
        if not dead:
            return new if changed else None
        changed = True
        for var in dead:
            del new[var]


# Edits


def _fewer_results(main: ir.Function) -> Iterator[ir.Function]:
    body = main.body.body
    candidates: list[Any] = list(body.fields) if isinstance(body, ir.Tuple) else []
    for block in main.body.blocks:
        for binding in block.bindings:
            if not isinstance(binding.var, ir.DataflowVar) and binding.var is not body:
                candidates.append(binding.var)
    for value in candidates:
        if isinstance(value.ty, (ir.TensorType, ir.ShapeType, ir.TupleType)):
            seq = ir.SeqExpr(main.body.blocks, value)
            yield main.replace(body=seq, ret_ty=ir.function_ret_type(main.params, seq))


class _Rewrite(ir.ExprMutator):
    """Rewrites the binding with a given number, in one of several ways."""

    CHOICES = 1

    def __init__(self, position: int, choice: int) -> None:
        super().__init__()
        self.position = position
        self.choice = choice
        self.seen = 0
        self.scope: list[Any] = []

    def visit_function(self, func: ir.Function) -> Any:
        depth = len(self.scope)
        self.scope += func.params
        new = super().visit_function(func)
        del self.scope[depth:]
        return new

    def visit_binding(self, binding: ir.Binding) -> Any:
        if self.applies(binding):
            self.seen += 1
            if self.seen - 1 == self.position:
                new = self.rewrite(binding)
                if new is not None:
                    return new
        depth = len(self.scope)
        new = super().visit_binding(binding)
        del self.scope[depth:]
        self.scope.append(new.var if isinstance(new, ir.Binding) else binding.var)
        return new

    def applies(self, binding: ir.Binding) -> bool:
        """Whether a binding is one of those that are counted."""
        return isinstance(binding, ir.VarBinding)

    def rewrite(self, binding: ir.Binding) -> Any:
        """The replacement, or None for no change."""
        raise NotImplementedError


def _count(func: ir.Function, rewrite: type[_Rewrite]) -> int:
    counter = rewrite(-1, 0)
    counter.visit(func)
    return counter.seen


class _If(_Rewrite):
    """Replaces ``v = if ...`` by the bindings of a branch."""

    CHOICES = 2

    def applies(self, binding: ir.Binding) -> bool:
        return isinstance(binding.value, ir.If)

    def rewrite(self, binding: ir.Binding) -> Any:
        value: Any = binding.value
        branch = value.false_branch if self.choice else value.true_branch
        bindings = [b for block in branch.blocks for b in block.bindings]
        if any(isinstance(b.var, ir.DataflowVar) for b in bindings):
            return None
        if not ir.is_base_of(binding.var.ty, branch.ty):
            return None
        new = ir.Var(binding.var.name, branch.ty)
        self.var_map[binding.var] = new
        return [*bindings, ir.VarBinding(new, branch.body)]


class _Simpler(_Rewrite):
    """Replaces a value by a variable of the same type, or by a tensor of zeros."""

    CHOICES = 3

    def applies(self, binding: ir.Binding) -> bool:
        return isinstance(binding, ir.VarBinding) and isinstance(
            binding.var.ty, (ir.TensorType, ir.TupleType)
        )

    def rewrite(self, binding: ir.Binding) -> Any:
        ty = binding.var.ty
        if self.choice == 2:
            return self._zeros(binding)
        if isinstance(binding.value, (ir.Var, ir.Constant)):
            return None
        alike = [v for v in self.scope if v is not binding.var and _same_type(v.ty, ty)]
        if len(alike) <= self.choice:
            return None
        value = self.visit(alike[0] if self.choice == 0 else alike[-1])
        return ir.VarBinding(binding.var, value)

    @staticmethod
    def _zeros(binding: ir.Binding) -> Any:
        ty = binding.var.ty
        if type(ty) is not ir.TensorType or ty.dims is None or ty.dtype is None:
            return None
        value: Any = binding.value
        if isinstance(value, ir.Call) and value.op is op.zeros((1,), "int8").op:
            return None
        return ir.VarBinding(binding.var, op.zeros(list(ty.dims), ty.dtype))


class _Plain(_Rewrite):
    """Replaces a dataflow variable by a plain one."""

    def applies(self, binding: ir.Binding) -> bool:
        return isinstance(binding.var, ir.DataflowVar)

    def rewrite(self, binding: ir.Binding) -> Any:
        new = ir.Var(binding.var.name, binding.var.ty)
        self.var_map[binding.var] = new
        if isinstance(binding, ir.MatchCast):
            return ir.MatchCast(new, self.visit(binding.value), binding.ty)
        return ir.VarBinding(new, self.visit(binding.value))


def _same_type(a: Any, b: Any) -> bool:
    return ir.is_base_of(a, b) and ir.is_base_of(b, a)
