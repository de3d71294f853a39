"""The arguments of a run: from array files, from the command line, or random."""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..contrib.onnxruntime.element_types import dtype_of_type
from ..dtypes import as_dtype
from ..errors import did_you_mean
from ..executable import FunctionInfo, VMExecutable
from ..executable.model_info import ValueInfo, is_named
from ..values import Shape
from ..vm.entry_checks import ParamSpec, Symbol, params_of
from .arrays import open_arrays
from .console import Console
from .exits import UsageError

__all__ = ["add_input_arguments", "gather_inputs"]

_DEFAULT_DTYPE: Final = np.dtype(np.float32)
_SHOWN_MISSING: Final = 10
_RANDOM_ITEMS: Final = 2
"""The length of random sequences."""
_RANDOM_INTEGERS: Final = 10
"""The end of the range of random integers, small enough for most uses as indices."""


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("inputs")
    group.add_argument(
        "--input", metavar="[NAME=]PATH", action="append", default=[],
        help="arrays: an .npz (keys: parameter names, or arg0, arg1, ... in order; x.0, x.1 for "
        "items of a tuple x) or an .npy (the parameter NAME, or the next one). May be repeated",
    )  # fmt: skip
    group.add_argument(
        "--arg", metavar="NAME=VALUE", action="append", default=[],
        help='a value in JSON: n=5, flag=true, s=[2,3] (a shape), name=\\"text\\", x=null, '
        'm={\\"a\\": 0.5} (a map)',
    )  # fmt: skip
    group.add_argument("--random", action="store_true",
                       help="random values for parameters without a value")  # fmt: skip
    group.add_argument("--seed", type=int, default=0, help="seed of --random (default 0)")
    group.add_argument("--dim", metavar="NAME=SIZE", action="append", default=[],
                       help="size of a symbolic dimension for --random, by name or heap slot")
    group.add_argument(
        "--shape", metavar="NAME=DIMS[:DTYPE]", action="append", default=[],
        help="shape of a random tensor if the code does not determine it: x=2,3:float32",
    )  # fmt: skip


def gather_inputs(
    args: argparse.Namespace, executable: VMExecutable, info: FunctionInfo, console: Console
) -> list[Any]:
    """Return one value per parameter of a function.

    The names that parameters have in the model of the program are accepted, too.

    Args:
        args: the options of `add_input_arguments`.
        executable, info: the program and the function.
        console: for notes.

    Raises:
        UsageError: names, values and parameters do not fit, or values are missing.
        CommandError: a file cannot be read.
    """
    specs = params_of(executable, info)
    others = executable.names_of(info.name).inputs
    if executable.model is not None:
        declared = {value.name: value for value in executable.model.inputs}
        symbols = _Symbols(specs)
        for spec, name in zip(specs, others, strict=False):
            if spec.kind == "any" and name in declared:
                _declare(spec, declared[name], symbols)
    given = _NamedValues(specs, others)
    for option in args.input:
        _read_input(option, given, console)
    for option in args.arg:
        name, text = _split(option, "--arg", "NAME=VALUE")
        given.put(name, _json_value(name, text), "--arg")
    shapes = {}
    for option in args.shape:
        name, text = _split(option, "--shape", "NAME=DIMS[:DTYPE]")
        path = given.path(name, "--shape")
        if given.under(path):
            raise UsageError(f"--shape {name}: the parameter has a value")
        shapes[path] = _shape_and_dtype(name, text)
    maker = _RandomValues(args.seed, _dims(args.dim, specs), shapes)
    values = _Values(given, maker, everything=args.random)
    inputs = [values.of(spec, (i,)) for i, spec in enumerate(specs)]
    if values.missing:
        shown = ", ".join(values.missing[:_SHOWN_MISSING])
        more = len(values.missing) - _SHOWN_MISSING
        raise UsageError(
            f"no value for {shown}{f' and {more} more' if more > 0 else ''}; give one with "
            f"--input FILE.npz, --arg NAME=VALUE or --random"
        )
    return inputs


class _Symbols:
    """Symbolic dimensions by name: those of the code, and those that only a model states."""

    def __init__(self, specs: Sequence[ParamSpec]) -> None:
        self._by_name = {symbol.name: symbol for spec in specs for symbol in spec.symbols()}

    def named(self, name: str) -> Symbol:
        """The symbol of a name.  One that the code does not know has no slot of the heap: its
        number is negative."""
        name = _identifier(name)
        return self._by_name.setdefault(name, Symbol(-1 - len(self._by_name), name))


