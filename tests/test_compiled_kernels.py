"""Kernels in C called by native code: tensors of which no array is made, equal to bytecode."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import Limits, VirtualMachine
from relaxvm.executable import VMExecutable
from relaxvm.native import toolchain
from relaxvm.native.vm_code.code import FunctionCode
from relaxvm.native.vm_code.local_tensors import find_local_tensors
from relaxvm.script import from_source

pytestmark = pytest.mark.skipif(toolchain.compiler() is None, reason="no C compiler")

KERNELS = r"""
#include <relaxvm/kernel.h>

static int64_t bytes_of(const RvmTensor *x) {
  int64_t n = x->dtype.bits / 8;
  for (int32_t i = 0; i < x->ndim; i++) n *= x->shape[i];
  return n;
}

/* mix(x, y, out): sums of bytes, of arrays of one size. */
RVM_KERNEL(mix) {
  const RvmTensor *x = rvm_any_tensor(args, 0), *y = rvm_any_tensor(args, 1);
  RvmTensor *out = rvm_any_tensor(args, 2);
  const uint8_t *a = (const uint8_t *)x->data + x->byte_offset;
  const uint8_t *b = (const uint8_t *)y->data + y->byte_offset;
  uint8_t *c = (uint8_t *)out->data + out->byte_offset;
  int64_t n = bytes_of(out);
  if (bytes_of(x) != n || bytes_of(y) != n) return rvm_error("ValueError", "sizes differ");
  if (n > 0 && a[0] == 13) return rvm_error("ValueError", "unlucky");
  for (int64_t i = 0; i < n; i++) c[i] = (uint8_t)(a[i] + b[i]);
  return RVM_OK;
}

/* tell(x, out): what a kernel is told of x, as bytes; the rest of out is left as it is. */
RVM_KERNEL(tell) {
  const RvmTensor *x = rvm_any_tensor(args, 0);
  RvmTensor *out = rvm_any_tensor(args, 1);
  uint8_t *c = (uint8_t *)out->data + out->byte_offset;
  int64_t n = bytes_of(out);
  uint8_t told[16] = {(uint8_t)x->ndim, x->dtype.code, x->dtype.bits, (uint8_t)x->dtype.lanes,
                      (uint8_t)x->device.type, (uint8_t)x->byte_offset,
                      (uint8_t)((uintptr_t)x->data % 64)};
  for (int32_t i = 0; i < x->ndim && i < 8; i++) told[7 + i] = (uint8_t)x->shape[i];
  for (int64_t i = 0; i < n && i < 16; i++) c[i] = told[i];
  return RVM_OK;
}

/* number(x): its first byte, as an int. */
RVM_KERNEL(number) {
  const RvmTensor *x = rvm_any_tensor(args, 0);
  return rvm_return_int(ret, bytes_of(x) > 0 ? *(uint8_t *)x->data : -1);
}

RVM_KERNEL_NAMES("mix", "tell", "number")
"""
HEADER = "from relaxvm.script import ir as I, relax as R\n\n@I.ir_module\nclass Module:\n"
DTYPES = ("float32", "bool", "int8", "uint16", "int64", "float64", "float16")
SHAPES: tuple[tuple[int, ...], ...] = ((4,), (), (2, 3), (1, 5, 1), (65,), (0,), (600,), (16, 16))
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {}, "aligned": {"alignment": 64}, "more aligned": {"alignment": 128},
    "strided": {"strided": True}, "unlocked": {"release_gil": True}, "unsure": {"writes": None},
}  # fmt: skip


@pytest.fixture(scope="module")
def library() -> str:
    return str(toolchain.compile_c(KERNELS, name="kernels"))


def functions(library: str, **options: Any) -> dict[str, Callable[..., Any]]:
    kernels = relaxvm.load_kernels(library, **options)
    return {f"k.{name}": kernel for name, kernel in kernels.items()} | {"t.see": lambda x: x.copy()}


def both(text: str, functions: dict[str, Any], **options: Any) -> list[VirtualMachine]:
    executable = relaxvm.build(from_source(HEADER + text))
    native = executable.with_section("exec_mode", "compiled")
    return [VirtualMachine(e, functions=functions, **options) for e in (executable, native)]


def local_tensors(vm: VirtualMachine, name: str) -> int:
    image = vm._translated_for_entries()
    index = [f.name for f in vm.executable.functions].index(name)
    return len(find_local_tensors(FunctionCode(image, index)))


def program(seed: int) -> tuple[str, tuple[str, tuple[int, ...]]]:
    """A random function of two arrays, of calls of kernels; and the type of these."""
    choice = random.Random(seed)
    shape, dtype = choice.choice(SHAPES), choice.choice(DTYPES)
    ty = f"R.Tensor({shape}, {dtype!r})"
    values, lines, kept = ["x", "y"], [], []
    for i in range(choice.randint(2, 9)):
        kind = choice.choice(["mix"] * 6 + ["tell", "see"])
        a, b = choice.choice(values[-3:]), choice.choice(values)
        if kind == "mix":
            text = f'R.call_dps_packed("k.mix", ({a}, {b}), out_ty={ty})'
        elif kind == "tell":
            text = f'R.call_dps_packed("k.tell", ({a},), out_ty={ty})'
        else:
            text = f'R.call_packed("t.see", {a}, ty_args={ty})'
        lines.append(f"        v{i} = {text}")
        values.append(f"v{i}")
        if choice.random() < 0.3:
            kept.append(f"v{i}")
    kept.append(values[-1])
    head = f"    @R.function(pure=False)\n    def f{seed}(x: {ty}, y: {ty}):\n"
    return head + "\n".join(lines) + f"\n        return ({', '.join(kept)},)\n", (dtype, shape)


def elements(choice: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(choice.bytes(nbytes), dtype).reshape(shape).copy()


def outcome(vm: VirtualMachine, name: str, args: tuple[Any, ...]) -> Any:
    """The bytes of the results, or the error with its notes."""
    try:
        results = vm[name](*args)
    except ValueError as error:
        return str(error), getattr(error, "__notes__", [])
    return [(a.dtype, a.shape, a.tobytes()) for a in results], [a.tobytes() for a in args]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_random_programs(library: str, options: dict[str, Any]) -> None:
    """However the kernels want to be called, and whatever they are told of tensors."""
    texts, types = zip(*map(program, range(40)), strict=True)
    one, other = both("\n".join(texts), functions(library, **options))
    assert other.native_code is not None
    assert sum(local_tensors(other, f"f{i}") for i in range(40)) > 40
    choice = np.random.default_rng(1)
    for i, (dtype, shape) in enumerate(types):
        for _ in range(6):
            args = elements(choice, dtype, shape), elements(choice, dtype, shape)
            assert outcome(other, f"f{i}", args) == outcome(one, f"f{i}", args), texts[i]


@pytest.mark.parametrize("limits", [Limits(wall_time=100.0), Limits(fuel=10**9)], ids=repr)
def test_with_limits(library: str, limits: Limits) -> None:
    texts, types = zip(*map(program, range(20)), strict=True)
    one, other = both("\n".join(texts), functions(library), limits=limits)
    choice = np.random.default_rng(2)
    for i, (dtype, shape) in enumerate(types):
        args = elements(choice, dtype, shape), elements(choice, dtype, shape)
        assert outcome(other, f"f{i}", args) == outcome(one, f"f{i}", args), texts[i]


CHAIN = """
    @R.function(pure=False)
    def main(x: R.Tensor((8,), "uint8"), y: R.Tensor((8,), "uint8")):
        a = R.call_dps_packed("k.mix", (x, y), out_ty=R.Tensor((8,), "uint8"))
        b = R.call_dps_packed("k.mix", (a, x), out_ty=R.Tensor((8,), "uint8"))
        c = R.call_dps_packed("k.mix", (b, a), out_ty=R.Tensor((8,), "uint8"))
        return (c,)
