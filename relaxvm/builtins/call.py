"""Calls of values: closures, kernels with dynamic shapes, Python functions; printing and time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from types import NoneType
from typing import Any, Final

import numpy as np

from .._core import Closure, VMFunction
from ..errors import InternalError, did_you_mean
from ..messages import describe
from ..registry import GLOBAL
from ..values import Device, Shape
from .arguments import as_array, as_callable, as_sequence, as_shape, as_str
from .registration import builtin

__all__ = [
    "call_py_func",
    "call_tir_dyn",
    "clear_py_func_registry",
    "debug_print",
    "get_py_func",
    "invoke_closure",
    "invoke_debug_func",
    "make_closure",
    "print_values",
    "register_py_func",
    "seconds",
    "value_text",
]


# Closures


@builtin("make_closure", "func: closure|func, *captured: any", result="closure")
def make_closure(func: Any, *captured: Any) -> Closure:
    """Create a closure that calls `func` with its own arguments followed by the captured ones.

    Raises:
        TypeError: `func` is neither a closure nor a function.
    """
    return Closure(as_callable(func, "make_closure"), captured)


@builtin("invoke_closure", "ctx: any, closure: closure|func, *args: any")
def invoke_closure(ctx: Any, closure: Any, *args: Any) -> Any:
    """Call a closure or function; `ctx` is the VM state.

    Raises:
        TypeError: neither a closure nor a function.
    """
    return as_callable(closure, "invoke_closure")(*args)


@builtin("call_tir_dyn", "kernel: closure|func, *args: any, shape: shape|tuple")
def call_tir_dyn(kernel: Any, *args: Any) -> Any:
    """Call a kernel with tensors, followed by the dimensions of a Shape as ints:
    ``call_tir_dyn(kernel, *tensors, shape)``.

    Raises:
        TypeError: not a function, or the last argument is not a shape.
    """
    func = as_callable(kernel, "call_tir_dyn: kernel")
    if not args:
        raise TypeError("call_tir_dyn: expected a Shape as the last argument, got none")
    return func(*args[:-1], *as_shape(args[-1], "call_tir_dyn: last argument"))


# Python functions by name

_py_funcs: Final[dict[str, Callable[..., Any]]] = {}


@builtin("register_py_func", "name: str, func: closure|func", result="none", effect=True)
def register_py_func(name: Any, func: Any) -> None:
    """Register a function for `call_py_func`; an earlier one with that name is replaced.

    Raises:
        TypeError: not a name, or not a function.
    """
    key = as_str(name, "register_py_func: name")
    _py_funcs[key] = as_callable(func, "register_py_func")


@builtin("get_py_func", "name: str", effect=True)
def get_py_func(name: Any) -> Callable[..., Any]:
    """Return the function that was registered by `register_py_func` under a name.

    Raises:
        InternalError: there is no such function.
    """
    return _py_func(as_str(name, "get_py_func: name"), "get_py_func")


def _py_func(name: str, subject: str) -> Callable[..., Any]:
    func = _py_funcs.get(name)
    if func is None:
        raise InternalError(f"{subject}: no Python function {name!r} is registered"
                            f"{did_you_mean(name, _py_funcs)}; "
                            f"vm.builtin.register_py_func(name, func) adds one")
    return func


@builtin("clear_py_func_registry", result="none", effect=True)
def clear_py_func_registry() -> None:
    """Remove all functions registered by `register_py_func`."""
    _py_funcs.clear()


@builtin("call_py_func", "name: str|tuple, args: tuple = ...", effect=True)
def call_py_func(*args: Any) -> Any:
    """Call a function registered by `register_py_func`: ``call_py_func(name, args)``, with the
    arguments in a tuple; or with both in one tuple, as in TVM: ``call_py_func((name, args))``.

    Raises:
        InternalError: there is no such function, or the arguments have another form.
        TypeError: the name is not a string, or the arguments are not a tuple.
        Exception: any exception of the function.
    """
    pair: Sequence[Any] = args
    if len(args) == 1:
        pair = as_sequence(args[0], "call_py_func")
    if len(pair) != 2:
        raise InternalError(f"call_py_func: expected a name and a tuple of arguments, "
                            f"got {len(pair)} values")
    func = _py_func(as_str(pair[0], "call_py_func: name"), "call_py_func")
    return func(*as_sequence(pair[1], "call_py_func: arguments"))


# Debugging


@builtin(
    "invoke_debug_func",
    "effect: none, name: str, line_info: str, *args: any",
    result="none",
    effect=True,
)
def invoke_debug_func(*args: Any) -> None:
    """Call a globally registered function for its effect, ``func(line_info, *args)``:
    ``invoke_debug_func(None, name, line_info, *args)``.

    Raises:
        InternalError: fewer than three arguments.
        ValueError: the first argument is not None, or there is no such function.
        TypeError: the name or the line information is not a string.
        Exception: any exception of the function.
    """
    if len(args) < 3:
        raise InternalError(f"invoke_debug_func: expected None, a name, line information and "
                            f"arguments, got {len(args)} arguments")
    token, name, line_info, *rest = args
    if token is not None:
        raise ValueError(f"invoke_debug_func: expected None as the first argument, "
                         f"got {describe(token)}")
    key = as_str(name, "invoke_debug_func: name")
    record = GLOBAL.lookup(key)
    if record is None:
        raise ValueError(f"invoke_debug_func: function {key!r} is not registered"
                         f"{did_you_mean(key, GLOBAL.names())}")
    record.func(as_str(line_info, "invoke_debug_func: line information"), *rest)


@builtin("debug_print", "line_info: str, x: tensor", result="none", effect=True)
def debug_print(line_info: Any, x: Any) -> None:
    """Print shape, data type and elements of a tensor, with its line in the source.

    Raises:
        TypeError: the line information is not a string, or `x` not a tensor.
    """
    line = as_str(line_info, "debug_print: line information")
    tensor = as_array(x, "debug_print")
    print(f"{line}: shape = {tensor.shape}, dtype = {tensor.dtype}, data =\n{tensor}")


_MOST_PRINTED: Final = 1000
_LONGEST: Final = 1 << 21
"""Characters of a string; messages have room for half as many."""
_LONGEST_INSIDE: Final = 10_000
"""Characters of a string in a tuple: a tuple may have the same long string many times."""
_MOST_BITS: Final = 4096
_DEEPEST_PRINTED: Final = 50


@builtin("print", "*values: any", result="none", effect=True)
def print_values(*values: Any) -> None:
    """Print values to the standard output, separated by blanks.

    At most a thousand elements and fifty levels of nested tuples are printed, since a few
    instructions can make a tuple that would print endlessly.
    """
    print(*map(value_text, values))


def value_text(value: Any) -> str:
    """Return the text that `print_values` prints for a value."""
    return _text(value, iter(range(_MOST_PRINTED)), 0)


def _text(value: Any, budget: Iterator[int], depth: int) -> str:
    """Return the text of a value; every element of a tuple takes one from the budget."""
    if type(value) not in (tuple, list, dict):
        return _leaf_text(value, depth)
    texts = []
    for item in value:
        if depth == _DEEPEST_PRINTED or next(budget, None) is None:
            texts.append("...")
            break
        text = _text(item, budget, depth + 1)
        if type(value) is dict:
            text = f"{text}: {_text(value[item], budget, depth + 1)}"
        texts.append(text)
    if type(value) is dict:
        return f"{{{', '.join(texts)}}}"
    if type(value) is list:
        return f"[{', '.join(texts)}]"
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


_PRINTED: Final = (
    str, bytes, float, np.ndarray, Shape, np.dtype, Device, VMFunction, Closure, NoneType
)  # fmt: skip
"""Classes whose text is printed.  The text of others may contain addresses of the process."""


def _leaf_text(value: Any, depth: int) -> str:
    """Return the text of a value that is not a tuple; its repr if it is within a tuple."""
    is_number = isinstance(value, int) and value.bit_length() <= _MOST_BITS
    if not is_number and not isinstance(value, _PRINTED):
        return describe(value)
    if isinstance(value, Shape) and len(value) > _MOST_PRINTED:
        return describe(value)
    if isinstance(value, (str, bytes)):
        longest = _LONGEST_INSIDE if depth else _LONGEST
        if len(value) > longest:
            value = value[:longest]
    return repr(value) if depth else str(value)


@builtin("time", result="float", aliases=("time",))
def seconds() -> float:
    """Return the seconds of a monotonic clock; the difference of two calls is the time between
    them."""
    return time.perf_counter()