def _declare(spec: ParamSpec, declared: ValueInfo, symbols: _Symbols) -> None:
    """What a model says of a parameter of which the code says nothing."""
    spec.kind = declared.type or spec.kind
    if declared.dims is not None:
        spec.dims = [
            symbols.named(dim) if isinstance(dim, str) and is_named(dim)
            else dim if isinstance(dim, int) else None
            for dim in declared.dims
        ]  # fmt: skip


def _item_of(spec: ParamSpec, name: str) -> ParamSpec:
    """What is known of an item of a sequence, or of an optional value that is there; a tensor
    itself."""
    kind = re.sub(r"\A(seq|optional)\((.*)\)\Z", r"\2", spec.kind)
    dtype = dtype_of_type(kind)
    return ParamSpec(name, kind if dtype is None else "tensor", dtype, spec.dims)


class _NamedValues:
    """Values by path: a parameter's name, or ``name.0`` for an item of a tuple."""

    def __init__(self, specs: Sequence[ParamSpec], others: Sequence[str] = ()) -> None:
        self.names = [spec.name for spec in specs]
        self.others = dict(zip(others, self.names, strict=False))
        self.values: dict[str, Any] = {}

    def find(self, name: str) -> str | None:
        """Return the path for a name, or None.  ``arg0`` and numpy's ``arr_0`` are accepted."""
        if name in self.names:
            return name
        if name in self.others:
            return self.others[name]
        head, dot, rest = name.partition(".")
        match = re.fullmatch(r"(?:arg|arr_)(\d{1,6})", head)
        if head not in self.names:
            if match is None or int(match[1]) >= len(self.names):
                return None
            head = self.names[int(match[1])]
        numbers = re.fullmatch(r"(\d{1,5}(\.\d{1,5})*)?", rest)
        return f"{head}{dot}{rest}" if numbers else None

    def path(self, name: str, option: str) -> str:
        """Like `find`, but raise an error instead of returning None."""
        path = self.find(name)
        if path is None:
            expected = f"one of {', '.join(self.names)}" if self.names else "none, there are none"
            raise UsageError(f"{option} {name}: not a parameter, expected {expected}"
                             f"{did_you_mean(name, self.names)}")
        return path

    def put(self, name: str, value: Any, option: str) -> None:
        path = self.path(name, option)
        for other in self.values:
            if other == path:
                raise UsageError(f"{option} {name}: the parameter {path} has two values")
            if other.startswith(f"{path}.") or path.startswith(f"{other}."):
                raise UsageError(f"{option} {name}: there is a value for {other} too")
        self.values[path] = value

    def next_free(self, option: str) -> str:
        """Return the first parameter without a value."""
        for name in self.names:
            if not self.under(name):
                return name
        raise UsageError(f"{option}: all {len(self.names)} parameters have a value")

    def under(self, path: str) -> bool:
        """Return whether there is a value for a path or for items of it."""
        return path in self.values or any(key.startswith(f"{path}.") for key in self.values)


def _read_input(option: str, given: _NamedValues, console: Console) -> None:
    name, equals, path = option.partition("=")
    if not equals:
        name, path = "", option
    with open_arrays(path) as arrays:
        unused = []
        for key in arrays:
            if key is None:
                name = name or given.next_free(f"--input {option}")
                given.put(name, arrays.read(key), "--input")
            elif name:
                raise UsageError(f"--input {option}: a name goes with an .npy file, "
                                 f"the keys of an .npz are the names")
            elif given.find(key) is None:
                unused.append(key)
            else:
                given.put(key, arrays.read(key), f"--input {path}")
        if unused:
            console.note(f"{path}: not a parameter, not used: {', '.join(unused)}")


class _Values:
    """Assembles the values of parameters."""

    def __init__(self, given: _NamedValues, maker: _RandomValues, *, everything: bool) -> None:
        self._given = given
        self._maker = maker
        self._everything = everything
        self.missing: list[str] = []

    def of(self, spec: ParamSpec, key: tuple[int, ...]) -> Any:
        """Return the value of a parameter or item; add its name to `missing` if there is none."""
        path = spec.name
        if path in self._given.values:
            return _fit(self._given.values[path], spec)
        size = self._items_given(path)
        if size or (spec.kind == "tuple" and self._everything):
            items = list(spec.items)
            items.extend(_item_of(spec, f"{path}.{i}") for i in range(len(items), size))
            return tuple(self.of(item, (*key, i)) for i, item in enumerate(items))
        if self._everything or path in self._maker.shapes:
            return self._maker.make(spec, key)
        self.missing.append(f"{path} ({spec})")
        return None

    def _items_given(self, path: str) -> int:
        """Return one more than the greatest index of an item of the path that has a value."""
        keys = [*self._given.values, *self._maker.shapes]
        prefix = f"{path}."
        indices = [int(key[len(prefix) :].split(".")[0]) for key in keys if key.startswith(prefix)]
        return 1 + max(indices, default=-1)