"""


@pytest.mark.parametrize(
    ("x", "y", "fails"), [(13, 1, True), (3, 10, True), (5, 3, True), (1, 1, False)]
)
def test_errors_are_those_of_bytecode(library: str, x: int, y: int, fails: bool) -> None:
    """In the first kernel, the second, the third: with tensors that were no arrays in the notes."""
    one, other = both(CHAIN, functions(library))
    assert local_tensors(other, "main") == 2
    args = np.full(8, x, np.uint8), np.full(8, y, np.uint8)
    for _ in range(2):
        expected = outcome(one, "main", args)
        assert outcome(other, "main", args) == expected
        assert (expected[0] == "unlucky") == fails
        assert not fails or any("uint8[8]" in note for note in expected[1])


def test_memory_of_tensors_is_zero(library: str) -> None:
    """A kernel that leaves a part of its result as it was tells nothing of the process."""
    text = """
    @R.function(pure=False)
    def main(x: R.Tensor((200,), "uint8")):
        a = R.call_dps_packed("k.tell", (x,), out_ty=R.Tensor((200,), "uint8"))
        b = R.call_dps_packed("k.mix", (a, x), out_ty=R.Tensor((200,), "uint8"))
        return (b,)
"""
    _, other = both(text, functions(library))
    assert local_tensors(other, "main") == 1
    for _ in range(3):
        (result,) = other["main"](np.zeros(200, np.uint8))
        assert not result[16:].any()
        assert result[:8].tolist() == [1, 1, 8, 1, 1, 0, result[6], 200]


def test_a_kernel_that_returns_a_number(library: str) -> None:
    text = """
    @R.function(pure=False)
    def main(x: R.Tensor((8,), "uint8")):
        a = R.call_dps_packed("k.mix", (x, x), out_ty=R.Tensor((8,), "uint8"))
        n = R.call_packed("k.number", a, ty_args=R.Any)
        b = R.call_dps_packed("k.mix", (a, x), out_ty=R.Tensor((8,), "uint8"))
        return (n, b)
"""
    for vm in both(text, functions(library)):
        n, b = vm["main"](np.full(8, 21, np.uint8))
        assert (n, b.tolist()) == (42, [63] * 8)


def test_results_outlive_the_next_run(library: str) -> None:
    _, other = both(CHAIN, functions(library))
    results = [other["main"](*[np.full(8, i, np.uint8)] * 2)[0] for i in range(5)]
    assert [r[0] for r in results] == [0, 5, 10, 15, 20]


def test_a_file_with_other_kernels(library: str) -> None:
    """The same native code, with Python functions in the place of kernels."""

    def mix(x: Any, y: Any, out: Any) -> None:
        out[...] = x + y

    executable: VMExecutable = relaxvm.build(from_source(HEADER + CHAIN), exec_mode="compiled")
    x = np.full(8, 5, np.uint8)
    for kernels in (functions(library), {"k.mix": mix}, functions(library)):
        (result,) = VirtualMachine(executable, functions=kernels)["main"](x, x)
        assert result.tolist() == [25] * 8
