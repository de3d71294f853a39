"""Tensors, parameters, effects and modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...dtypes import as_dtype, dtype_name
from ...ir import (
    AnyType,
    BlockBuilder,
    DataflowVar,
    Expr,
    FloatImm,
    IntImm,
    IRModule,
    TensorType,
    TupleGetItem,
    TupleType,
    Var,
    const,
    is_scalar,
)
from ...messages import describe
from ...values import to_value
from .subroutine import SubroutineMixin

if TYPE_CHECKING:
    from .extern import ExternModule

__all__ = [
    "Effect",
    "Module",
    "ModuleDict",
    "ModuleList",
    "Object",
    "Parameter",
    "ParameterDict",
    "ParameterList",
    "Tensor",
    "builder",
    "expr_of",
    "get_default_dtype",
    "set_default_dtype",
    "wrap_nested",
    "wrap_tensor",
]

Dim = int | str | Expr
"""A dimension: a number, the name of a symbolic variable, or an expression."""

_DEFAULT_DTYPE: Final[ContextVar[str]] = ContextVar("default_dtype", default="float32")


def get_default_dtype() -> str:
    """Return the data type of parameters that are made without one."""
    return _DEFAULT_DTYPE.get()


def set_default_dtype(dtype: str) -> None:
    """Set the data type of parameters that are made without one."""
    _DEFAULT_DTYPE.set(dtype_name(as_dtype(dtype)))


def builder() -> BlockBuilder:
    """Return the builder of the function that is being exported.

    Raises:
        RuntimeError: none is.
    """
    found = BlockBuilder.current()
    if found is None:
        raise RuntimeError(
            "operations on nn.Tensor are called by Module.export_tvm, or within "
            "BlockBuilder.function; there is no function to emit them into"
        )
    return found


OPERATIONS: Final[dict[str, Callable[..., Any]]] = {}
"""Name -> operation that a method of `Tensor` stands for; filled by `op`."""


class Tensor:
    """A tensor in a function that is being made; operations on it emit bindings.

    Python's operators work elementwise; numbers become constants of the tensor's data type.
    """

    _expr: Expr

    def __init__(self, *, _expr: Expr) -> None:
        ty = _expr.ty
        if not isinstance(ty, TensorType) or ty.dims is None or ty.dtype is None:
            raise TypeError(f"nn.Tensor: expected a tensor of known shape and data type, got {ty}")
        self._expr = _expr

    @staticmethod
    def from_const(data: Any) -> Tensor:
        """Return a constant; numbers and float64 arrays become float32."""
        array = np.asarray(data)
        return Tensor(_expr=const(array.astype("float32") if array.dtype == "float64" else array))

    @staticmethod
    def from_scalar(data: float, dtype: str) -> Tensor:
        """Return a constant without dimensions."""
        return Tensor(_expr=const(data, dtype))

    @staticmethod
    def from_ty(ty: TensorType, name: str = "tensor") -> Tensor:
        """Return a new variable of a type."""
        return Tensor(_expr=Var(name, ty))

    @staticmethod
    def placeholder(shape: Sequence[Dim], dtype: str, name: str = "tensor") -> Tensor:
        """Return a new variable.  Names in the shape are new symbolic variables.

        Raises:
            TypeError: a dimension is of another kind.
            ValueError: a dimension is negative.
        """
        dims: list[Any] = []
        for dim in shape:
            if isinstance(dim, str):
                dims.append(Var(dim, "int64"))
            elif isinstance(dim, (int, np.integer, IntImm)):
                if int(dim) < 0:
                    raise ValueError(f"{name}: a dimension is at least 0, got {dim}")
                dims.append(int(dim))
            elif isinstance(dim, Expr) and is_scalar(dim):
                dims.append(dim)
            else:
                raise TypeError(
                    f"{name}: a dimension is an int, a name or an expression, got {describe(dim)}"
                )
        return Tensor(_expr=Var(name, TensorType(dims, dtype)))

    @property
    def shape(self) -> list[Any]:
        """The dimensions: ints where they are known, else expressions."""
        return [dim.value if isinstance(dim, IntImm) else dim for dim in self._expr.ty.dims]

    @property
    def ndim(self) -> int:
        return len(self._expr.ty.dims)

    @property
    def dtype(self) -> str:
        return self._expr.dtype

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        return f'Tensor([{shape}], "{self.dtype}")'

    # Operations

    def _apply(self, name: str, *others: Any) -> Any:
        operands = [self._operand(other) for other in others]
        return OPERATIONS[name](self, *operands)

    def _operand(self, other: Any) -> Any:
        if isinstance(other, (IntImm, FloatImm)):
            other = other.value
        if isinstance(other, (int, float)):
            return Tensor.from_scalar(other, self.dtype)
        return other

    def __add__(self, other: Any) -> Any:
        return self._apply("add", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._apply("subtract", other)

    def __rsub__(self, other: Any) -> Any:
        return self._operand(other)._apply("subtract", self)

    def __mul__(self, other: Any) -> Any:
        return self._apply("multiply", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self._apply("divide", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._operand(other)._apply("divide", self)

    def __neg__(self) -> Any:
        return self._apply("negative")

    def __lt__(self, other: Any) -> Any:
        return self._apply("less", other)

    def __le__(self, other: Any) -> Any:
        return self._apply("less_equal", other)

    def __gt__(self, other: Any) -> Any:
        return self._apply("greater", other)

    def __ge__(self, other: Any) -> Any:
        return self._apply("greater_equal", other)

    def astype(self, dtype: str) -> Tensor:
        """Return the tensor converted to a data type."""
        return OPERATIONS["astype"](self, dtype)  # type: ignore[no-any-return]

    def maximum(self, other: Any) -> Tensor:
        """Return the elementwise maximum."""
        return self._apply("maximum", other)  # type: ignore[no-any-return]

    def minimum(self, other: Any) -> Tensor:
        """Return the elementwise minimum."""
        return self._apply("minimum", other)  # type: ignore[no-any-return]

    def reshape(self, *shape: Any) -> Tensor:
        """Return the tensor in another shape."""
        return OPERATIONS["reshape"](self, shape)  # type: ignore[no-any-return]

    def permute_dims(self, *axes: Any) -> Tensor:
        """Return the tensor with its axes in another order."""
        return OPERATIONS["permute_dims"](self, axes)  # type: ignore[no-any-return]

    def repeat(self, repeats: int, axis: int | None = None) -> Tensor:
        """Return the tensor with every element repeated."""
        return OPERATIONS["repeat"](self, repeats, axis)  # type: ignore[no-any-return]


class Parameter(Tensor):
    """A weight of a module: a parameter of the exported functions.

    Attributes:
        attrs: whatever the program wants to remember of it.
    """

    attrs: dict[str, Any]

    def __init__(self, shape: Sequence[Dim], dtype: str | None = None) -> None:
        placeholder = Tensor.placeholder(shape, dtype or get_default_dtype(), "param")
        super().__init__(_expr=placeholder._expr)
        self._data: NDArray[Any] | None = None
        self.attrs = {}

    @property
    def data(self) -> NDArray[Any] | None:
        """The values, once they are set."""
        return self._data

    @data.setter
    def data(self, data: Any) -> None:
        if data is None:
            self._data = None
            return
        array = to_value(data)
        if not isinstance(array, np.ndarray):
            raise TypeError(f"data of a parameter: expected an array, got {describe(data)}")
        if list(array.shape) != self.shape:
            raise ValueError(
                f"data of a parameter: expected shape {tuple(self.shape)}, got {array.shape}"
            )
        if dtype_name(array.dtype) != self.dtype:
            raise ValueError(
                f"data of a parameter: expected data type {self.dtype}, got {array.dtype}"
            )
        self._data = array

    def to(self, dtype: str | None = None) -> None:
        """Change the data type.

        Raises:
            ValueError: the parameter has values.
        """
        if dtype is None:
            return
        if self._data is not None:
            raise ValueError("the data type of a parameter that has values cannot be changed")
        self._expr = Tensor.placeholder(self.shape, dtype, "param")._expr


class Object:
    """A value of any kind, such as a cache, in a function that is being made."""

    def __init__(self, *, _expr: Expr, _name: str) -> None:
        self._expr = _expr if isinstance(_expr, Var) else builder().emit(_expr, _name)
        if not isinstance(self._expr.ty, AnyType):
            raise TypeError(f"nn.Object: expected a value of type Object, got {self._expr.ty}")


class Effect:
    """State that a function takes and returns: a cache, or the order of printed output."""

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[Var]:
        """Emit the first values."""
        raise NotImplementedError

    def create(self, name_hint: str) -> list[Var]:
        """Make the variables that are parameters of a function."""
        raise NotImplementedError

    def set_state(self, state_vars: list[Var]) -> None:
        """Set the values at the beginning of a function."""
        raise NotImplementedError

    def finalize(self) -> list[Var]:
        """Return the values at the end of a function, and forget them."""
        raise NotImplementedError

    def to(self, dtype: str | None = None) -> None:
        """Change the data type, if there is one."""


class Module(SubroutineMixin):
    """Base of models and layers.  Attributes that are parameters, modules, or lists and dicts of
    these made with `ModuleList` and its like, belong to it.

    A subclass has the method ``forward``, or methods of any name that the spec of `export_tvm`
    lists.
    """

    def children(self) -> Iterable[tuple[str, Any]]:
        """The names and values of what may be or contain parameters."""
        return vars(self).items()

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """The parameters, with names like "layers.0.weight"."""
        yield from attributes(self, prefix, Parameter)

    def parameters(self) -> Iterator[Parameter]:
        """The parameters."""
        for _, param in self.named_parameters():
            yield param

    def state_dict(
        self, *, prefix: str = "", destination: dict[str, Parameter] | None = None
    ) -> dict[str, Parameter]:
        """Return the parameters by name, added to a dict if one is given."""
        found = {} if destination is None else destination
        found.update(self.named_parameters(prefix))
        return found

    def load_state_dict(
        self, state_dict: Mapping[str, Parameter], strict: bool = True
    ) -> tuple[list[str], list[str]]:
        """Copy the values of parameters.

        Returns:
            The names that `state_dict` lacks, and those that the module lacks.

        Raises:
            KeyError: there are any, and `strict`.
            ValueError: a parameter in `state_dict` has no values.
        """
        own = self.state_dict()
        unexpected = [name for name in state_dict if name not in own]
        missing = [name for name in own if name not in state_dict]
        if strict and (missing or unexpected):
            raise KeyError(
                f"load_state_dict: missing: {', '.join(missing) or 'none'}; unexpected: "
                f"{', '.join(unexpected) or 'none'}"
            )
        for name, param in state_dict.items():
            if name not in own:
                continue
            if param.data is None:
                raise ValueError(f"load_state_dict: parameter {name!r} has no values")
            own[name].data = param.data
        return missing, unexpected

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        forward = getattr(self, "forward", None)
        if forward is None:
            raise NotImplementedError(f"module {type(self).__name__} has no method 'forward'")
        return forward(*args, **kwargs)

    def to(self, dtype: str | None = None) -> None:
        """Change the data type of all parameters and effects."""
        for _, item in self.children():
            if isinstance(item, (Module, Parameter, Effect)):
                item.to(dtype)
        if dtype is not None and isinstance(getattr(self, "dtype", None), str):
            self.dtype = dtype

    def export_tvm(self, spec: Any, debug: bool = False, allow_extern: bool = False) -> Any:
        """Return the program of the methods that a spec lists.

        Args:
            spec: a `spec.ModuleSpec`, or a dict from the names of methods to dicts from the names
                of their arguments to what `spec` offers.
            debug: whether functions take and return an effect that keeps `op.print_` in order.
            allow_extern: whether the methods may use an `ExternModule`.

        Returns:
            The module, and the parameters with their names, in the order of the functions'
            parameters; with `allow_extern`, also the external modules.

        Raises:
            ValueError: there are external modules, and not `allow_extern`.
        """
        from .exporter import Exporter
        from .spec import ModuleSpec

        module, params, externs = Exporter(debug).build(ModuleSpec.from_raw(spec, self))
        if allow_extern:
            return module, params, externs
        if externs:
            raise ValueError("the methods use external modules: pass allow_extern=True")
        return module, params


class _List(Module):
    """Base of the lists of modules and of parameters."""

    KIND: type = object

    def __init__(self, items: Iterable[Any] | None) -> None:
        self._items: list[Any] = []
        for item in items or ():
            self._items.append(self._check(item))

    def _check(self, item: Any) -> Any:
        if not isinstance(item, self.KIND):
            raise TypeError(
                f"{type(self).__name__} elements must be nn.{self.KIND.__name__}, but got "
                f"{type(item).__name__}"
            )
        return item

    def children(self) -> Iterable[tuple[str, Any]]:
        return [(str(i), item) for i, item in enumerate(self._items)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __getitem__(self, idx: int) -> Any:
        return self._items[idx]

    def __setitem__(self, idx: int, item: Any) -> None:
        self._items[idx] = self._check(item)

    def __len__(self) -> int:
        return len(self._items)


class _Dict(Module):
    """Base of the dicts of modules and of parameters."""

    KIND: type = object

    def __init__(self, items: Mapping[str, Any] | None) -> None:
        self._items: dict[str, Any] = {}
        self._update(items or {})

    def children(self) -> Iterable[tuple[str, Any]]:
        return self._items.items()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __setitem__(self, key: str, item: Any) -> None:
        if not isinstance(key, str):
            raise TypeError(
                f"{type(self).__name__} keys must be strings, but got {type(key).__name__}"
            )
        if not isinstance(item, self.KIND):
            raise TypeError(
                f"{type(self).__name__} values must be nn.{self.KIND.__name__}, but got "
                f"{type(item).__name__}"
            )
        self._items[key] = item

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._items.keys()

    def values(self) -> Iterable[Any]:
        """The elements."""
        return self._items.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Pairs of names and elements."""
        return self._items.items()

    def get(self, key: str, default: Any = None) -> Any:
        """Return an element, or `default`."""
        return self._items.get(key, default)

    def _update(self, items: Mapping[str, Any]) -> None:
        for key, item in items.items():
            self[key] = item

    def pop(self, key: str) -> Any:
        """Remove and return an element."""
        return self._items.pop(key)

    def clear(self) -> None:
        """Remove all elements."""
        self._items.clear()


