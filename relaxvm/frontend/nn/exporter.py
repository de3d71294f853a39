"""Making a program of a module: its methods are called with symbolic tensors."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

from ...ir import (
    ANY,
    BlockBuilder,
    Expr,
    ShapeType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
)
from ...messages import describe
from . import spec as specs
from .core import Effect, Exported, Object, Parameter, Tensor, attributes, expr_of
from .extern import ExternModule
from .modules import IOEffect

__all__ = ["Exporter", "add_extern"]

_CURRENT: Final[ContextVar[Exporter | None]] = ContextVar("exporter", default=None)


def add_extern(mod: ExternModule) -> None:
    """Add an external module to the program that is being exported.

    Raises:
        RuntimeError: none is.
        ValueError: another external module has a function of the same name.
    """
    Exporter.current().add_external_module(mod)


class Exporter:
    """Exports the methods of one module.

    Attributes:
        builder: what the functions are made with.
        io_effect: the effect that keeps the order of printed output; None without `debug`.
        extern_mods: the external modules that methods have added.
    """

    def __init__(self, debug: bool = False) -> None:
        self.builder = BlockBuilder()
        self.io_effect = IOEffect() if debug else None
        self.extern_mods: list[ExternModule] = []

    @staticmethod
    def current() -> Exporter:
        """Return the exporter at work.

        Raises:
            RuntimeError: there is none.
        """
        found = _CURRENT.get()
        if found is None:
            raise RuntimeError("only a method of a module that is being exported may do this")
        return found

    def add_external_module(self, mod: ExternModule) -> None:
        """See `add_extern`."""
        taken = {name for known in self.extern_mods for name in known.symbols}
        twice = sorted(taken & set(mod.symbols))
        if twice:
            raise ValueError(f"external functions are defined twice: {', '.join(twice)}")
        self.extern_mods.append(mod)

    def build(self, spec: specs.ModuleSpec) -> Exported:
        """Return the program, the parameters and the external modules."""
        effects: list[tuple[str, Effect]] = list(attributes(spec.module, "", Effect))
        if self.io_effect is not None:
            effects.insert(0, ("", self.io_effect))
        params: list[tuple[str, Parameter]] = list(attributes(spec.module, "", Parameter))
        before = [param._expr for _, param in params]
        token = _CURRENT.set(self)
        try:
            if effects:
                self._initialize(effects)
            for name, method in zip(spec.method_names, spec.method_specs, strict=True):
                _Method(self.builder, method, params, effects).emit(name)
        finally:
            _CURRENT.reset(token)
            for (_, param), expr in zip(params, before, strict=True):
                param._expr = expr
        return self.builder.get(), params, self.extern_mods

    def _initialize(self, effects: list[tuple[str, Effect]]) -> None:
        builder = self.builder
        with builder.function("_initialize_effect", []):
            with builder.dataflow():
                states = [var for n, effect in effects for var in effect.emit_init(n, builder)]
                output = builder.emit_output(builder.emit(Tuple(states)))
            builder.emit_func_output(output)


class _Method:
    """One method on its way to a function."""

    def __init__(
        self,
        builder: BlockBuilder,
        spec: specs.MethodSpec,
        params: list[tuple[str, Parameter]],
        effects: list[tuple[str, Effect]],
    ) -> None:
        self.builder = builder
        self.spec = spec
        self.params = params
        self.effects = effects

    def emit(self, name: str) -> None:
        spec = self.spec
        states = {"packed": 1, "none": 0, "plain": len(self.effects)}[spec.effect_mode]
        with self.builder.function(name, attrs={"num_input": len(spec.arg_specs) + states}):
            with self.builder.dataflow():
                output, inputs = self._body()
            self.builder.emit_func_output(output, inputs)

    def _body(self) -> tuple[Var, list[Var]]:
        spec = self.spec
        dims: dict[str, Var] = {}
        arguments = [
            _argument(name, s, dims) for name, s in zip(spec.arg_names, spec.arg_specs, strict=True)
        ]
        variables = [
            Var(name, _type_of(argument)) if not isinstance(argument, (Tensor, Object))
            else expr_of(argument)
            for name, argument in zip(spec.arg_names, arguments, strict=True)
        ]  # fmt: skip
        inputs = [*variables, *self._effect_inputs(), *self._param_inputs()]
        values = [
            self._unpacked(argument, var, var.name)
            for argument, var in zip(arguments, variables, strict=True)
        ]
        result = _exprs_of(spec.method(**dict(zip(spec.arg_names, values, strict=True))))
        states = [var for _, effect in self.effects for var in effect.finalize()]
        if states and spec.effect_mode != "none":
            result = Tuple([result, Tuple(states)])
        return self.builder.emit_output(result), inputs

    def _unpacked(self, argument: Any, var: Expr, name: str) -> Any:
        """What the method gets for an argument."""
        if not isinstance(argument, specs.Tuple):
            return Tensor(_expr=var) if isinstance(argument, Tensor) else argument
        fields = []
        for i, element in enumerate(argument.elements):
            field = self.builder.emit(TupleGetItem(var, i), f"{name}_{i}")
            fields.append(self._unpacked(element, field, f"{name}_{i}"))
        return type(argument.elements)(fields)

    def _param_inputs(self) -> list[Var]:
        """Make variables for the parameters; dimensions of the same name are the same."""
        dims: dict[str, Var] = {}
        inputs: list[Var] = []
        for name, param in self.params:
            shape = [
                dims.setdefault(d.name, Var(d.name, "int64")) if isinstance(d, Var) else d
                for d in param.shape
            ]
            var = Tensor.placeholder(shape, param.dtype, name)._expr
            assert isinstance(var, Var)
            param._expr = var
            inputs.append(var)
        mode = self.spec.param_mode
        if mode == "none":
            return []
        if mode == "plain":
            return inputs
        packed = Var("packed_params", TupleType([var.ty for var in inputs]))
        for i, (name, param) in enumerate(self.params):
            param._expr = self.builder.emit(TupleGetItem(packed, i), name)
        return [packed]

    def _effect_inputs(self) -> list[Var]:
        created = [(effect, effect.create(name)) for name, effect in self.effects]
        for effect, state in created:
            effect.set_state(state)
        inputs = [var for _, state in created for var in state]
        mode = self.spec.effect_mode
        if mode == "none":
            return []
        if mode == "plain":
            return inputs
        packed = Var("packed_effects", TupleType([var.ty for var in inputs]))
        position = 0
        for effect, state in created:
            fields = []
            for var in state:
                fields.append(self.builder.emit(TupleGetItem(packed, position), var.name))
                position += 1
            effect.set_state(fields)
        return [packed]


def _argument(name: str, spec: Any, dims: dict[str, Var]) -> Any:
    """An argument as `Tensor`, `Object`, symbolic int, or `specs.Tuple` of these."""
    if isinstance(spec, specs.Int):
        return dims.setdefault(name, Var(name, "int64"))
    if isinstance(spec, specs.Tensor):
        shape = [
            dims.setdefault(d, Var(d, "int64")) if isinstance(d, str) else d for d in spec.shape
        ]
        return Tensor.placeholder(shape, spec.dtype, name)
    if isinstance(spec, specs.Object):
        return spec.object_type(_expr=Var(name, ANY), _name=name)
    if isinstance(spec, specs.Tuple):
        elements = [_argument(f"{name}_{i}", s, dims) for i, s in enumerate(spec.elements)]
        return specs.Tuple(name, type(spec.elements)(elements))
    raise TypeError(f"argument {name!r}: expected a spec, got {describe(spec)}")


def _type_of(argument: Any) -> Type:
    if isinstance(argument, specs.Tuple):
        return TupleType([_type_of(element) for element in argument.elements])
    if isinstance(argument, Var):
        return ShapeType([argument])
    ty: Type = expr_of(argument).ty
    return ty


def _exprs_of(result: Any) -> Any:
    if isinstance(result, (Tensor, Object)):
        return result._expr
    if isinstance(result, (tuple, list)):
        return Tuple([_exprs_of(value) for value in result])
    raise TypeError(
        f"a method of a module returns tensors, or tuples and lists of them; got {describe(result)}"
    )
