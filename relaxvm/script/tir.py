"""The namespace ``T`` of script: scalars and TIR functions.

Scalar functions are those of `relaxvm.tir.intrinsics`; data types are names, such as ``T.int64``.

Source: ``tvm.script.tirx`` of apache-tvm 0.27.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, overload

from ..ir import prim as _prim
from ..ir.expr import Call as _Call
from ..ir.expr import Expr, prim_type
from ..ir.expr import FloatImm as FloatImm
from ..ir.expr import IntImm as IntImm
from ..ir.expr import StringImm as _StringImm
from ..ir.index_map import IndexMap as _IndexMap
from ..ir.op import Op as _Op
from ..tir import intrinsics as _intrinsics
from ..tir.buffer import IterVar as _IterVar
from ..tir.buffer import Range as _Range
from ..tir.buffer import as_index as _as_index
from ..tir.stmt import ForKind as _ForKind
from . import tir_forms as _forms
from .entry import decorated_function as _decorated_function
from .ir import meta_var as meta_var
from .markers import FunctionAttrs as _FunctionAttrs
from .type_forms import DTypeMaker

_RAW: Final = {
    cls.__name__: cls
    for cls in vars(_prim).values()
    if isinstance(cls, type) and issubclass(cls, Expr) and cls.__module__ == _prim.__name__
}


_Script = Callable[..., Any]


@overload
def prim_func(func: _Script, /) -> Any: ...
@overload
def prim_func(
    func: None = ...,
    private: builtins.bool = ...,
    check_well_formed: builtins.bool = ...,
    s_tir: builtins.bool = ...,
) -> Callable[[_Script], Any]: ...
def prim_func(
    func: _Script | None = None,
    private: builtins.bool = False,
    check_well_formed: builtins.bool = True,
    s_tir: builtins.bool = False,
) -> Any:
    """Decorator: parse the Python function and replace it by a `PrimFunc`.

    Args:
        func: the function, if the decorator is used without parentheses.
        private: if true, it gets no attribute "global_symbol".
        check_well_formed: whether to reject a function that is not well-formed.
        s_tir: accepted for compatibility and ignored; blocks are always allowed.

    Raises:
        DiagnosticError: there is an error in the script.
    """
    if func is not None:
        return _decorated_function(func, sys._getframe(1), "T.prim_func", check_well_formed)

    def decorate(func: Any) -> Any:
        return _decorated_function(func, sys._getframe(1), "T.prim_func", check_well_formed)

    return decorate


vars(prim_func)["script_kind"] = "tir"


# Scalars


def _raw(cls: Any) -> Any:
    """Return a constructor of a node without folding; numbers get the other operand's data type."""

    def node(operands: Sequence[Any], span: Any) -> Any:
        dtype = next((o.dtype for o in operands if isinstance(o, Expr)), _forms.PLAIN_INT.get())
        return cls(*[_number(o, dtype) for o in operands], span=span)

    make: Any
    if cls in (_prim.Not, _prim.BitwiseNot):

        def make(a: Any, span: Any = None) -> Any:
            return node((a,), span)

    else:

        def make(a: Any, b: Any, span: Any = None) -> Any:
            return node((a, b), span)

    make.__name__ = cls.__name__
    make.__doc__ = cls.__doc__
    return make


def _number(value: Any, dtype: str) -> Expr:
    if isinstance(value, builtins.bool) or (isinstance(value, float) and not _prim.is_float(dtype)):
        return _prim.as_scalar(value)
    return _prim.as_scalar(value, dtype)


def Cast(dtype: str, value: Any, span: Any = None) -> Expr:
    """A scalar converted to another data type, as a node."""
    return _prim.Cast(str(dtype), _number(value, _forms.PLAIN_INT.get()), span=span)


def cast(value: Any, dtype: str) -> Expr:
    """A scalar converted to another data type; constants are folded."""
    return _prim.cast(value, str(dtype))