class ModuleList(_List):
    """A list of modules; as a module, it applies one after the other."""

    KIND = Module

    def __init__(self, modules: Iterable[Any] | None = ()) -> None:
        super().__init__(modules)

    @property
    def modules(self) -> list[Any]:
        """The modules."""
        return self._items

    def append(self, module: Any) -> None:
        """Add a module."""
        self._items.append(self._check(module))

    def extend(self, modules: Iterable[Any]) -> None:
        """Add several modules."""
        for module in modules:
            self.append(module)

    def forward(self, x: Any) -> Any:
        for module in self._items:
            x = module(x)
        return x


class ParameterList(_List):
    """A list of parameters."""

    KIND = Parameter

    def __init__(self, params: Iterable[Any] | None = None) -> None:
        super().__init__(params)

    @property
    def params(self) -> list[Any]:
        """The parameters."""
        return self._items

    def append(self, param: Any) -> None:
        """Add a parameter."""
        self._items.append(self._check(param))

    def extend(self, params: Iterable[Any]) -> None:
        """Add several parameters."""
        for param in params:
            self.append(param)


class ModuleDict(_Dict):
    """A dict of modules."""

    KIND = Module

    def __init__(self, modules: Mapping[str, Any] | None = None) -> None:
        super().__init__(modules)

    @property
    def modules(self) -> dict[str, Any]:
        """The modules."""
        return self._items

    def update(self, modules: Mapping[str, Any]) -> None:
        """Add or replace modules."""
        self._update(modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items.values())


