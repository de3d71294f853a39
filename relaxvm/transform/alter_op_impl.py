"""AlterOpImpl: other implementations of operators, which may have other layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from .. import op, te
from ..dpl.replacing import bindings_for
from ..errors import InternalError
from ..ir import (
    Binding,
    BlockBuilder,
    Call,
    Constant,
    Expr,
    ExprMutator,
    Function,
    GlobalVar,
    IntImm,
    IRModule,
    Op,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    VarBinding,
)
from ..ir.index_map import IndexMap
from ..tir import PrimFunc
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["FROZEN_LAYOUT", "OPERATOR_NAME", "REMOVE_PAD", "AlterOpImpl"]

OPERATOR_NAME: Final = "operator_name"
"""The attribute of a PrimFunc: the operator that it implements."""
FROZEN_LAYOUT: Final = "frozen_layout"
"""The attribute of a PrimFunc whose layouts may not be changed."""
REMOVE_PAD: Final = "remove_pad"
"""The operator name of a PrimFunc that takes the first elements along each axis."""

_CALL_TIR: Final = Op.get("relax.call_tir")

Transforms = Mapping[str, Sequence[Any]]


class _Replacer(ExprMutator):
    def __init__(
        self,
        builder: BlockBuilder,
        mod: IRModule,
        implementations: Mapping[str, PrimFunc],
        transforms: Transforms,
    ) -> None:
        super().__init__()
        self._builder, self._mod = builder, mod
        self._implementations, self._transforms = implementations, transforms
        self._made: dict[Any, GlobalVar] = {}

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        new = super().visit_binding(binding)
        if not isinstance(new, VarBinding) or not isinstance(new.value, Call):
            return new
        call = new.value
        if call.op is not _CALL_TIR or not isinstance(call.args[1], Tuple):
            return new
        func = self._mod.functions.get(call.args[0])  # type: ignore[call-overload]
        name = func.attrs.get(OPERATOR_NAME) if isinstance(func, PrimFunc) else None
        if name is None or name not in self._implementations:
            return new
        made = bindings_for(self._replaced(call, str(name)), new, self.in_dataflow)
        if made[-1].var is not binding.var:
            self.var_map[binding.var] = made[-1].var
        return made

    def _replaced(self, call: Call, name: str) -> Expr:
        args: Any = call.args[1]
        maps = list(self._transforms.get(name, ()))
        types = list(call.ty.fields) if isinstance(call.ty, TupleType) else [call.ty]
        if maps and len(maps) != len(args.fields) + len(types):
            raise ValueError(
                f"AlterOpImpl: {name}: expected a map for each of {len(args.fields)} operands and "
                f"{len(types)} results, got {len(maps)}"
            )
        maps = maps or [None] * (len(args.fields) + len(types))
        inputs = [_laid_out(x, index_map) for x, index_map in zip(args.fields, maps, strict=False)]
        outs = maps[len(args.fields) :]
        new_types = [_type_of(ty, index_map) for ty, index_map in zip(types, outs, strict=True)]
        func = self._function(name)
        out_ty: Any = new_types if isinstance(call.ty, TupleType) else new_types[0]
        found: Any = op.call_tir(func, Tuple(inputs), out_ty)
        if not isinstance(call.ty, TupleType):
            return self._back(found, types[0], outs[0])
        fields = [
            self._back(TupleGetItem(found, k), ty, index_map)
            for k, (ty, index_map) in enumerate(zip(types, outs, strict=True))
        ]
        return Tuple(fields)

    def _function(self, name: str) -> GlobalVar:
        if name not in self._made:
            func: Any = self._implementations[name]
            func = func.with_attr(OPERATOR_NAME, name).with_attr(FROZEN_LAYOUT, True)
            hint = name.replace(".", "_") + "_replacement"
            self._made[name] = self._builder.add_func(func, hint)
        return self._made[name]

    def _back(self, value: Any, ty: Any, index_map: IndexMap | None) -> Expr:
        """A result in the layout that the program expects."""
        if index_map is None:
            found: Expr = value
            return found
        try:
            inverse, outside = index_map.non_surjective_inverse(ty.dims)
        except ValueError:
            raise InternalError(
                f"AlterOpImpl: {index_map} of {ty} has no inverse: "
                "Non bijective transforms on input and output buffers are not supported"
            ) from None
        inverse = IndexMap(inverse.initial_indices, inverse.final_indices)
        found = op.layout_transform(value, inverse)
        if isinstance(outside, IntImm):
            return found
        return op.call_tir(self._remove_pad(ty), Tuple([found]), ty)  # type: ignore[no-any-return]

    def _remove_pad(self, ty: Any) -> GlobalVar:
        key = REMOVE_PAD, ty.ndim, ty.dtype
        if key not in self._made:
            func = _remove_pad(ty.ndim, ty.dtype)
            self._made[key] = self._builder.add_func(func, REMOVE_PAD)
        return self._made[key]


def _remove_pad(rank: int, dtype: str) -> PrimFunc:
    """The first elements along each axis: the shape of the result says how many."""
    source = te.placeholder([Var(f"p{k}", "int64") for k in range(rank)], dtype, "input")
    target = te.compute(
        [Var(f"i{k}", "int64") for k in range(rank)],
        lambda *i: source[i],
        "output",
        varargs_names=[f"ax{k}" for k in range(rank)],
    )
    func = te.create_prim_func([source, target])
    marked: PrimFunc = func.without_attr("global_symbol").with_attr(OPERATOR_NAME, REMOVE_PAD)
    return marked


def _type_of(ty: Any, index_map: IndexMap | None) -> Type:
    if index_map is None:
        same: Type = ty
        return same
    if not isinstance(ty, TensorType) or ty.dims is None:
        raise ValueError(f"AlterOpImpl: expected results of known shape, got {ty}")
    return TensorType(index_map.map_shape(ty.dims), ty.dtype, ty.vdevice)


def _laid_out(x: Expr, index_map: IndexMap | None) -> Expr:
    if index_map is None or (isinstance(x, Constant) and x.data.ndim == 0):
        return x
    found: Expr = op.layout_transform(x, index_map)
    return found


def AlterOpImpl(
    op_impl_map: Mapping[str, PrimFunc],
    op_buffer_transforms: Mapping[str, Sequence[IndexMap | Callable[..., Any] | None]],
) -> Pass:
    """Replace PrimFuncs by others that implement the same operators, perhaps in other layouts.

    Args:
        op_impl_map: the attribute "operator_name" of PrimFuncs -> what to call instead.
        op_buffer_transforms: the same -> a map of indices for each operand and result, from the
            layout in the program to that of the PrimFunc; None, or no maps at all, for the same
            layout.  `layout_transform` is called for the operands, and for the results with the map
            back; what that adds at the end is removed by another PrimFunc.

    Raises:
        InternalError: a map of a result has no map back.
        ValueError: there are too few or too many maps, or a shape is not known.

    Source: ``tvm.relax.transform.AlterOpImpl`` of apache-tvm 0.27.
    """
    transforms = {
        name: [
            each if each is None or isinstance(each, IndexMap) else IndexMap.from_func(each)
            for each in maps
        ]
        for name, maps in op_buffer_transforms.items()
    }

    @module_pass(name="AlterOpImpl")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        builder = BlockBuilder(mod.copy())
        replacer = _Replacer(builder, mod, op_impl_map, transforms)
        for var, func in mod.functions.items():
            if isinstance(func, Function):
                builder.update_func(var, replacer.visit(func))
        return builder.get()

    return run
