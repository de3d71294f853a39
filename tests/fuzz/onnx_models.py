"""Mutants of ONNX models: cases of the standard's test-suite, changed as bytes and as messages."""

from __future__ import annotations

import os
import random
import warnings
from functools import cache
from typing import Any, Final

import numpy as np

from relaxvm import analysis, ir
from relaxvm.compiler.build import build
from relaxvm.errors import InternalError, OperatorValueError, RelaxVMError
from relaxvm.frontend.onnx import from_onnx
from relaxvm.vm import VirtualMachine

from .changes import Mutant, change_bytes, number, seeded
from .execute import LIMITS
from .outcomes import Ending, Outcome, described, is_from_function
from .relay_texts import argument

__all__ = ["bases", "mutant", "run"]

_LARGEST: Final = 3000
"""Bytes of a base."""


@cache
def bases() -> dict[str, bytes]:
    """Return the models to mutate, by the names of the cases."""
    from .. import onnx_suite

    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in onnx_suite.cases():
            data = onnx_suite.model_of(case).SerializeToString(deterministic=True)
            if len(data) <= _LARGEST:
                found[case.name] = data
    return found


@cache
def _names() -> list[str]:
    return sorted(bases())


def _read(data: bytes) -> Any:
    import onnx

    return onnx.ModelProto.FromString(data)


def mutant(index: int, seed: int = 0) -> Mutant:
    """Return the mutant with an index."""
    rng = seeded("onnx", index, seed)
    base = rng.choice(_names())
    if rng.random() < 0.2:
        data, steps = change_bytes(bases()[base], rng)
        return Mutant(base, tuple(steps), data)
    model = _read(bases()[base])
    names = []
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        change = rng.choice(_CHANGES)
        try:
            change(model, rng)
        except (IndexError, TypeError, ValueError):  # no such part, or not such a value
            continue
        names.append(change.__name__)
    return Mutant(base, tuple(names), model.SerializeToString(deterministic=True))


# Mutations of messages


def _messages(message: Any) -> list[Any]:
    """All messages within a message, and itself."""
    found, work = [], [message]
    while work:
        item = work.pop()
        found.append(item)
        for field, value in item.ListFields():
            if field.message_type is not None:
                work += value if field.is_repeated else [value]
    return found


def _of_class(message: Any, rng: random.Random) -> Any:
    """A message of the same class, of this model or of another one."""
    model = _read(bases()[rng.choice(_names())])
    alike = [each for each in _messages(model) if type(each) is type(message)]
    return rng.choice(alike or [message])


def _scalar(field: Any, old: Any, rng: random.Random) -> Any:
    if isinstance(old, str):
        return rng.choice(("", "x", "y", "n", "SAME_UPPER", old + "2", old[:1], "\0", "0"))
    if isinstance(old, bytes):
        return change_bytes(old, rng)[0] if old else b"x"
    if isinstance(old, float):
        return rng.choice((0.0, -1.0, 0.5, 1e30, float("nan"), float("inf"), -old))
    if field.enum_type is not None:
        return rng.choice(field.enum_type.values).number
    return rng.choice((number(rng), old + 1, old - 1, -old, 0, 1, 2, 3))


def change_field(model: Any, rng: random.Random) -> None:
    """Change a number or a text."""
    message = rng.choice(_messages(model))
    fields = [(f, v) for f, v in message.ListFields() if f.message_type is None]
    if not fields:
        return
    field, value = rng.choice(fields)
    if not field.is_repeated:
        setattr(message, field.name, _scalar(field, value, rng))
    elif len(value):
        at = rng.randrange(len(value))
        value[at] = _scalar(field, value[at], rng)


def change_name(model: Any, rng: random.Random) -> None:
    """Let a node read or write another value."""
    nodes = [each for each in _messages(model) if type(each).__name__ == "NodeProto"]
    if not nodes:
        return
    node, other = rng.choice(nodes), rng.choice(nodes)
    names = [*other.input, *other.output, *(each.name for each in model.graph.input), ""]
    place = rng.choice((node.input, node.output))
    if len(place):
        place[rng.randrange(len(place))] = rng.choice(names)


