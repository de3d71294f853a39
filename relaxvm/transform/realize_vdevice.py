"""RealizeVDevice: propagate the devices of hints and types to all tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..ir import (
    Binding,
    Call,
    Expr,
    ExprMutator,
    ExprVisitor,
    Function,
    GlobalVar,
    If,
    IRModule,
    MatchCast,
    Op,
    SeqExpr,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    VDevice,
)
from ..op import base
from ..op.registry import Operator
from ..values import Device
from ..values import device as device_of
from ._replacing import replace_functions
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["RealizeVDevice"]

_HINT: Final = Op.get("relax.hint_on_device")
_COPY: Final = Op.get("relax.to_vdevice")
_TOGETHER: Final = (Op.get("relax.call_tir"), Op.get("relax.call_dps_packed"))


class _Place:
    """The device of a tensor, shared with other tensors once they are joined (union-find)."""

    __slots__ = ("parent", "vdevice")

    def __init__(self, vdevice: VDevice | None = None) -> None:
        self.parent: _Place | None = None
        self.vdevice = vdevice

    def root(self) -> _Place:
        place = self
        while place.parent is not None:
            place = place.parent
        return place


def _join(a: Any, b: Any) -> None:
    """Join the places of two tensors, or tuples of tensors, unless they have different devices."""
    if isinstance(a, list) and isinstance(b, list):
        for x, y in zip(a, b, strict=False):
            _join(x, y)
    elif isinstance(a, _Place) and isinstance(b, _Place):
        x, y = a.root(), b.root()
        if x is y or (x.vdevice and y.vdevice and x.vdevice is not y.vdevice):
            return
        x.vdevice = x.vdevice or y.vdevice
        y.parent = x


def _places(ty: Any, is_given: bool = True) -> Any:
    """New places for the values of a type.  The devices in the type are used if it was declared
    (`is_given`), not if it was inferred."""
    if type(ty) is TensorType:
        return _Place(ty.vdevice if is_given else None)
    if type(ty) is TupleType:
        return [_places(field, is_given) for field in ty.fields]
    return None


def _tensors(places: Any) -> list[_Place]:
    if isinstance(places, list):
        return [tensor for place in places for tensor in _tensors(place)]
    return [places] if isinstance(places, _Place) else []


def _is_operator(call: Call) -> bool:
    """Whether a call is of an operator that computes on the device of its arguments."""
    op = call.op
    return isinstance(op, Op) and type(op.record) is Operator and op is not _COPY


def _has_own_type(binding: Binding) -> bool:
    """Whether the type of a variable was declared, not inferred from its value."""
    value = binding.value
    if isinstance(value, Call):
        return value.op is not _HINT and not _is_operator(value)
    return isinstance(binding, MatchCast)


class _Collector(ExprVisitor):
    """Finds the tensors that have to be on the same device."""

    def __init__(self, mod: IRModule, device: Callable[[Call], VDevice]) -> None:
        self._mod = mod
        self._device = device
        self._of_var: dict[Expr, Any] = {}

    def of(self, expr: Expr) -> Any:
        """The place of a value: for a tuple a list of places, None if it is not a tensor."""
        if isinstance(expr, Var):
            if expr not in self._of_var:
                self._of_var[expr] = _places(expr.ty)
            return self._of_var[expr]
        if isinstance(expr, Tuple):
            return [self.of(field) for field in expr.fields]
        if isinstance(expr, TupleGetItem):
            of_tuple = self.of(expr.tuple_value)
            return of_tuple[expr.index] if isinstance(of_tuple, list) else None
        if isinstance(expr, SeqExpr):
            return self.of(expr.body)
        return None

    def visit_function(self, func: Function) -> None:
        super().visit_function(func)
        _join(self.of(func.body), _places(func.ret_ty))

    def visit_binding(self, binding: Binding) -> None:
        super().visit_binding(binding)
        value, var = binding.value, binding.var
        place = self._of_var[var] = _places(var.ty, is_given=_has_own_type(binding))
        if isinstance(value, Call):
            self._of_call(value, place)
        elif isinstance(value, If):
            _join(place, self.of(value.true_branch))
            _join(place, self.of(value.false_branch))
        else:
            _join(place, self.of(value))

    def _of_call(self, call: Call, place: Any) -> None:
        if call.op is _HINT:
            if place.root().vdevice is None:
                place.root().vdevice = self._device(call)
            _join(place, self.of(call.args[0]))
        elif isinstance(call.op, GlobalVar):
            func = self._mod.functions.get(call.op)
            if isinstance(func, Function):
                for param, arg in zip(func.params, call.args, strict=True):
                    _join(self.of(param), self.of(arg))
                _join(place, self.of(func.body))
        elif _is_operator(call) or call.op in _TOGETHER:
            tensors = _tensors([place, *map(self.of, call.args)])
            for tensor in tensors[1:]:
                _join(tensors[0], tensor)


class _Realizer(ExprMutator):
    def __init__(self, collector: _Collector, device: Callable[[Call], VDevice]) -> None:
        super().__init__()
        self._collector = collector
        self._device = device

    def visit_function(self, func: Function) -> Expr:
        params = [self._on_device(param) for param in func.params]
        self.var_map.update(zip(func.params, params, strict=True))
        body = self.visit(func.body)
        ret_ty = _placed(func.ret_ty, self._collector.of(func.body))
        if body is func.body and ret_ty is func.ret_ty and params == list(func.params):
            return func
        return Function(params, body, ret_ty, func.is_pure, func.attrs, func.span,
                        type_params=func.type_params)  # fmt: skip

    def _on_device(self, param: Var) -> Var:
        ty = _placed(param.ty, self._collector.of(param))
        return param if ty is param.ty else Var(param.name, ty, param.span)

    def visit_call(self, call: Call) -> Expr:
        if call.op is not _HINT:
            return super().visit_call(call)
        arg, vdevice = self.visit(call.args[0]), self._device(call)
        if arg.ty.vdevice is vdevice:
            return arg  # type: ignore[no-any-return]
        copy: Call = base.to_vdevice(arg, vdevice)
        copy.span = call.span
        return copy


def _placed(ty: Any, place: Any) -> Any:
    """Return a type with the devices that were found."""
    if type(ty) is TensorType and isinstance(place, _Place):
        vdevice = place.root().vdevice
        if vdevice is ty.vdevice:
            return ty
        return TensorType.of(ty.shape, ty.dtype, vdevice, ty.ndim)
    if type(ty) is TupleType and isinstance(place, list):
        fields = [_placed(field, inner) for field, inner in zip(ty.fields, place, strict=True)]
        same = all(a is b for a, b in zip(fields, ty.fields, strict=True))
        return ty if same else TupleType(fields, ty.span)
    return ty


def _kind(vdevice: VDevice) -> int:
    """DLPack's number of the kind of a device."""
    name = vdevice.target.split()[0]
    kind: int = device_of({"llvm": "cpu", "c": "cpu"}.get(name, name)).dlpack_device_type()
    return kind