def Select(condition: Any, true_value: Any, false_value: Any, span: Any = None) -> Expr:
    """`true_value` if `condition` else `false_value`; both may be evaluated."""
    values = (true_value, false_value)
    dtype = next((v.dtype for v in values if isinstance(v, Expr)), _forms.PLAIN_INT.get())
    then, orelse = [_number(v, dtype) for v in values]
    return _prim.Select(_prim.as_scalar(condition), then, orelse, span)


def Let(expr: Any, where: Mapping[Any, Any]) -> Expr:
    """`expr`, in which variables are bound to values."""
    result = _prim.as_scalar(expr)
    for var, value in reversed(list(where.items())):
        result = _prim.Let(var, _prim.as_scalar(value, var.ty.dtype), result)
    return result


def Call(
    op: Any, args: Any, attrs: Any = None, ty_args: Any = None, span: Any = None, ret_ty: Any = None
) -> Expr:
    """A call of an operator, given by the operator or its name, without type inference:
    ``T.Call(op, args, ret_ty=dtype)``, or as before, ``T.Call(dtype, op, args)``."""
    if ret_ty is None:
        dtype, op, args, attrs = op, args, attrs, None
    else:
        dtype = ret_ty
    if isinstance(op, str):
        op = _Op.get(op)
    return _Call(
        op, [_argument(a) for a in args], attrs, ty_args or (), span=span,
        ret_ty=prim_type(str(getattr(dtype, "dtype", dtype))),
    )  # fmt: skip


def _argument(value: Any) -> Expr:
    if isinstance(value, Expr):
        return value
    return _StringImm(value) if isinstance(value, str) else _number(value, _forms.PLAIN_INT.get())


min = _prim.minimum  # noqa: A001
max = _prim.maximum  # noqa: A001
truncdiv = _prim.truncdiv
truncmod = _prim.truncmod
floordiv = _prim.floordiv
floormod = _prim.floormod
fabs = _intrinsics.abs
bool = DTypeMaker("bool")  # noqa: A001
boolean = bool
handle = DTypeMaker("handle")


# Buffers


class Buffer:
    """``T.Buffer(shape, dtype)``: the type of a buffer parameter."""

    def __new__(
        cls,
        shape: Any,
        dtype: str = "float32",
        data: None = None,
        strides: Sequence[Any] | None = None,
        elem_offset: Any = None,
        byte_offset: None = None,
        scope: str = "global",
        align: int = 0,
        offset_factor: int = 0,
    ) -> Any:
        """Return a buffer; strings in the shape are expressions over symbolic variables.

        Raises:
            ValueError: `data` or `byte_offset` is given: the memory is that of the parameter.
        """
        if byte_offset is not None:
            raise ValueError(f"byte_offset: expected None; use elem_offset; got {byte_offset}")
        return _forms.make_buffer(
            shape, dtype, data, strides, elem_offset, scope, align or -1, offset_factor
        )


def match_buffer(
    param: Any,
    shape: Any = None,
    dtype: str = "float32",
    data: None = None,
    strides: Sequence[Any] | None = None,
    elem_offset: Any = None,
    scope: str = "global",
    align: int = -1,
    offset_factor: int = 0,
) -> Any:
    """``A = T.match_buffer(a, shape, dtype)``: the buffer that a parameter of type ``T.handle``
    points to, or in a block, a buffer that is a region of another one."""
    shape = _match_shape(param, shape)
    return _forms.Match(param, _forms.make_buffer(
        shape, dtype, data, strides, elem_offset, scope, align, offset_factor))  # fmt: skip


def _match_shape(param: Any, shape: Any) -> Any:
    if shape is None:
        return [r.extent for r in _forms.Regions(True, [param]).regions[0].region]
    return shape


def sblock_alloc_buffer(
    shape: Any,
    dtype: str = "float32",
    data: None = None,
    strides: Sequence[Any] | None = None,
    elem_offset: Any = None,
    scope: str = "global",
    align: int = -1,
    offset_factor: int = 0,
) -> Any:
    """``D = T.sblock_alloc_buffer(shape, dtype)``: a buffer that exists inside the block."""
    return _forms.BlockAlloc(_forms.make_buffer(
        shape, dtype, data, strides, elem_offset, scope, align, offset_factor))  # fmt: skip


