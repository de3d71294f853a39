"""What the methods of a module take: the types of arguments, and how parameters are passed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ...messages import describe

__all__ = ["Int", "MethodSpec", "ModuleSpec", "Object", "Tensor", "Tuple"]

_MODES: Final = ("plain", "packed", "none")


class Int:
    """An int: in the program, a shape of one dimension."""

    def __repr__(self) -> str:
        return "int"


class Tensor:
    """A tensor; names in its shape are symbolic dimensions, the same for all arguments."""

    def __init__(self, shape: Sequence[Any], dtype: str) -> None:
        self.shape = list(shape)
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"Tensor([{', '.join(map(str, self.shape))}], '{self.dtype}')"


class Object:
    """A value of a class derived from `nn.Object`."""

    def __init__(self, object_type: type) -> None:
        self.object_type = object_type

    def __repr__(self) -> str:
        return "object"


class Tuple:
    """A tuple or list of arguments."""

    def __init__(self, name: str, elements: Sequence[Any]) -> None:
        if not isinstance(elements, (tuple, list)):
            raise TypeError(
                f"argument {name!r}: expected a tuple or list, got {describe(elements)}"
            )
        self.name = name
        self.elements = elements

    def __repr__(self) -> str:
        return repr(self.elements)


def _argument(spec: Any, name: str) -> Any:
    if spec in (Int, int, "int"):
        return Int()
    if isinstance(spec, (Int, Tensor, Object)):
        return spec
    if isinstance(spec, Tuple):
        spec = spec.elements
    if isinstance(spec, (tuple, list)):
        return Tuple(name, type(spec)(_argument(s, f"{name}_{i}") for i, s in enumerate(spec)))
    raise TypeError(
        f"argument {name!r}: expected int, spec.Tensor, spec.Object or a tuple of these, got "
        f"{describe(spec)}"
    )


class MethodSpec:
    """A method and what it takes.

    Attributes:
        method: the bound method.
        arg_names, arg_specs: its arguments.
        param_mode: how the function takes the module's parameters: each as a parameter ("plain"),
            as one tuple ("packed"), or not at all ("none").
        effect_mode: the same for effects.

    Raises:
        ValueError: a mode is not one of these.
    """

    def __init__(
        self,
        method: Callable[..., Any],
        arg_names: Sequence[str],
        arg_specs: Sequence[Any],
        param_mode: str = "plain",
        effect_mode: str = "plain",
    ) -> None:
        for name, mode in (("param_mode", param_mode), ("effect_mode", effect_mode)):
            if mode not in _MODES:
                raise ValueError(f"{name}: expected one of {', '.join(_MODES)}, got {mode!r}")
        self.method = method
        self.arg_names = list(arg_names)
        self.arg_specs = list(arg_specs)
        self.param_mode = param_mode
        self.effect_mode = effect_mode

    def _text(self, name: str) -> str:
        pairs = zip(self.arg_names, self.arg_specs, strict=True)
        return f"{name}({', '.join(f'{arg}: {spec}' for arg, spec in pairs)})"

    def __repr__(self) -> str:
        return self._text("MethodSpec")

    @staticmethod
    def from_raw(spec: Any, method: Callable[..., Any]) -> MethodSpec:
        """Return the spec that a dict describes: argument -> spec, and under "$" the modes.

        Raises:
            ValueError: the method has no argument of a name; one without a default is missing.
            TypeError: a spec is of an unknown kind.
        """
        if isinstance(spec, MethodSpec):
            return spec
        given = dict(spec)
        modes: Mapping[str, str] = given.pop("$", {})
        parameters = inspect.signature(method).parameters
        name = getattr(method, "__name__", str(method))
        for argument in given:
            if argument not in parameters:
                raise ValueError(
                    f"method {name!r} has no argument {argument!r}; it has: "
                    f"{', '.join(parameters) or 'none'}"
                )
        names = []
        for argument, parameter in parameters.items():
            if argument in given:
                names.append(argument)
            elif parameter.default is parameter.empty and parameter.kind not in (
                parameter.VAR_POSITIONAL,
                parameter.VAR_KEYWORD,
            ):
                raise ValueError(f"method {name!r}: the spec lacks argument {argument!r}")
        specs = [_argument(given[argument], argument) for argument in names]
        return MethodSpec(method, names, specs, **modes)


class ModuleSpec:
    """The methods of a module that are exported."""

    def __init__(
        self, module: Any, method_names: Sequence[str], method_specs: Sequence[MethodSpec]
    ) -> None:
        self.module = module
        self.method_names = list(method_names)
        self.method_specs = list(method_specs)

    @staticmethod
    def from_raw(spec: Any, module: Any) -> ModuleSpec:
        """Return the spec that a dict describes: method -> its spec, as a `MethodSpec` or dict."""
        if isinstance(spec, ModuleSpec):
            return spec
        specs = [MethodSpec.from_raw(s, getattr(module, name)) for name, s in spec.items()]
        return ModuleSpec(module, list(spec), specs)

    def __repr__(self) -> str:
        pairs = zip(self.method_names, self.method_specs, strict=True)
        return "ModuleSpec:\n" + "\n".join(f"  {spec._text(name)}" for name, spec in pairs)