class ParameterDict(_Dict):
    """A dict of parameters."""

    KIND = Parameter

    def __init__(self, params: Mapping[str, Any] | None = None) -> None:
        super().__init__(params)

    @property
    def params(self) -> dict[str, Any]:
        """The parameters."""
        return self._items

    def update(self, params: Mapping[str, Any]) -> None:
        """Add or replace parameters."""
        self._update(params)


def attributes(root: Module, prefix: str, kind: type) -> Iterator[tuple[str, Any]]:
    """The attributes of a kind, of a module and of all modules in it, with their full names."""
    for name, item in root.children():
        if isinstance(item, kind):
            yield prefix + name, item
        elif isinstance(item, Module):
            yield from attributes(item, f"{prefix}{name}.", kind)


def expr_of(value: Any) -> Any:
    """The expression of a tensor or object; anything else as it is."""
    return value._expr if isinstance(value, (Tensor, Object)) else value


def wrap_nested(expr: Expr, name: str) -> Any:
    """Bind an expression to a variable of the function that is being made, and return it as a
    `Tensor`, or as a tuple of these.

    Raises:
        TypeError: it is neither a tensor nor a tuple of them.
    """
    if not isinstance(expr, DataflowVar):
        expr = builder().emit(expr, name)
    if isinstance(expr.ty, TensorType):
        return Tensor(_expr=expr)
    if isinstance(expr.ty, TupleType):
        return tuple(
            wrap_nested(TupleGetItem(expr, i), f"{name}_{i}") for i in range(len(expr.ty.fields))
        )
    raise TypeError(f"{name}: expected a tensor or a tuple of tensors, got {expr.ty}")


def wrap_tensor(expr: Expr, name: str) -> Tensor:
    """As `wrap_nested`, of an expression that is a tensor."""
    found: Tensor = wrap_nested(expr, name)
    return found


Exported = tuple[IRModule, list[tuple[str, Parameter]], "list[ExternModule]"]
"""What an export returns."""
