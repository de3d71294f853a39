"""FuseTIR: make one PrimFunc of each group of calls that FuseOps has found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..analysis.variables import uses_of_binding
from ..ir import (
    Binding,
    Call,
    DataflowVar,
    Expr,
    ExprMutator,
    Function,
    GlobalVar,
    IRModule,
    MatchCast,
    Op,
    PrimType,
    ShapeExpr,
    ShapeType,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    VarBinding,
    free_vars,
)
from ..op import base
from ..tir.buffer import Buffer, BufferType
from ..tir.function import PrimFunc
from ..tir.inline import bind_shape, inlined_body, with_root
from ..tir.stmt import Stmt, seq
from ..tir.visitor import post_order_visit
from .dead_code_elimination import DeadCodeElimination
from .pass_infra import Pass, PassContext, Sequential, module_pass

__all__ = ["FuseTIR"]

_CALL_TIR = Op.get("relax.call_tir")
_CALL_TIR_INPLACE = Op.get("relax.call_tir_inplace")

Path = tuple[int, ...]
"""Where a tensor is in a parameter: indices of nested tuples."""


class _Fused:
    """What a group becomes.

    Attributes:
        func: the PrimFunc.
        inputs: the tensors that it takes: position of the parameter of the group, and the path.
        scalars: its scalar parameters.
        inplace: for each result the input that it is written to, -1 for a new tensor; empty if all
            are new.
    """

    def __init__(
        self,
        func: PrimFunc,
        inputs: list[tuple[int, Path]],
        scalars: list[Var],
        inplace: list[int],
    ) -> None:
        self.func = func
        self.inputs = inputs
        self.scalars = scalars
        self.inplace = inplace


Value = Any
"""What a variable of a group stands for: a `Buffer`, a list of values for a tuple, or a scalar."""


class _Fusion:
    """Makes a PrimFunc of a group."""

    def __init__(self, name: str, group: Function, mod: IRModule) -> None:
        self._name = name
        self._group = group
        self._mod = mod
        self._values: dict[Var, Value] = {}
        self._bodies: list[Stmt] = []
        self._allocs: list[Buffer] = []

    def run(self) -> _Fused:
        """Make it.

        Raises:
            ValueError: the group contains something other than calls of PrimFuncs.
        """
        places: dict[Buffer, tuple[int, Path]] = {}
        for position, param in enumerate(self._group.params):
            for path, buffer in self._param(param):
                places[buffer] = position, path
        for block in self._group.body.blocks:
            for binding in block.bindings:
                self._add(binding)
        outputs = list(_flat(self._value(self._group.body.body)))
        used = self._used_params(places, outputs)
        inputs = [buffer for buffer in places if buffer in used]
        new = [buffer for buffer in outputs if buffer not in places]
        if len(set(outputs)) != len(outputs):
            raise self._error("a tensor is returned twice")
        allocs = [buffer for buffer in self._allocs if buffer not in new]
        body = with_root(seq(self._bodies), allocs)
        scalars = self._scalars(body, [*inputs, *new, *allocs], inputs)
        func = PrimFunc([*inputs, *scalars, *new], body, None, {"tirx.noalias": True})
        inplace = [inputs.index(b) if b in places else -1 for b in outputs]
        return _Fused(
            func,
            [places[buffer] for buffer in inputs],
            scalars,
            inplace if max(inplace, default=-1) >= 0 else [],
        )

    def _error(self, problem: str) -> ValueError:
        return ValueError(
            f"FuseTIR: function {self._name!r} has the attribute 'Primitive', so it may only call "
            f"PrimFuncs; {problem}"
        )

    def _param(self, param: Var) -> Iterator[tuple[Path, Buffer]]:
        """Give a parameter its value; its buffers with their paths."""
        if isinstance(param.ty, (PrimType, ShapeType)):
            return
        self._values[param] = value = self._new(param.ty, param.name)
        yield from _with_paths(value, ())

    def _new(self, ty: Type | None, name: str) -> Value:
        """New buffers for a type."""
        if isinstance(ty, TupleType):
            return [self._new(field, f"{name}_{i}") for i, field in enumerate(ty.fields)]
        if not isinstance(ty, TensorType) or ty.dims is None or ty.dtype is None:
            raise self._error(f"{name!r} is of type {ty}, expected a tensor of known shape")
        return Buffer(name, BufferType(ty.dims, ty.dtype))

    def _add(self, binding: Binding) -> None:
        if isinstance(binding, MatchCast):
            raise self._error(f"the match_cast that defines {binding.var.name!r} is not a call")
        value = binding.value
        if isinstance(value, Call):
            self._values[binding.var] = self._call(binding.var, value)
        else:
            self._values[binding.var] = self._value(value)

    def _value(self, expr: Expr) -> Value:
        """The value of an operand."""
        if isinstance(expr, Var) and expr in self._values:
            return self._values[expr]
        if isinstance(expr, Tuple):
            return [self._value(field) for field in expr.fields]
        if isinstance(expr, TupleGetItem):
            return self._value(expr.tuple_value)[expr.index]
        if isinstance(expr.ty, PrimType):
            return expr
        raise self._error(f"got {expr}")

    def _call(self, var: Var, call: Call) -> Value:
        func = self._callee(call)
        assert isinstance(call.args[1], Tuple)
        args = [self._value(arg) for arg in call.args[1].fields]
        indices = call.attrs["inplace_indices"] if call.op is _CALL_TIR_INPLACE else ()
        types = call.ty.fields if isinstance(call.ty, TupleType) else [call.ty]
        names = iter(self._names_of_outputs(func.params[len(args) :]))
        new: list[Buffer] = []
        results: list[Buffer] = []
        for i, ty in enumerate(types):
            if i < len(indices) and indices[i] >= 0:
                results.append(args[indices[i]])
            else:
                new.append(self._new(ty, next(names, "output")))
                results.append(new[-1])
        extra = call.args[2].values if len(call.args) > 2 else ()  # type: ignore[attr-defined]
        operands = [*args, *new, *extra]
        if len(operands) != len(func.params):
            raise self._error(
                f"{func_name(call)!r} takes {len(func.params)} arguments, got {len(operands)}"
            )
        values: dict[Var, Any] = {}
        for param, operand in zip(func.params, operands, strict=True):
            values[param] = operand
            if isinstance(param, Buffer):
                if not isinstance(operand, Buffer):
                    raise self._error(f"{func_name(call)!r} takes a tensor, got {operand}")
                bind_shape(param, operand.ty.shape, values)
        body, allocs = inlined_body(func, values)
        self._bodies.append(body)
        self._allocs += [*allocs, *new]
        return results if isinstance(call.ty, TupleType) else results[0]

    def _callee(self, call: Call) -> PrimFunc:
        if call.op not in (_CALL_TIR, _CALL_TIR_INPLACE):
            raise self._error(f"got a call of {getattr(call.op, 'name', call.op)}")
        func = self._mod.functions.get(call.args[0])  # type: ignore[call-overload]
        if not isinstance(func, PrimFunc):
            raise self._error(f"{func_name(call)!r} is not a PrimFunc of the module")
        if func.ret_type is not None:
            raise self._error(f"{func_name(call)!r} returns a scalar, which ends a function")
        return func

    def _names_of_outputs(self, params: Sequence[Var]) -> list[str]:
        """Names for what is written to parameters, other than those of the tensors so far."""
        taken = {buffer.name for buffer in self._allocs}
        names = []
        for param in params:
            new = f"{param.name}_intermediate"
            count = 0
            while new in taken:
                count += 1
                new = f"{param.name}_intermediate_{count}"
            taken.add(new)
            names.append(new)
        return names

    def _used_params(
        self, places: Mapping[Buffer, tuple[int, Path]], outputs: Sequence[Buffer]
    ) -> set[Buffer]:
        """The buffers of parameters that are operands of a call, or written."""
        used: set[Buffer] = set(outputs)
        for block in self._group.body.blocks:
            for binding in block.bindings:
                if isinstance(binding.value, Call):
                    used.update(_flat([self._value(v) for v in _operands(binding)]))
        return used & set(places)

    def _scalars(
        self, body: Stmt, buffers: Sequence[Buffer], inputs: Sequence[Buffer]
    ) -> list[Var]:
        """The scalar parameters: those of the group whose values the shapes of inputs do not give,
        as far as they are used."""
        known = {dim for buffer in inputs for dim in buffer.ty.shape if isinstance(dim, Var)}
        dims = {var for buffer in buffers for dim in buffer.ty.shape for var in free_vars(dim)}
        needed = dims | scalars_of(body)
        found: dict[Var, None] = {}
        for param in self._group.params:
            if isinstance(param.ty, PrimType):
                values: Sequence[Expr] = [param]
            elif isinstance(param.ty, ShapeType):
                values = param.ty.values or ()
            else:
                continue
            for value in values:
                if not isinstance(value, Var):
                    continue
                if value in needed and value not in known:
                    found[value] = None
        return list(found)


def scalars_of(body: Stmt) -> set[Var]:
    """The scalar variables that statements use."""
    found: set[Var] = set()

    def add(node: Any) -> None:
        if isinstance(node, Var) and not isinstance(node, Buffer):
            found.add(node)

    post_order_visit(body, add)
    return found


def func_name(call: Call) -> str:
    """The name of the PrimFunc that is called."""
    return str(getattr(call.args[0], "name_hint", call.args[0]))


def _flat(value: Value) -> Iterator[Buffer]:
    if isinstance(value, list):
        for part in value:
            yield from _flat(part)
    elif isinstance(value, Buffer):
        yield value


def _with_paths(value: Value, path: Path) -> Iterator[tuple[Path, Buffer]]:
    if isinstance(value, list):
        for index, part in enumerate(value):
            yield from _with_paths(part, (*path, index))
    else:
        yield path, value


def _operands(binding: Binding) -> list[Var]:
    used = uses_of_binding(binding)
    return [var for var in used if not isinstance(var.ty, (PrimType, ShapeType))]


class _Callers(ExprMutator):
    """Replaces calls of groups by calls of what they became."""

    def __init__(
        self,
        groups: Mapping[GlobalVar, Function],
        made: Mapping[GlobalVar, tuple[GlobalVar, _Fused]],
    ) -> None:
        super().__init__()
        self._groups = groups
        self._made = made

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        value = binding.value
        if not isinstance(value, Call) or not isinstance(value.op, GlobalVar):
            return super().visit_binding(binding)
        if value.op not in self._made:
            return super().visit_binding(binding)
        args = self.visit_all(value.args)
        bindings: list[Binding] = []
        call = self._call(value, args, isinstance(binding.var, DataflowVar), bindings)
        new = self.rebind(binding, call)
        return [*bindings, new]

    def _call(
        self, old: Call, args: Sequence[Expr], in_dataflow: bool, bindings: list[Binding]
    ) -> Call:
        assert isinstance(old.op, GlobalVar)
        group = self._groups[old.op]
        var, fused = self._made[old.op]
        scalars = _scalar_arguments(group, args)
        operands: list[Expr] = []
        for position, path in fused.inputs:
            expr = args[position]
            for index in path:
                expr = self._element(expr, index, in_dataflow, bindings)
            operands.append(expr)
        operands += [scalars[scalar] for scalar in fused.scalars]
        packed = Tuple(operands)
        assert old.ty is not None
        call: Call
        if fused.inplace:
            call = base.call_tir_inplace(var, packed, fused.inplace, old.ty)
        else:
            call = base.call_tir(var, packed, old.ty)
        call.span = old.span
        return call

    def _element(
        self, expr: Expr, index: int, in_dataflow: bool, bindings: list[Binding]
    ) -> Expr:
        if isinstance(expr, Tuple):
            return expr.fields[index]
        item = TupleGetItem(expr, index)
        name = f"{expr.name}_{index}" if isinstance(expr, Var) else "lv"
        new = (DataflowVar if in_dataflow else Var)(name, item.ty)
        bindings.append(VarBinding(new, item))
        return new


def _scalar_arguments(group: Function, args: Sequence[Expr]) -> dict[Var, Expr]:
    """The values of the scalar parameters of a group, and of those in its shapes."""
    found: dict[Var, Expr] = {}
    for param, arg in zip(group.params, args, strict=True):
        if isinstance(param.ty, PrimType):
            found[param] = arg
        elif isinstance(param.ty, ShapeType):
            given = arg.values if isinstance(arg, ShapeExpr) else getattr(arg.ty, "values", None)
            for var, value in zip(param.ty.values or (), given or (), strict=False):
                if isinstance(var, Var):
                    found[var] = value
    return found


def FuseTIR() -> Pass:
    """Make one PrimFunc of every private function with the attribute "Primitive", as `FuseOps`
    makes them, and call it with ``R.call_tir``: the loops follow each other, and what is between
    them is allocated inside.  PrimFuncs that are no longer called are removed.

    Tuples are passed by the elements that are used.  Where the last call works in place, the
    whole does, by ``R.call_tir_inplace``.

    Raises:
        ValueError: such a function contains something other than calls of PrimFuncs.

    Requires: FuseOps.

    Source: ``relax.transform.FuseTIR`` of apache-tvm 0.27.
    """

    @module_pass(name="FuseTIRInner")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        groups = {
            var: func
            for var, func in mod.items()
            if isinstance(func, Function)
            and func.attrs.get("Primitive")
            and not {"Composite", "Codegen"} & set(func.attrs)
        }
        if not groups:
            return mod
        made: dict[GlobalVar, tuple[GlobalVar, _Fused]] = {}
        for var, func in groups.items():
            fused = _Fusion(var.name_hint, func, mod).run()
            made[var] = GlobalVar(var.name_hint, fused.func.ty), fused
        result = IRModule(None, mod.attrs, mod.global_infos, mod.type_definitions)
        result.sources = mod.sources
        for var, func in mod.items():
            if var in made:
                new, fused = made[var]
                result[new] = fused.func
            elif isinstance(func, Function):
                result[var] = _Callers(groups, made).visit(func)
            else:
                result[var] = func
        return result

    return Sequential([run, DeadCodeElimination()], name="FuseTIR")