def alloc_buffer(
    shape: Any,
    dtype: str = "float32",
    data: None = None,
    strides: Sequence[Any] | None = None,
    elem_offset: Any = None,
    byte_offset: None = None,
    scope: str = "global",
    align: int = -1,
    offset_factor: int = 0,
    *,
    annotations: Any = None,
) -> Any:
    """``D = T.alloc_buffer(shape, dtype)``: a buffer for the statements that follow."""
    buffer = Buffer(shape, dtype, data, strides, elem_offset, byte_offset, scope, align,
                    offset_factor)  # fmt: skip
    return _forms.Alloc(buffer, annotations)


def alloc_local(
    shape: Any,
    dtype: str = "float32",
    data: None = None,
    strides: Sequence[Any] | None = None,
    elem_offset: Any = None,
    byte_offset: None = None,
    *,
    scope: str = "local",
    align: int = -1,
    offset_factor: int = 0,
    annotations: Any = None,
) -> Any:
    """``D = T.alloc_local(shape, dtype)``: a small buffer for the statements that follow."""
    return alloc_buffer(shape, dtype, data, strides, elem_offset, byte_offset, scope, align,
                        offset_factor, annotations=annotations)  # fmt: skip


# Loops


def _loop(kind: _ForKind) -> Any:
    def make(
        start: Any,
        stop: Any = None,
        *,
        annotations: Mapping[str, Any] | None = None,
        step: Any = None,
        dtype: str | None = None,
        extent: Any = None,
    ) -> Any:
        if extent is not None:
            span = _Range(start, extent)
        else:
            span = _forms.range_to(start, stop, dtype)
        return _forms.LoopFrame(
            kind, [span], None if step is None else _as_index(step), annotations
        )

    make.__name__ = kind.name.lower()
    make.__doc__ = (
        f"A loop of kind {kind.name.lower()}: ``(stop)`` or ``(start, stop)``, also with "
        "``step=``; `dtype` is the data type of the variable, by default that of the bounds."
    )
    return make


serial = _loop(_ForKind.SERIAL)
parallel = _loop(_ForKind.PARALLEL)
vectorized = _loop(_ForKind.VECTORIZED)
unroll = _loop(_ForKind.UNROLLED)


def thread_binding(
    start: Any,
    stop: Any = None,
    thread: str | None = None,
    *,
    annotations: Mapping[str, Any] | None = None,
) -> Any:
    """A loop over the threads of a device; here the iterations run one after the other."""
    return _forms.LoopFrame(
        _ForKind.THREAD_BINDING, [_forms.range_to(start, stop)], None, annotations, thread or ""
    )


def grid(*extents: Any, dtype: str | None = None) -> Any:
    """Nested loops with the given extents or ``(start, stop)`` pairs; `dtype` is the data type of
    the variables, by default that of the extents."""
    pairs = [e if isinstance(e, tuple) else (e, None) for e in extents]
    return _forms.LoopFrame(
        _ForKind.SERIAL, [_forms.range_to(start, stop, dtype) for start, stop in pairs]
    )


# Blocks


def sblock(name: str = "", no_realize: builtins.bool = False) -> Any:
    """``with T.sblock(name):`` begins a block."""
    return _forms.BlockFrame(name)


block = sblock


def init() -> Any:
    """``with T.init():`` the statements for the first iteration of a block's reduction."""
    return _forms.InitFrame()


def reads(*regions: Any) -> Any:
    """The regions that a block reads; inferred if absent."""
    return _forms.Regions(True, _listed(regions))


def writes(*regions: Any) -> Any:
    """The regions that a block writes; inferred if absent."""
    return _forms.Regions(False, _listed(regions))


def _listed(regions: Sequence[Any]) -> Sequence[Any]:
    return regions[0] if len(regions) == 1 and isinstance(regions[0], (list, tuple)) else regions


