"""Tests of the kernels that cases are lowered to: layouts, outputs that overlap operands, wrong
arguments, and equality of C and Python."""

from __future__ import annotations

import functools
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import relaxvm
from relaxvm.kernels import PREFIX, is_kernel
from relaxvm.op import OPERATORS as RECORDS
from relaxvm.registry import GLOBAL
from relaxvm.values import kind_of

from .oracle import assert_close, exact_of_kernel, seed_of
from .programs import kernel_calls
from .table import KERNELS, OPERATORS, Cases, KernelCase

REGISTERED = sorted(n.removeprefix(PREFIX) for n in relaxvm.list_funcs() if n.startswith(PREFIX))
ALIASES = {
    "remainder": "floor_mod", "nn.relu": "relu", "astype": "cast", "expand_dims": "reshape",
    "squeeze": "reshape", "flatten": "reshape", "nn.attention_bias": "nn.attention",
}  # fmt: skip
"""Kernels that have two names: both of one function, whose messages begin with the second."""


class Example(NamedTuple):
    """A call of a kernel.

    Attributes:
        args: all arguments except the outputs.
        wants: the expected results, in the data types of the outputs.
        found: its cases, which have the error bounds.
        where: the text of the case.
    """

    args: list[Any]
    wants: list[np.ndarray]
    found: Cases | KernelCase
    where: str

    def outputs(self) -> list[np.ndarray]:
        """Outputs with old content in them."""
        return [np.full(want.shape, 77).astype(want.dtype) for want in self.wants]

    def check(self, outs: list[np.ndarray], factor: float = 2) -> None:
        """Compare with the expected results; loops for other layouts may round differently."""
        for out, want in zip(outs, self.wants, strict=True):
            native = out.astype(want.dtype) if out.dtype == want.dtype.newbyteorder() else out
            assert_close(native, want, want.dtype, self.found, self.where, factor)