def _devices_of(mod: IRModule) -> Callable[[Call], VDevice]:
    """Return a function that finds the module's device for a hint."""
    devices: list[Any] = mod.global_infos.get("vdevice", [])

    def find(call: Call) -> VDevice:
        attrs = call.attrs
        kind, index, scope = attrs["device_type"], attrs["index"], attrs["memory_scope"]
        for device in devices:
            if (_kind(device), device.vdevice_id, device.memory_scope) == (kind, index, scope):
                return device  # type: ignore[no-any-return]
        raise ValueError(
            f"{call}: the module has no device {Device(kind, index)} with memory scope {scope!r}; "
            "I.module_global_infos declares devices"
        )

    return find


def RealizeVDevice() -> Pass:
    """Assign devices to tensors.  R.hint_on_device, or a device in a type, puts a tensor on that
    device, together with the tensors that are computed from it and those it is computed from.  If a
    tensor is already on another device, the hint becomes R.to_vdevice.

    Raises:
        ValueError: a hint names a device that the module does not declare.
        TypeError, ValueError: operands are on different devices.
    """

    @module_pass(name="RealizeVDevice")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        device = _devices_of(mod)
        collector = _Collector(mod, device)
        functions = {v: f for v, f in mod.functions.items() if isinstance(f, Function)}
        for func in functions.values():
            collector.visit(func)
        realizer = _Realizer(collector, device)
        return replace_functions(mod, {v: realizer.visit(f) for v, f in functions.items()})

    return run
