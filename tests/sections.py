"""An example of each section that may follow TVM's stream; a section without one fails a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import numpy as np

from relaxvm import Adt, Shape
from relaxvm.adt import DataType, DataTypes
from relaxvm.executable import FunctionInfo, VMExecutable
from relaxvm.executable.debug_info import DebugInfo, Location, Span
from relaxvm.executable.formats._fields import Writer
from relaxvm.executable.formats._tensors import sealed
from relaxvm.executable.formats.sections import save_sections
from relaxvm.executable.model_info import ModelInfo, ValueInfo
from relaxvm.executable.model_names import FunctionNames, ModelNames
from relaxvm.ir.expr import int_imm
from relaxvm.ir.json import save_json
from relaxvm.isa import FuncKind
from relaxvm.tir import BufferStore, For, ForKind, PrimFunc, Var, decl_buffer

__all__ = ["EXAMPLES", "Example", "alone", "plain", "with_sections"]

PROGRAM: Final = VMExecutable(
    [
        FunctionInfo(FuncKind.BYTECODE, "main", 0, 2, 1, 2, ("x",)),
        FunctionInfo(FuncKind.PACKED, "double"),
    ],
    ["List.Cons", "List.Cons", ""], [0, 5], [1, 1, 1, 1, 0, 2, 1],
)  # fmt: skip
"""Calls ``double`` with its argument.  Its constants may be replaced by values, and by a tensor."""


@dataclass(frozen=True)
class Example:
    """What a section may contain.

    Attributes:
        content: makes the content, in the form in which the section is written.
        limits: for each field of `Limits` that bounds the section, a bound that `large` exceeds and
            the program alone does not.
        large: makes content for `limits`; None for the same content.
    """

    content: Callable[[], Any]
    limits: Mapping[str, int] = field(default_factory=dict)
    large: Callable[[], Any] | None = None


def _debug() -> DebugInfo:
    span = Span("a long name of a file.py", 3, 5, 3, 14)
    places = [Location(0, span, "y", ((None, "x"),)), Location(1)]
    return DebugInfo.of(places, {span.file: {3: "    y = double(x)"}})


def _many_locations() -> DebugInfo:
    return DebugInfo.of([(0, None, "x"), (1, None, "y"), (2, None, "the variable of nothing")])


def _prim_funcs(*names: str) -> dict[str, str]:
    x, y = (decl_buffer((4,), "float32", name) for name in "xy")
    i = Var("i", "int64")
    store = BufferStore(y, x[i] + x[i], [i])
    func = PrimFunc([x, y], For(i, int_imm(0), int_imm(4), ForKind.SERIAL, store))
    return dict.fromkeys(names, save_json(func, spans=False))


def _data_types(*more: str) -> DataTypes:
    """A list, a tree with fields of all kinds, and types without constructors."""
    tree = {
        "Leaf": ["A", 'R.Tensor((2, 3), dtype="float32")', 'R.Prim("int64")', "R.Shape(ndim=2)"],
        "Node": ["List[Tree[A]]", "R.Tuple(A, R.Ref(A))", "R.Callable((A,), R.Any, True)"],
        "odd name": ['R.Callable((B,), B, False, type_params=("B",))', "R.Tensor", "R.Never"],
    }
    types = [
        DataType("List", ["A"], {"Nil": [], "Cons": ["A", "List[A]"]}),
        DataType("Tree", ["A"], tree),
        *map(DataType, more),
    ]
    signature = 'R.Callable((List[A],), Tree[A], True, type_params=("A",))'
    return DataTypes(types, {"main": signature})


def _values(*more: object) -> dict[int, Any]:
    """Two lists with elements of all kinds, which share their end."""
    items = [None, True, 1, -0.0, "text", np.dtype("int8"), Shape((2, 3)), (1, (2, 1)),
             sealed(np.arange(4, dtype=np.float32).reshape(2, 2)), *more]  # fmt: skip
    value = Adt("List.Nil", 0)
    for item in items:
        value = Adt("List.Cons", 1, (item, value))
    return {0: value, 1: Adt("List.Cons", 1, (value, value))}


def _names(*inputs: str) -> ModelNames:
    return ModelNames.of([FunctionNames("main", inputs, ("scores", ""))])


def _model(*inputs: ValueInfo) -> ModelInfo:
    image = ValueInfo("image:0", "tensor(float)", ("batch", 3, None))
    return ModelInfo(
        producer="trainer", version=-7, description="a model\nof two lines",
        metadata=(("", "x"), ("labels", "{0: 'cat'}")), inputs=(image, *inputs),
        outputs=(ValueInfo("", "seq(tensor(int64))"),),
        constants=(ValueInfo("scale", "tensor(float)", ()),), files=("weights.bin",),
    )  # fmt: skip


EXAMPLES: Final = {
    "debug": Example(_debug, {"instructions": 2, "name_bytes": 20}, _many_locations),
    "exec_mode": Example(lambda: "compiled"),
    "kernels": Example(
        lambda: {"kernels": b"{}", "native/linux-x86_64-64/0": bytes(range(40))}, {"name_bytes": 20}
    ),
    "prim_funcs": Example(
        lambda: _prim_funcs("double"), {"functions": 2, "name_bytes": 20},
        lambda: _prim_funcs("double", "a", "the longest name of all"),
    ),
    "data_types": Example(
        _data_types, {"data_parts": 60, "name_bytes": 20},
        lambda: _data_types("the longest name of all", *map("type{}".format, range(12))),
    ),
    "values": Example(
        _values, {"data_parts": 20, "rank": 2, "shape_dims": 3},
        lambda: _values(*range(10), np.zeros((1, 1, 1), np.int8), Shape((1, 2, 3, 4))),
    ),
    "names": Example(
        lambda: _names("input:0"), {"data_parts": 60, "name_bytes": 20},
        lambda: _names("the longest name of all", *map("x:{}".format, range(70))),
    ),
    "model": Example(
        _model, {"data_parts": 60, "name_bytes": 20, "shape_dims": 3},
        lambda: _model(
            ValueInfo("the longest name of all", "tensor(float)", (1, 2, 3, 4)),
            *[ValueInfo(f"x{i}", "tensor(float)") for i in range(70)],
        ),
    ),
    "tensors": Example(
        lambda: {2: sealed(np.arange(6, dtype=np.int16).reshape(2, 3))}, {"rank": 2},
        lambda: {2: sealed(np.zeros((1, 1, 1), np.int8))},
    ),
}  # fmt: skip


def plain() -> bytes:
    """The program without sections."""
    return PROGRAM.to_bytes()


def alone(name: str) -> bytes:
    """A program with the example of one section, and with constants only if the section needs
    them."""
    used = {"values": 2, "tensors": 3}.get(name, 0)
    program = PROGRAM.but(constants=PROGRAM.constants[:used])
    return program.to_bytes() + with_sections(name)[len(plain()) :]


@cache
def with_sections(*names: str, large: bool = False) -> bytes:
    """The program with the examples of some sections; if `large`, with those for limits."""
    contents = {}
    for name in names:
        example = EXAMPLES[name]
        contents[name] = ((large and example.large) or example.content)()
    to = Writer()
    to.put(plain())
    save_sections(to, contents)
    return b"".join(to.views())