def run(name: str, *args: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert relaxvm.get_func(PREFIX + name)(*args) is None


@functools.cache
def examples() -> dict[str, list[Example]]:
    """Return kernel -> calls of it."""
    found: dict[str, list[Example]] = {}
    for cases in OPERATORS.values():
        for text in cases.calls():
            for call in kernel_calls(text, cases)[0]:
                example = Example(call.args, [], cases, f"{call.kernel} of {text}")
                outs = [np.empty(shape, dtype) for shape, dtype in call.outputs]
                run(call.kernel, *call.args, *outs)
                found.setdefault(call.kernel, []).append(example._replace(wants=outs))
    for name, case in KERNELS.items():
        rng = np.random.default_rng(seed_of(name))
        args = list(case.args(lambda *shape, rng=rng: rng.uniform(-9, 9, shape)))
        found.setdefault(name, []).append(Example(args, exact_of_kernel(case, args), case, name))
    return found


def few(name: str, count: int = 12) -> list[Example]:
    """Return the first calls of a kernel for each combination of data types."""
    chosen: dict[Any, list[Example]] = {}
    for example in examples()[name]:
        key = tuple(a.dtype for a in example.args if isinstance(a, np.ndarray))
        chosen.setdefault(key, []).append(example)
    per_key = max(1, count // len(chosen))
    return [example for group in chosen.values() for example in group[:per_key]]


def first(name: str) -> Example:
    """Return an example for tests that do not depend on values: with several elements, and with
    float64 if the kernel takes it; of the operator of the kernel's name, if there is one."""
    every = [e for e in examples()[name] if e.found.name == name] or examples()[name]
    found = [e for e in every if e.wants and all(w.size > 1 for w in e.wants)] or every
    wide = [e for e in found if any(getattr(a, "dtype", None) == np.float64 for a in e.args)]
    return (wide or found)[0]


def test_every_kernel_is_called() -> None:
    assert set(REGISTERED) == {*examples()}


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_kernels_without_an_operator(name: str) -> None:
    for example in examples()[name]:
        outs = example.outputs()
        run(name, *example.args, *outs)
        example.check(outs, 1)


@pytest.mark.parametrize("name", REGISTERED)
def test_operands_stay(name: str) -> None:
    for example in few(name):
        before = [np.copy(a) for a in example.args if isinstance(a, np.ndarray)]
        outs = example.outputs()
        run(name, *example.args, *outs)
        after = [a for a in example.args if isinstance(a, np.ndarray)]
        for old, new in zip(before, after, strict=True):
            np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize("name", REGISTERED)
def test_records(name: str) -> None:
    record = GLOBAL.lookup(PREFIX + name)
    assert record is not None
    assert record.signature is not None
    for example in few(name):
        assert record.signature.bind(len(example.args) + len(example.wants)) is not None
    assert str(record.signature).endswith(": tensor) -> none")
    assert not record.effect
    assert is_kernel(record)
    assert record.doc.endswith(".")
    if name in ALIASES:
        assert record.func is GLOBAL.get(PREFIX + ALIASES[name])


# Layouts


@pytest.mark.parametrize("name", REGISTERED)
@pytest.mark.parametrize("layout", ["strided", "fortran", "reversed", "swapped", "unaligned"])
def test_layouts(name: str, layout: str) -> None:
    for example in few(name, 30):
        args = [laid_out(a, layout) if isinstance(a, np.ndarray) else a for a in example.args]
        outs = [laid_out(out, layout) for out in example.outputs()]
        run(name, *args, *outs)
        example.check(outs)


def laid_out(x: np.ndarray, layout: str) -> np.ndarray:
    """Return an array with the same elements in another layout."""
    if layout == "fortran":
        return x.copy("F")
    if layout == "swapped":
        return x.astype(x.dtype.newbyteorder())
    if layout == "unaligned":
        memory = np.frombuffer(bytearray(b"\0" + x.tobytes()), np.uint8)[1:]
        return memory.view(x.dtype).reshape(x.shape)
    if layout == "reversed":
        return x[::-1].copy()[::-1] if x.ndim else x
    return np.repeat(x[..., None], 2, -1)[..., 0]


# Overlap: as if all inputs had been read before out is written


def views(buffer: np.ndarray, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Views of a buffer that overlap in various ways."""
    size = max(1, int(np.prod(shape)))
    for start in (0, 1, size // 2, size):
        yield buffer[start : start + size].reshape(shape)
    yield buffer[: 2 * size : 2].reshape(shape)
    yield buffer[size - 1 :: -1][:size].reshape(shape)
    if len(shape) == 2:
        yield buffer[:size].reshape(shape[::-1]).T


@pytest.mark.parametrize("name", REGISTERED)
def test_out_may_overlap_inputs(name: str) -> None:
    for example in few(name):
        for position, arg in enumerate(example.args):
            for j, like in enumerate(example.wants):
                if not isinstance(arg, np.ndarray) or arg.dtype != like.dtype or not like.size:
                    continue
                buffer = np.resize(arg.reshape(-1), 4 * max(arg.size, like.size) + 2)
                for i, _ in enumerate(views(buffer, like.shape)):
                    memory = buffer.copy()
                    args, outs = list(example.args), example.outputs()
                    args[position] = memory[: arg.size].reshape(arg.shape)
                    outs[j] = list(views(memory, like.shape))[i]
                    run(name, *args, *outs)
                    example._replace(where=f"{example.where}: argument {position}, view {i}").check(
                        outs
                    )


# Errors


@pytest.mark.parametrize("name", REGISTERED)
def test_out_of_the_wrong_shape(name: str) -> None:
    example = first(name)
    if "shape" in example.found.free:
        return
    for i, out in enumerate(example.outputs()):
        for wrong in ((7,), (*out.shape, 1, 1), (*out.shape, 2)):
            outs = example.outputs()
            outs[i] = np.empty(wrong, out.dtype)
            message = rf"^{ALIASES.get(name, name)}: (\w+: )?expected .*, got "
            with pytest.raises(ValueError, match=message):
                run(name, *example.args, *outs)


@pytest.mark.parametrize("name", REGISTERED)
def test_out_of_the_wrong_data_type(name: str) -> None:
    example = first(name)
    if "dtype" in example.found.free:
        return
    for i, out in enumerate(example.outputs()):
        outs = example.outputs()
        outs[i] = np.empty(out.shape, np.int16)
        message = rf"^{ALIASES.get(name, name)}: (out|mask): expected .*, got .*int16"
        with pytest.raises(ValueError, match=message):
            run(name, *example.args, *outs)


@pytest.mark.parametrize("name", REGISTERED)
def test_out_read_only(name: str) -> None:
    example = first(name)
    for i in range(len(example.wants)):
        outs = example.outputs()
        outs[i].flags.writeable = False
        message = rf"^{ALIASES.get(name, name)}: (out|mask): .*written to, got a read-only one"
        with pytest.raises(ValueError, match=message):
            run(name, *example.args, *outs)
        np.testing.assert_array_equal(outs[i], example.outputs()[i])


@pytest.mark.parametrize("name", REGISTERED)
@pytest.mark.parametrize("wrong", [None, "text", (1, 2), 1j])
def test_arguments_of_the_wrong_kind(name: str, wrong: Any) -> None:
    example, record = first(name), GLOBAL.lookup(PREFIX + name)
    assert record is not None
    assert record.signature is not None
    args = [*example.args, *example.outputs()]
    params = record.signature.bind(len(args))
    assert params is not None
    message = rf"^{ALIASES.get(name, name)}: [\w\[\]]+: expected an? \w+.*, got "
    for i, param in enumerate(params):
        takes_ints = isinstance(wrong, tuple) and "shape" in param.kinds
        if param.accepts(kind_of(wrong)) or takes_ints:
            continue
        with pytest.raises(TypeError, match=message):
            run(name, *args[:i], wrong, *args[i + 1 :])


@pytest.mark.parametrize("name", [name for name, found in OPERATORS.items() if found.large])
def test_no_memory_is_allocated(name: str) -> None:
    """A kernel allocates only small blocks, nothing of the size of the operands."""
    for kernel, args, outputs in kernel_calls(OPERATORS[name].large, OPERATORS[name])[0]:
        outs = [np.empty(shape, dtype) for shape, dtype in outputs]
        run(kernel, *args, *outs)
        tracemalloc.start()
        try:
            run(kernel, *args, *outs)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


# In C


def outcome(call: Callable[..., Any], args: list[Any], outs: list[np.ndarray]) -> tuple[Any, ...]:
    """Return the error, or the warnings and the bytes of the outputs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            assert call(*args, *outs) is None
        except Exception as raised:
            return type(raised), str(raised)
    return [(w.category, str(w.message)) for w in caught], [out.tobytes() for out in outs]


@pytest.mark.parametrize("name", REGISTERED)
def test_in_c_as_in_python(name: str) -> None:
    """Bit for bit."""
    kernel = relaxvm.get_func(PREFIX + name)
    for example in examples()[name]:
        want = outcome(getattr(kernel, "__wrapped__", kernel), example.args, example.outputs())
        assert outcome(kernel, example.args, example.outputs()) == want, example.where


# In a chain

FUSABLE = [
    name
    for name, record in RECORDS.items()
    if record.fusable and record.kernel == name and name not in ("astype", "where", "clip")
]


@pytest.mark.parametrize("name", FUSABLE)
def test_fused_as_alone(name: str) -> None:
    """Fused with another step, the results are bit for bit those of both kernels."""
    done = 0
    for example in few(name, 30):
        tensors = [a for a in example.args if isinstance(a, np.ndarray) and a.ndim]
        if len(tensors) < len(example.args):
            continue
        (want,) = example.wants
        then = "logical_not" if want.dtype == bool else "abs"
        after = np.empty_like(want)
        run(then, want, after)
        operands = ", ".join(f"${i}" for i in range(len(tensors)))
        outs = [np.empty_like(want), np.empty_like(want)]
        run("fused", *tensors, f"{name}({operands}); {then}(%0) -> %0, %1", *outs)
        assert [out.tobytes() for out in outs] == [want.tobytes(), after.tobytes()], example.where
        done += 1
    assert done
