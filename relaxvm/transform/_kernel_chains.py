"""Chains of elementwise kernels become one kernel that processes memory in blocks, by `FuseOps`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from ..analysis import overwritten_vars
from ..analysis.allocations import uses
from ..executable.debug_info import FusedSpan
from ..ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    DataTypeImm,
    Expr,
    ExprMutator,
    ExternFunc,
    FloatImm,
    Function,
    IntImm,
    Op,
    StringImm,
    TensorType,
    Tuple,
    Var,
    VarBinding,
    prove_equal,
)
from ..kernels._tiles import program_of
from ..kernels.fused import MAX_INPUTS, MAX_STEPS, Fused, Ref, Step, step_of
from ..op import base
from ..op.lowering import KERNEL_PREFIX

__all__ = ["MIN_ELEMENTS", "MIN_IN_TILES", "fuse_kernels"]

_CALL_DPS: Final = Op.get("relax.call_dps_packed")


MIN_ELEMENTS: Final = 1 << 14
"""The size from which a chain is faster than its kernels (bench/bench_fused.py)."""
MIN_IN_TILES: Final = 1 << 8
"""The same where chains run tile by tile in C."""
_LARGE: Final = 1 << 15
"""The size from which even one kernel is faster as a chain, which several threads compute."""


class _Member:
    """A call of a kernel that may be a step of a chain; `chain` is the chain that contains it, and
    `fits_tiles` says whether its tensors are of float32 or bool, or bytes that become float32."""

    __slots__ = ("binding", "chain", "fits_tiles", "is_of_bytes", "name", "operands")

    def __init__(self, binding: Binding, name: str, operands: tuple[Expr, ...]) -> None:
        self.binding = binding
        self.name = name
        self.operands = operands
        types: list[Any] = [binding.var.ty, *[operand.ty for operand in operands]]
        dtypes = {ty.dtype for ty in types if type(ty) is TensorType}
        self.is_of_bytes = name == "cast" and not dtypes.isdisjoint(("int8", "uint8"))
        own = {"float32", "bool"} if not self.is_of_bytes else {"float32", "int8", "uint8"}
        is_float = binding.var.ty.dtype == "float32"
        self.fits_tiles = dtypes <= own and (is_float or not self.is_of_bytes)
        self.chain: list[_Member] = [self]


def _member(binding: Binding, overwritten: set[Var]) -> _Member | None:
    """The call as a step of a chain, if possible.  A chain is computed at its last member, so a
    step must not read a tensor that may be overwritten before that."""
    value = binding.value
    if not isinstance(value, Call) or value.op is not _CALL_DPS:
        return None
    callee, packed = value.args
    if not isinstance(callee, ExternFunc) or not isinstance(packed, Tuple):
        return None
    symbol = callee.global_symbol
    if not symbol.startswith(KERNEL_PREFIX) or type(value.ty) is not TensorType:
        return None
    name, operands = symbol.removeprefix(KERNEL_PREFIX), packed.fields
    step = step_of(name)
    if step is None:
        return None
    if step.takes_dtype:
        if value.ty.dtype is None:
            return None
        name, operands = "cast", (*operands, DataTypeImm(value.ty.dtype))
    plain: Sequence[Expr] = operands
    if step.choices:
        *plain, choice = operands
        if not isinstance(choice, StringImm) or choice.value not in step.choices:
            return None
    if not all(map(_is_operand, plain)):
        return None
    if not overwritten.isdisjoint(operands):
        return None
    if name == "where" and any(type(operand.ty) is not TensorType for operand in operands):
        return None
    return _Member(binding, name, operands)


def _is_operand(expr: Expr) -> bool:
    return type(expr.ty) is TensorType or type(expr) in (IntImm, FloatImm, DataTypeImm)


def _same_shape(a: Any, b: Any) -> bool:
    x, y = a.dims, b.dims
    return x is not None and y is not None and len(x) == len(y) and all(map(prove_equal, x, y))


def _chains(
    block: BindingBlock, min_length: int, min_elements: int, overwritten: set[Var], in_tiles: bool
) -> dict[Var, list[_Member]]:
    """The chains of a block, by the variable of their last member.

    Walks backwards: a member joins the chain of its users if they are all in the same chain and it
    has the shape of the chain's result.  So only the last member is used outside of the chain, and
    the chain can be computed at that point.
    """
    members: dict[Var, _Member] = {}
    users: dict[Var, list[Binding]] = {}
    for binding in block.bindings:
        for var in uses(binding.value):
            users.setdefault(var, []).append(binding)
        member = _member(binding, overwritten)
        # Conversions have kernels of their own in C.
        if member is not None and (not in_tiles or member.name != "cast" or member.fits_tiles):
            members[binding.var] = member
    for member in reversed(list(members.values())):
        var = member.binding.var
        if not isinstance(var, DataflowVar):
            continue
        using = [members.get(b.var) for b in users.get(var, ())]
        if not using or any(u is None for u in using):
            continue
        chain = using[0].chain  # type: ignore[union-attr]
        if any(u.chain is not chain for u in using):  # type: ignore[union-attr]
            continue
        last = chain[0].binding.var
        if in_tiles and member.fits_tiles != chain[0].fits_tiles:
            continue  # one conversion, say, would keep the others from running in tiles
        if len(chain) < MAX_STEPS and _same_shape(var.ty, last.ty):
            chain.append(member)
            member.chain = chain
    found: dict[Var, list[_Member]] = {}
    for member in members.values():
        if member.chain[0] is not member:
            continue
        steps = member.chain[::-1]  # collected backwards
        ty: Any = member.binding.var.ty
        is_single = len(steps) == 1 < min_length and in_tiles and _gains_alone(steps[0])
        if not is_single and (len(steps) < min_length or not _may_have(ty, min_elements)):
            continue
        # Without a program in C, `nn.apply` would have memory of its own for each result.
        must_be_in_tiles = is_single or any(step.name == "nn.apply" for step in steps)
        if len(_inputs(steps)) > MAX_INPUTS or (must_be_in_tiles and not _is_in_tiles(steps)):
            continue
        found[member.binding.var] = steps
    return found


def _is_in_tiles(steps: list[_Member]) -> bool:
    fits = all(step.fits_tiles for step in steps)
    return fits and program_of(_chain_of(steps)) is not None


def _gains_alone(step: _Member) -> bool:
    """Whether one kernel is a chain.  Relu is no ufunc: on few elements, a chain is as fast."""
    ty: Any = step.binding.var.ty
    if step.is_of_bytes:
        return False  # it has a kernel of its own
    if step.name == "nn.relu" and not all(type(dim) is IntImm for dim in ty.dims):
        return True
    return _has(ty, _LARGE)


def _has(ty: Any, elements: int) -> bool:
    """Whether a tensor has at least `elements` elements, for sure unless it is empty."""
    return math.prod([dim.value for dim in ty.dims if type(dim) is IntImm]) >= elements


def _may_have(ty: Any, elements: int) -> bool:
    """Whether a tensor may have at least `elements` elements; symbolic dimensions may be large."""
    known = [dim.value for dim in ty.dims if type(dim) is IntImm]
    return len(known) < len(ty.dims) or math.prod(known) >= elements


def _inputs(steps: list[_Member]) -> list[Expr]:
    inside = {step.binding.var for step in steps}
    found: dict[Expr, None] = {}
    for step in steps:
        for operand in step.operands:
            if type(operand.ty) is TensorType and operand not in inside:
                found[operand] = None
    return list(found)


def _chain_of(steps: list[_Member]) -> Fused:
    refs: dict[Expr, Ref] = {expr: Ref("$", i) for i, expr in enumerate(_inputs(steps))}
    refs.update((step.binding.var, Ref("%", i)) for i, step in enumerate(steps))
    return Fused(
        tuple([Step(s.name, tuple([_operand(o, refs) for o in s.operands])) for s in steps]),
        (len(steps) - 1,),
    )


def _fused(steps: list[_Member]) -> Call:
    inputs, chain = _inputs(steps), _chain_of(steps)
    last = steps[-1].binding
    call: Call = base.call_dps_packed(
        f"{KERNEL_PREFIX}fused", Tuple([*inputs, StringImm(str(chain))]), out_ty=last.value.ty
    )
    call.span = last.value.span
    return call


def _operand(expr: Any, refs: dict[Expr, Ref]) -> Any:
    if type(expr.ty) is TensorType:
        return refs[expr]
    if type(expr) is IntImm and expr.ty.dtype == "bool":
        return bool(expr.value)
    return expr.value


class _Fuser(ExprMutator):
    def __init__(
        self, func: Function, min_length: int, min_elements: int, in_tiles: bool
    ) -> None:
        super().__init__()
        self._in_tiles = in_tiles
        self._overwritten = overwritten_vars(func)
        self._min_length = min_length
        self._min_elements = min_elements

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        if isinstance(block, DataflowBlock):
            chains = _chains(
                block, self._min_length, self._min_elements, self._overwritten, self._in_tiles
            )
            inner = {m.binding.var for steps in chains.values() for m in steps[:-1]}
            if chains:
                bindings: list[Binding] = []
                for binding in block.bindings:
                    if binding.var in inner:
                        continue
                    steps = chains.get(binding.var)
                    if steps is not None:
                        inside = [(step.binding.span, step.binding.var.name) for step in steps[:-1]]
                        span = FusedSpan.of(binding.span, inside)
                        binding = VarBinding(binding.var, _fused(steps), span)
                    bindings.append(binding)
                block = DataflowBlock(bindings, block.span)
        return super().visit_block(block)


def fuse_kernels(
    func: Function, min_length: int, min_elements: int, in_tiles: bool = False
) -> Function:
    """Return a function whose chains of kernels are calls of ``relaxvm.kernel.fused``.

    Args:
        min_length: the minimum number of kernels in a chain.
        min_elements: the minimum number of elements of its result, if known.
        in_tiles: whether chains of float32 run in C, on several threads: single kernels with large
            results become chains, too.
    """
    fused: Function = _Fuser(func, min_length, min_elements, in_tiles).visit(func)
    return fused