def where(predicate: Any) -> Any:
    """The condition under which a block runs."""
    return _forms.Where(predicate)


def sblock_attr(attrs: Mapping[str, Any]) -> Any:
    """Annotations of a block."""
    return _forms.BlockAttrs(attrs)


block_attr = sblock_attr


def _axis(kind: int) -> Callable[..., Any]:
    def make(dom: Any, binding: Any, dtype: str = "int32") -> Any:
        span = _forms.range_to(*dom) if isinstance(dom, tuple) else _forms.range_to(dom)
        return _forms.Axis(kind, span, _as_index(binding))

    return make


class axis:
    """Iteration variables of a block: ``v = T.axis.spatial(extent, value)``; the domain is an
    extent or a pair (start, stop).  `dtype` is taken as in TVM; the data type is the binding's."""

    spatial = S = staticmethod(_axis(_IterVar.DATA_PAR))
    reduce = R = staticmethod(_axis(_IterVar.COMM_REDUCE))
    scan = staticmethod(_axis(_IterVar.ORDERED))
    opaque = staticmethod(_axis(_IterVar.OPAQUE))

    @staticmethod
    def remap(kinds: str, bindings: Sequence[Any], dtype: str = "int32") -> Any:
        """Several variables of kinds S (spatial) and R (reduce), over the ranges of loops.

        Raises:
            ValueError: the numbers of kinds and bindings differ, or a kind is neither S nor R.
        """
        if len(kinds) != len(bindings) or set(kinds) - {"S", "R"}:
            raise ValueError(
                f"T.axis.remap: expected one of S and R for each of {len(bindings)} bindings, got "
                f"{kinds!r}"
            )
        which = {"S": _IterVar.DATA_PAR, "R": _IterVar.COMM_REDUCE}
        return _forms.Axes(
            [_forms.Axis(which[k], None, b) for k, b in zip(kinds, bindings, strict=True)]
        )


# Other statements


def var(name: str = "", dtype: str = "int64") -> Any:
    """``n = T.var("n")``: an earlier form of ``n = T.int64()``; the name is that of the target."""
    return DTypeMaker(dtype)()


def evaluate(value: Any) -> Any:
    """Evaluate an expression for its side effect; ``T.evaluate(0)`` does nothing."""
    return _forms.EvaluateForm(value)


def func_attr(attrs: Mapping[str, Any]) -> Any:
    """Set attributes of the function."""
    return _FunctionAttrs(attrs)


def attr(node_or_dict: Any, attr_key: str, value: Any) -> Any:
    """``with T.attr(node, key, value):`` statements with an annotation."""
    return _forms.Attribute(node_or_dict, attr_key, value)


let = _forms.LetType()


def bind(value: Any) -> Any:
    """``v = T.bind(value)``: a name for a value."""
    return _forms.Let(value)


def __getattr__(name: str) -> Any:
    if name in _RAW:
        found: Any = _raw(_RAW[name])
    elif name in _intrinsics.__all__ and name not in ("INTRINSICS", "Intrinsic"):
        found = getattr(_intrinsics, name)
    else:
        found = _data_type(name)
    globals()[name] = found
    return found


def _data_type(name: str) -> DTypeMaker:
    from ..dtypes import as_dtype, dtype_name
    from ..errors import did_you_mean

    try:
        dtype = dtype_name(as_dtype(name))
    except (TypeError, ValueError):
        dtype = None
    if dtype == name:
        return DTypeMaker(name)
    known = [*_RAW, *_intrinsics.__all__, *(key for key in globals() if not key.startswith("_"))]
    raise AttributeError(f"T has no {name!r}{did_you_mean(name, known)}")


def index_map(
    mapping: Any, *, inverse_index_map: Any = None, index_dtype: builtins.str = "int64"
) -> _IndexMap:
    """A map of indices: of a function from indices to indices.  See `relaxvm.ir.IndexMap`."""
    return _IndexMap.from_func(
        mapping, inverse_index_map=inverse_index_map, index_dtype=index_dtype
    )
