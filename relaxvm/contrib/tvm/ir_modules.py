"""Programs of TVM as programs of relaxvm.

A module of TVM is read from the text that TVM prints.  The text refers to arrays by the order in
which they were printed, and leaves them out; they are collected from the program itself, and
compared with those in the program that was read.  Calls of operators that relaxvm does not have
become calls of PrimFuncs, by TVM.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...core import ffi
from ...errors import BugError, LinkError
from ...ir import Constant, Expr, Function, IRModule, Op
from ...ir.visitor import post_order_visit
from ...limits import Limits
from ...script import from_source

__all__ = ["is_module_of_tvm", "module_of_tvm"]

_CONSTANTS: Final = frozenset({"ir.GenericConst", "relax.expr.Constant"})
"""Names of constants in the text, in TVM 0.27 and before."""

_CONSTANT_CLASSES: Final = frozenset({"Constant", "GenericConst"})
"""Classes of constants; objects of the second are also texts and data types."""

_OLD_NAME: Final = re.compile(r"\b(|out_)sinfo(|_args)=")
"""Parameters as TVM 0.25 calls them: today ``out_ty`` and ``ty_args``."""

_NO_DTYPE: Final = re.compile(r'dtype="void"')
"""A data type that is not given, in TVM 0.25; None today."""

_VALUE: Final = re.compile(r"\bR\.Prim\(value=(?:T\.(\w+)\([^()]*\)|(?:[^()]|\([^()]*\))*)\)")
"""The type of a scalar of known value, as TVM 0.25 has it; today the value is an expression."""

_DEFINITION: Final = re.compile(r"^ *def (\w+)[(\[]", re.MULTILINE)
"""A function; from Python 3.12 on, TVM writes its symbolic variables as type parameters."""

_REFERENCE: Final = re.compile(r'\bmetadata\["([^"]*)"\]\[(\d+)\]')


def is_module_of_tvm(value: object) -> bool:
    """Return whether it is a ``tvm.IRModule``."""
    return type(value).__module__.startswith("tvm.") and type(value).__name__ == "IRModule"


def module_of_tvm(module: Any, limits: Limits | None = None) -> IRModule:
    """Return a program of TVM as one of relaxvm.

    Args:
        module: a ``tvm.IRModule``.
        limits: bounds on reading its text.

    Raises:
        LinkError: it has something that TVM's text leaves out.
        DiagnosticError: it has something that relaxvm's script does not have, such as an operator
            that TVM does not write as a PrimFunc.
    """
    module = _with_known_operators(module)
    text = _as_today(module.script())
    kinds = {kind for kind, _ in _REFERENCE.findall(text)}
    if kinds - _CONSTANTS:
        raise LinkError(f"from_tvm: the module has parts that TVM's text leaves out: "
                        f"{', '.join(sorted(kinds - _CONSTANTS))}")
    functions = {var.name_hint: function for var, function in module.functions.items()}
    written = [name for name in _DEFINITION.findall(text) if name in functions]
    constants = {name: _constants_of(functions[name]) for name in written}
    arrays = _distinct([c for name in written for c in constants[name] if _array_of(c).ndim])
    made: IRModule = from_source(text, {"metadata": dict.fromkeys(kinds, arrays)}, limits=limits)
    for name, expected in constants.items():
        found: list[NDArray[Any]] = []
        function = made[name]
        if isinstance(function, Function):
            post_order_visit(function, partial(_append_array, found))
        if not _are_equal(found, [_array_of(constant) for constant in expected]):
            raise BugError(f"from_tvm: the constants of {name!r} are not in the order in which TVM "
                           f"has printed them")
    return made


def _as_today(text: str) -> str:
    """Return what TVM 0.25 has printed as later versions print it."""
    text = _OLD_NAME.sub(r"\1ty\2=", text)
    text = _NO_DTYPE.sub("dtype=None", text)
    return _VALUE.sub(lambda found: f'R.Prim("{found[1] or "int64"}")', text)


def _with_known_operators(module: Any) -> Any:
    """Return the module with PrimFuncs in place of operators that relaxvm does not have."""
    import tvm

    names: set[str] = set()

    def visit(expr: Any) -> None:
        if isinstance(expr, tvm.ir.Op):
            names.add(expr.name)

    for function in module.functions.values():
        if isinstance(function, tvm.relax.Function):
            tvm.relax.analysis.post_order_visit(function, visit)
    known = {name for name in names if _is_known(name)}
    if known == names:
        return module
    return tvm.relax.transform.LegalizeOps(skip_ops=sorted(known))(module)


def _is_known(name: str) -> bool:
    try:
        Op.get(name)
    except ValueError:
        return False
    return True


def _constants_of(function: Any) -> list[Any]:
    """Return the constants in a function of TVM, in the order in which they are visited."""
    import tvm

    found: list[Any] = []

    def visit(expr: Any) -> None:
        if type(expr).__name__ in _CONSTANT_CLASSES and isinstance(_array_of(expr), np.ndarray):
            found.append(expr)

    if isinstance(function, tvm.relax.Function):
        tvm.relax.analysis.post_order_visit(function, visit)
    return found


def _array_of(constant: Any) -> NDArray[Any]:
    tensor = constant.value if hasattr(constant, "value") else constant.data
    array: NDArray[Any] = ffi.from_ffi(tensor)
    return array


def _distinct(constants: list[Any]) -> list[NDArray[Any]]:
    """Return copies of the data of constants, one of each object."""
    found: dict[int, NDArray[Any]] = {}
    for constant in constants:
        handle = constant.__chandle__()
        if handle not in found:
            found[handle] = np.array(_array_of(constant))
    return list(found.values())


def _append_array(found: list[NDArray[Any]], expr: Expr) -> None:
    if isinstance(expr, Constant):
        found.append(expr.data)


def _are_equal(some: list[NDArray[Any]], others: list[NDArray[Any]]) -> bool:
    return len(some) == len(others) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(some, others, strict=True)
    )