def _fit(value: Any, spec: ParamSpec) -> Any:
    """Convert an array or a number to the kind of value that the function expects."""
    if isinstance(value, (bool, int, float)) and spec.kind == "tensor" and spec.dims == []:
        try:
            return np.array(value, spec.dtype)
        except (OverflowError, TypeError, ValueError) as error:
            raise UsageError(f"--arg {spec.name} ({spec}): {error}") from error
    if isinstance(value, dict) and spec.kind != "any" and not spec.kind.startswith("map("):
        raise UsageError(f"--arg {spec.name}: expected a number, true, false, null, text or a "
                         f"list, got an object")  # fmt: skip
    if isinstance(value, dict) and spec.kind.startswith("map(int64,"):
        try:
            return {int(key): each for key, each in value.items()}  # JSON has texts alone as keys
        except ValueError:
            raise UsageError(
                f"--arg {spec.name} ({spec}): expected integers as keys, got {[*value][:3]}"
            ) from None
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind == "U" and value.ndim == 0:
        return str(value)
    if spec.kind == "scalar" and value.ndim == 0:
        return value.item()
    if spec.kind == "shape" and value.ndim == 1 and value.dtype.kind in "iu":
        return Shape(value)
    return value


class _RandomValues:
    """Makes random values for parameters.  Each has its own generator, so that an additional
    parameter does not change the others."""

    def __init__(
        self,
        seed: int,
        dims: dict[int, int],
        shapes: dict[str, tuple[tuple[int, ...], np.dtype[Any] | None]],
    ) -> None:
        if seed < 0:
            raise UsageError(f"--seed: expected a number >= 0, got {seed}")
        self._seed = seed
        self._dims = dims
        self.shapes = shapes

    def make(self, spec: ParamSpec, key: tuple[int, ...]) -> Any:
        generator = np.random.default_rng([self._seed, *key])
        if spec.name in self.shapes:
            shape, dtype = self.shapes[spec.name]
            # A tensor or an optional one of which a model alone states the type.
            declared = spec.dtype or _item_of(spec, spec.name).dtype or _DEFAULT_DTYPE
            return _random_array(generator, shape, dtype or declared, spec.name)
        if spec.kind == "tensor":
            shape = self._shape(spec)
            return _random_array(generator, shape, spec.dtype or _DEFAULT_DTYPE, spec.name)
        if spec.kind == "shape":
            return Shape(self._shape(spec))
        if spec.kind == "scalar":
            if spec.dims is not None:
                return self._shape(spec)[0]
            return _random_array(generator, (), spec.dtype or np.dtype(np.int64), spec.name).item()
        if spec.kind.startswith("map("):
            keys: Sequence[Any] = range(3) if spec.kind.startswith("map(int64,") else "abc"
            if "tensor(string)" in spec.kind:
                return {key: f"text {i}" for i, key in enumerate(keys)}
            numbers = generator.standard_normal(3)
            is_real = "tensor(float)" in spec.kind or "tensor(double)" in spec.kind
            return {
                key: float(each) if is_real else int(abs(each) * _RANDOM_INTEGERS)
                for key, each in zip(keys, numbers, strict=True)
            }
        if spec.kind.startswith("optional(") or spec.kind == "tensor(string)":
            return self.make(_item_of(spec, spec.name), key)
        if spec.kind.startswith("seq("):
            items = [_item_of(spec, f"{spec.name}.{i}") for i in range(_RANDOM_ITEMS)]
            return tuple([self.make(item, (*key, i)) for i, item in enumerate(items)])
        hint = "--arg"
        if spec.kind == "any":
            hint = "--shape NAME=DIMS:DTYPE or --arg NAME=VALUE"
        raise UsageError(f"--random: the code does not determine what {spec.name} ({spec}) is; "
                         f"set it with {hint}")

    def _shape(self, spec: ParamSpec) -> tuple[int, ...]:
        if spec.dims is None:
            raise UsageError(f"--random: the code does not determine the rank of {spec.name} "
                             f"({spec}); set it with --shape {spec.name}=DIMS")
        sizes = []
        for dim in spec.dims:
            if isinstance(dim, Symbol):
                if dim.slot not in self._dims:
                    ways = [f"--dim {dim.slot}=8"] if dim.slot >= 0 else []
                    if str(dim).isidentifier():
                        ways.append(f"--dim {dim}=8")
                    raise UsageError(f"--random: {spec.name} ({spec}) has the symbolic dimension "
                                     f"{dim}; set it with {' or '.join(ways)}")
                sizes.append(self._dims[dim.slot])
            elif dim is None:
                raise UsageError(f"--random: the code does not determine all dimensions of "
                                 f"{spec.name} ({spec}); set them with --shape {spec.name}=DIMS")
            else:
                sizes.append(dim)
        return tuple(sizes)