def drop_field(model: Any, rng: random.Random) -> None:
    message = rng.choice(_messages(model))
    fields = [field.name for field, _ in message.ListFields()]
    if fields:
        message.ClearField(rng.choice(fields))


def change_items(model: Any, rng: random.Random) -> None:
    """Drop, repeat or swap items of a list."""
    message = rng.choice(_messages(model))
    lists = [value for field, value in message.ListFields() if field.is_repeated]
    if not lists:
        return
    chosen = rng.choice(lists)
    at = rng.randrange(len(chosen))
    kind = rng.randrange(3)
    if kind == 0:
        del chosen[at]
    elif kind == 1:
        chosen.extend([chosen[at]] * rng.choice((1, 1, 2, 20)))
    else:
        chosen.insert(0, chosen.pop(at))


def replace_message(model: Any, rng: random.Random) -> None:
    """Put a message of another model in place of one."""
    message = rng.choice(_messages(model)[1:])
    message.CopyFrom(_of_class(message, rng))


def merge_message(model: Any, rng: random.Random) -> None:
    message = rng.choice(_messages(model)[1:])
    message.MergeFrom(_of_class(message, rng))


def change_dims(model: Any, rng: random.Random) -> None:
    """Change the shape or data type of a value or constant."""
    kinds = ("TensorProto", "Dimension", "Tensor")
    found = [each for each in _messages(model) if type(each).__name__ in kinds]
    if not found:
        return
    message = rng.choice(found)
    if type(message).__name__ == "Dimension":
        if rng.random() < 0.5:
            message.dim_param = rng.choice(("n", "m", "?", "n + 1", ""))
        else:
            message.dim_value = rng.choice((0, 1, 2, 3, 7, -1, 1 << 40))
    elif type(message).__name__ == "TensorProto" and rng.random() < 0.5:
        message.dims.append(rng.choice((0, 1, 2, 1 << 33, -1)))
    else:
        place = "data_type" if type(message).__name__ == "TensorProto" else "elem_type"
        setattr(message, place, rng.randrange(25))


_CHANGES: Final = (
    change_field, change_field, change_name, drop_field, change_items, replace_message,
    merge_message, change_dims,
)  # fmt: skip


# Runs

_TOO_LARGE: Final = ("2**63 bytes", "does not fit 64 bits", "does not fit int64")


def run(mutant: Mutant, index: int) -> Ending:
    """Import a model, check it, compile it and call it."""
    os.environ["CC"] = "no-compiler"  # a compiler takes as long as hundreds of mutants
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with np.errstate(all="ignore"):
            return _run(mutant.data, index)


def _run(data: bytes, index: int) -> Ending:
    step = "from_onnx"
    try:
        module = from_onnx(data, limits=LIMITS)
        step = "violations"
        if problems := analysis.violations(module):
            return Outcome.STRAY_ERROR, f"ill-formed: {problems[0]}"
        step = "build"
        try:
            executable = build(module, limits=LIMITS)
        except OverflowError as error:  # the size of a tensor
            if not any(text in str(error) for text in _TOO_LARGE):
                raise
            return Outcome.REFUSED, f"build {type(error).__name__}"
        step = "vm"
        machine = VirtualMachine(executable, limits=LIMITS)
    except OperatorValueError as error:
        if step != "build":  # where shapes are known that the import did not know
            return Outcome.STRAY_ERROR, f"{step}: {described(error)}"
        return Outcome.REFUSED, f"{step} {type(error).__name__}"
    except InternalError as error:
        return Outcome.STRAY_ERROR, described(error)
    except RelaxVMError as error:
        return Outcome.REFUSED, f"{step} {type(error).__name__}"
    except Exception as error:
        return Outcome.STRAY_ERROR, f"{step}: {described(error)}"
    function = module["main"]
    assert isinstance(function, ir.Function)
    args = [argument(parameter.ty, index) for parameter in function.params]
    if any(arg is None for arg in args):
        return Outcome.RESULT, "not called"
    try:
        machine["main"](*args)
    except RelaxVMError as error:
        return Outcome.RELAXVM_ERROR, type(error).__name__
    except BaseException as error:
        if is_from_function(error):
            return Outcome.KERNEL_ERROR, type(error).__name__
        return Outcome.STRAY_ERROR, f"call: {described(error)}"
    return Outcome.RESULT, ""