def _random_array(
    generator: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], name: str
) -> NDArray[Any]:
    """Return normally distributed floats, integers from 0 to 9, fair bools, or texts.

    Raises:
        UsageError: numpy cannot make such an array.
    """
    if any(dim < 0 for dim in shape) or math.prod(shape) * dtype.itemsize >= 1 << 62:
        raise UsageError(f"--random: {name}: no array has the shape {shape}")
    try:
        if dtype.kind == "O":
            texts = np.empty(math.prod(shape), object)
            texts[:] = [f"text {i}" for i in generator.integers(0, _RANDOM_INTEGERS, texts.size)]
            return texts.reshape(shape)
        if dtype.kind == "b":
            return generator.integers(0, 2, shape).astype(dtype)
        if dtype.kind in "iu":
            return generator.integers(0, _RANDOM_INTEGERS, shape).astype(dtype)
        values = generator.standard_normal(shape, np.float32)
        if dtype.kind == "c":
            return (values + 1j * generator.standard_normal(shape, np.float32)).astype(dtype)
        return np.asarray(values).astype(dtype)
    except (MemoryError, ValueError, TypeError) as error:
        raise UsageError(f"--random: {name}: {dtype}{list(shape)}: {error}") from error


def _split(option: str, flag: str, form: str) -> tuple[str, str]:
    name, equals, value = option.partition("=")
    if not equals or not name:
        raise UsageError(f"{flag}: expected {form}, got {option!r}")
    return name, value


def _json_value(name: str, text: str) -> Any:
    try:
        return _from_json(name, json.loads(text))
    except (ValueError, RecursionError):
        raise UsageError(f"--arg {name}: expected a JSON value (a number, true, false, null, "
                         f'"text", a list or an object), got {text[:40]!r}') from None


def _from_json(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _from_json(name, each) for key, each in value.items()}
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise UsageError(f"--arg {name}: {value} does not fit 64 bits")
    if not isinstance(value, list):
        return value
    items = [_from_json(name, item) for item in value]
    whole = all(isinstance(item, int) and not isinstance(item, bool) for item in items)
    return Shape(items) if whole else tuple(items)


def _identifier(name: str) -> str:
    """The name of a symbolic dimension in a program, for one in a model."""
    return re.sub(r"\W+", "_", name).strip("_") or name


def _shape_and_dtype(name: str, text: str) -> tuple[tuple[int, ...], np.dtype[Any] | None]:
    dims, colon, dtype = text.partition(":")
    if not re.fullmatch(r"(\d+(,\d+)*,?)?", dims):
        raise UsageError(f"--shape {name}: expected dimensions as in 2,3, got {dims!r}")
    shape = tuple(int(dim) for dim in dims.split(",") if dim)
    try:
        return shape, as_dtype(dtype) if colon else None
    except TypeError as error:
        raise UsageError(f"--shape {name}: {error}") from error


def _dims(options: Iterable[str], specs: Sequence[ParamSpec]) -> dict[int, int]:
    """Return the sizes of symbolic dimensions by heap slot."""
    slots: dict[str, int] = {}
    for spec in specs:
        for symbol in spec.symbols():
            slots[str(symbol)] = symbol.slot
            if symbol.slot >= 0:
                slots[str(symbol.slot)] = symbol.slot
    sizes: dict[int, int] = {}
    for option in options:
        name, text = _split(option, "--dim", "NAME=SIZE")
        if name not in slots:  # a dimension of a model is an identifier made of its name there
            name = _identifier(name)
        if name not in slots:
            known = [symbol for symbol in slots if not symbol.isdigit()]
            listed = f"expected one of {', '.join(known)}" if known else "there are none"
            raise UsageError(f"--dim {name}: not a symbolic dimension of the function, {listed}"
                             f"{did_you_mean(name, known)}")
        if not re.fullmatch(r"\d{1,18}", text):
            raise UsageError(f"--dim {name}: expected a size, got {text!r}")
        sizes[slots[name]] = int(text)
    return sizes
