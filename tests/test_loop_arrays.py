"""Array operations of the dispatch loop behave exactly like the Python reference builtins.

These are: reuse of array headers, reshape, calls of native functions.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxvm import ExecBuilder, Limits, Shape, VirtualMachine, load_kernels
from relaxvm._core import NaiveAllocator
from relaxvm.errors import CancelledError, LimitError
from relaxvm.native import toolchain

FLOAT32 = np.dtype("float32")
Body = Callable[[ExecBuilder], None]

SHAPES: list[tuple[int, ...]] = [
    (), (1,), (0,), (5,), (2, 3), (1, 3), (3, 1), (1, 1), (0, 4), (4, 0), (2, 0, 3), (1, 4, 1),
    (2, 3, 4), (1,) * 8, (2, 1, 1, 2, 1, 1, 1, 2), (1,) * 9, (2,) * 9,
]  # fmt: skip

DTYPES: list[np.dtype[Any]] = [
    np.dtype(name) for name in ("float32", "bool", "int64", "complex128", ">i4", "V3", "U2", "S0")
] + [np.dtype([("a", "i1"), ("b", "f8")])]


@pytest.fixture(params=[True, False], ids=["optimized", "plain"])
def optimize(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def machine(num_inputs: int, body: Body, **options: Any) -> VirtualMachine:
    b = ExecBuilder()
    with b.function("main", num_inputs=num_inputs):
        body(b)
    return VirtualMachine(b.get(), **options)


def kill(b: ExecBuilder, register: int) -> None:
    b.emit_call("vm.builtin.null_value", [], dst=b.r(register))


def allocate(b: ExecBuilder, to: int, shape: Any, dtype: Any, offset: int = 0) -> None:
    """Emit the allocation of a tensor in register `to` on a storage in register `to` + 1."""
    b.emit_call("vm.builtin.alloc_storage",
                [b.vm_state(), (16384,), b.imm(0), np.dtype("uint8"), b.convert_constant("global")],
                dst=b.r(to + 1))  # fmt: skip
    args = [b.r(to + 1), b.imm(offset), shape, dtype]
    b.emit_call("vm.builtin.alloc_tensor", args, dst=b.r(to))


def looks(array: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """All visible properties of an array except elements and address."""
    return (type(array), array.shape, array.strides, array.dtype, str(array.flags),
            type(array.base).__name__)  # fmt: skip


def recycled(shape: tuple[int, ...], dtype: np.dtype[Any], offset: int, optimize: bool) -> Any:
    """An array allocated after the VM killed many arrays of its rank, of other shapes and types."""

    def body(b: ExecBuilder) -> None:
        for register in range(1, 9, 2):
            allocate(b, register, (2,) * len(shape), np.dtype("int16"))
        for register in range(1, 9):
            kill(b, register)
        allocate(b, 1, b.r(0), dtype, offset)
        b.emit_ret(b.r(1))

    vm = machine(1, body, optimize=optimize)
    vm.main(Shape(shape))
    return vm.main(Shape(shape))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_new_array_is_like_one_of_numpy(shape: tuple[int, ...]) -> None:
    for dtype in DTYPES:
        for offset in (0, 64, 4, 3):
            assert looks(recycled(shape, dtype, offset, True)) == looks(
                recycled(shape, dtype, offset, False)), (dtype, offset)  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_a_constant_shape_as_well(shape: tuple[int, ...]) -> None:
    def body(b: ExecBuilder) -> None:
        for register in (1, 3, 5):
            allocate(b, register, shape, FLOAT32)
            kill(b, register)
        allocate(b, 7, shape, FLOAT32)
        b.emit_ret(b.r(7))

    fast, plain = (machine(0, body, optimize=optimize) for optimize in (True, False))
    for _ in range(2):
        assert looks(fast.main()) == looks(plain.main())


KEEPERS: dict[str, Callable[[Any], Any]] = {
    "the array": lambda x: x,
    "a view": lambda x: x[1:],
    "a reshaped view": lambda x: x.reshape(2, 2).T,
    "a buffer": memoryview,
    "an array with a buffer": lambda x: (memoryview(x), x)[1],
    "DLPack": np.from_dlpack,
    "its flat iterator": lambda x: x.flat,
    "a ctypes view": lambda x: np.ctypeslib.as_ctypes(x),
}


@pytest.mark.parametrize("how", KEEPERS)
def test_referenced_arrays_are_not_reused(how: str, optimize: bool) -> None:
    kept: list[Any] = []

    def body(b: ExecBuilder) -> None:
        allocate(b, 1, (4,), FLOAT32)
        b.emit_call("test.see", [b.r(1), b.r(0)])
        kill(b, 1)
        kill(b, 2)
        b.emit_ret(b.r(0))

    def see(array: Any, number: Any) -> None:
        array[...] = number
        kept.append(KEEPERS[how](array))

    vm = machine(1, body, optimize=optimize, functions={"test.see": see})
    for number in range(9):
        vm.main(number)
    for number, value in enumerate(kept):
        assert set(np.asarray(value).ravel().tolist()) == {number}


def test_weak_references_to_arrays_die(optimize: bool) -> None:
    seen: list[Any] = []
    dead: list[int] = []

    def body(b: ExecBuilder) -> None:
        allocate(b, 1, (4,), FLOAT32)
        b.emit_call("test.see", [b.r(1)])
        kill(b, 2)
        kill(b, 1)
        b.emit_call("test.look", [])
        b.emit_ret(b.r(0))

    vm = machine(
        1, body, optimize=optimize,
        functions={
            "test.see": lambda x: seen.append(weakref.ref(x, lambda _: dead.append(len(dead)))),
            "test.look": lambda: dead.append(-1),
        },
    )  # fmt: skip
    for _ in range(3):
        vm.main(0)
    assert all(ref() is None for ref in seen)
    assert dead == [0, -1, 2, -1, 4, -1]


def test_memory_is_freed_when_its_last_array_is_killed(optimize: bool) -> None:
    """A cached header holds no storage: live bytes and their peak are those of the program."""
    live: list[int] = []

    def body(b: ExecBuilder) -> None:
        for _ in range(3):
            allocate(b, 1, b.r(0), FLOAT32)
            b.emit_call("test.live", [])
            kill(b, 2)
            b.emit_call("test.live", [])
            kill(b, 1)
            b.emit_call("test.live", [])
        b.emit_ret(b.r(0))

    def note() -> None:
        live.append(allocator.stats()["live_bytes"])

    vm = machine(1, body, optimize=optimize, functions={"test.live": note})
    allocator: Any = vm.allocators[-1]
    for _ in range(2):
        vm.main(Shape([4]))
    assert live == [16384, 16384, 0] * 6
    assert allocator.stats()["peak_bytes"] == 16384


def test_registers_are_killed_when_a_function_returns(optimize: bool) -> None:
    def body(b: ExecBuilder) -> None:
        for register in (1, 3, 5):
            allocate(b, register, b.r(0), FLOAT32)
        b.emit_call("test.may_fail", [b.r(0)])
        b.emit_ret(b.r(3))

    def may_fail(shape: Any) -> None:
        if len(shape) == 2:
            raise KeyError("two")

    vm = machine(1, body, optimize=optimize, functions={"test.may_fail": may_fail})
    allocator = vm.allocators[-1]
    for _ in range(3):
        kept = vm.main(Shape([4]))
        assert allocator.stats()["live_storages"] == 1
        with pytest.raises(KeyError, match="two"):
            vm.main(Shape([2, 2]))
        assert allocator.stats()["live_storages"] == 1
        kept[:] = 1
        del kept
    gc.collect()
    assert allocator.stats()["live_bytes"] == 0


def test_arrays_from_python_whose_last_reference_is_in_the_vm(optimize: bool) -> None:
    """The headers of views made by numpy, with other strides and flags, are reused too."""
    owners: list[np.ndarray[Any, Any]] = []

    def make(rank: Any) -> Any:
        owners.append(np.arange(2.0 ** (rank + 1)).reshape((4,) + (2,) * (rank - 1)))
        view = owners[-1][::2].T
        view.flags.writeable = False
        return view

    def body(b: ExecBuilder) -> None:
        for _ in range(3):
            b.emit_call("test.make", [b.imm(2)], dst=b.r(1))
            kill(b, 1)
        allocate(b, 1, b.r(0), FLOAT32)
        b.emit_ret(b.r(1))

    vm = machine(1, body, optimize=optimize, functions={"test.make": make})
    for shape in ((3, 2), (2, 5)):
        made = vm.main(Shape(shape))
        made[:] = -1
        assert made.strides == (4 * shape[1], 4)
        assert made.flags.carray
    for owner in owners:
        assert owner.tolist() == np.arange(8.0).reshape(4, 2).tolist()


# reshape


def reshaping(b: ExecBuilder) -> None:
    b.emit_call("vm.builtin.reshape", [b.r(0), b.r(1)], dst=b.r(2))
    b.emit_ret(b.r(2))


BASE = np.arange(24, dtype=np.float32)
READ_ONLY = BASE.copy()
READ_ONLY.flags.writeable = False

TENSORS: dict[str, Any] = {
    "owner": BASE, "view": BASE[4:16], "matrix": BASE.reshape(4, 6), "turned": BASE.reshape(4, 6).T,
    "steps": BASE[::2], "read-only": READ_ONLY, "scalar": np.float32(3), "rank 0": np.array(7),
    "empty": BASE[:0], "shifted": np.frombuffer(bytes(25), np.float32, 6, 1), "list": [1, 2],
    "objects": np.array(["a", "b"], np.dtype("U3")), "none": None, "big-endian": BASE.astype(">f4"),
}  # fmt: skip

NEW_SHAPES: list[Any] = [
    Shape([24]), Shape([4, 6]), Shape([2, 3, 4]), Shape([12]), Shape([6, 2]), Shape([2]), Shape([]),
    Shape([1]), Shape([0]), Shape([0, 3]), Shape([-1]), Shape([-4, -6]), Shape([25]), (4, 6),
    (2, 1), Shape([1] * 9), Shape([2, 3, 1, 1, 1, 1, 1, 1]), Shape([1 << 62, 1 << 62]), None, 3,
]  # fmt: skip


def outcome(vm: VirtualMachine, tensor: Any, shape: Any) -> Any:
    try:
        result = vm.main(tensor, shape)
    except Exception as error:
        return type(error), str(error), error.__notes__
    shared = isinstance(tensor, np.ndarray) and np.shares_memory(result, tensor)
    place = result.ctypes.data - tensor.ctypes.data if shared else None
    return (*looks(result), result.tolist(), place, result.base is tensor, result.base is BASE)


@pytest.mark.parametrize("name", TENSORS)
def test_reshape_in_the_loop_is_the_builtin(name: str) -> None:
    fast, plain = (machine(2, reshaping, optimize=optimize) for optimize in (True, False))
    tensor = TENSORS[name]
    for shape in NEW_SHAPES:
        assert outcome(fast, tensor, shape) == outcome(plain, tensor, shape), shape


def test_a_reshaped_tensor_is_the_same_memory_and_outlives_it(optimize: bool) -> None:
    def body(b: ExecBuilder) -> None:
        allocate(b, 1, (2, 3), FLOAT32)
        kill(b, 2)
        b.emit_call("vm.builtin.reshape", [b.r(1), (6,)], dst=b.r(3))
        b.emit_call("vm.builtin.reshape", [b.r(3), (3, 2)], dst=b.r(4))
        b.emit_call("test.fill", [b.r(1)])
        kill(b, 1)
        kill(b, 3)
        b.emit_ret(b.r(4))

    def fill(x: Any) -> None:
        x[:] = np.arange(6).reshape(2, 3)

    vm = machine(1, body, optimize=optimize, functions={"test.fill": fill})
    results = [vm.main(0) for _ in range(4)]
    for i, result in enumerate(results):
        result += 10 * i
    for i, result in enumerate(results):
        assert result.tolist() == [[10 * i, 10 * i + 1], [10 * i + 2, 10 * i + 3],
                                   [10 * i + 4, 10 * i + 5]]  # fmt: skip


# Caches of call sites


def test_a_site_sees_every_shape() -> None:
    """Storage, tensor and reshape with shapes that change between runs; some are invalid."""

    def body(b: ExecBuilder) -> None:
        device, scope = b.imm(0), b.convert_constant("global")
        args = [b.vm_state(), b.r(0), device, FLOAT32, scope]
        b.emit_call("vm.builtin.alloc_storage", args, dst=b.r(3))
        b.emit_call("vm.builtin.alloc_tensor", [b.r(3), b.imm(4), b.r(1), FLOAT32], dst=b.r(4))
        b.emit_call("test.fill", [b.r(4)])
        b.emit_call("vm.builtin.reshape", [b.r(4), b.r(2)], dst=b.r(5))
        b.emit_ret(b.r(5))

    def fill(x: Any) -> None:
        x[...] = np.arange(x.size).reshape(x.shape)

    shapes: list[Any] = [
        Shape([6]), Shape([2, 3]), (3, 2), Shape([0, 6]), Shape([-1]), Shape([]), 7, Shape([1] * 9),
        Shape([1 << 40, 1 << 40]), Shape([0, 1 << 62, 1 << 62]),
    ]  # fmt: skip
    fast, plain = (
        machine(3, body, optimize=optimize, functions={"test.fill": fill})
        for optimize in (True, False)
    )
    storage = Shape([8])
    rng = np.random.default_rng(0)
    for _ in range(300):
        first, second, third = (shapes[i] for i in rng.integers(0, len(shapes), 3))
        for given in (
            (storage, first, third),
            (storage, shapes[0], shapes[1]),
            (first, second, third),
        ):
            assert run(fast, *given) == run(plain, *given), given


def run(vm: VirtualMachine, *args: Any) -> Any:
    try:
        result = vm.main(*args)
    except Exception as error:
        return type(error), str(error), error.__notes__
    return (*looks(result), result.tolist())


@pytest.mark.parametrize(
    "shape", [(0, 1 << 62, 1 << 62), (1 << 62, 0, 1 << 40), (1 << 40, 1 << 40), (0, 4), (0,)]
)
def test_constant_shapes_of_no_elements_or_too_many(shape: tuple[int, ...]) -> None:
    def body(b: ExecBuilder) -> None:
        allocate(b, 1, (2,) * len(shape), FLOAT32)
        kill(b, 1)
        kill(b, 2)
        allocate(b, 1, shape, FLOAT32, 8)
        kill(b, 2)
        b.emit_ret(b.r(1))

    fast, plain = (machine(0, body, optimize=optimize) for optimize in (True, False))
    for _ in range(2):
        assert run(fast) == run(plain)


def test_a_storage_does_not_depend_on_earlier_ones() -> None:
    allocator = NaiveAllocator()
    for scope in ("texture", "global", "texture", "global"):
        held = [allocator.alloc(64 + i, scope) for i in range(300)]
        assert {storage.scope for storage in held} == {scope}
        assert [storage.nbytes for storage in held] == list(range(64, 364))
        assert allocator.stats()["live_storages"] == 300
        del held
    assert allocator.stats()["live_bytes"] == 0


# Native functions


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    source = Path(__file__).with_name("native_kernels.c").read_text("utf-8")
    found = load_kernels(toolchain.compile_c(source, name="kernels"), release_gil=False)
    return {f"test.{name}": function for name, function in found.items()}


def calling(name: str, count: int, discard: bool = False) -> Body:
    def body(b: ExecBuilder) -> None:
        args = [b.r(i) for i in range(count)]
        b.emit_call("vm.builtin.copy", [b.imm(9)], dst=b.r(count))
        if discard:
            b.emit_call(f"test.{name}", args)
        else:
            b.emit_call(f"test.{name}", args, dst=b.r(count))
        b.emit_ret(b.r(count))

    return body


CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("noop", ()),
    ("kinds", (1, True, 2.5, None, np.zeros(2), "text", Shape([1]))),
    ("kinds", tuple(range(15))),
    ("sum", tuple(range(40))),
    ("sum", (1, 1 << 70)),
    ("sum", (1, 2.5)),
    ("sum", (1, (2,))),
    ("negate", (True,)),
    ("half", (3.0,)),
    ("short_text", (3,)),
    ("fail", ("KeyError", "no such thing")),
    ("fail", ("Odd", "unknown kind")),
    ("fail_twice", ()),
    ("think_better", ()),
    ("code", (0,)),
    ("code", (7,)),
    ("copy", (np.arange(4.0), np.zeros(4))),
    ("copy", (np.arange(4.0), READ_ONLY)),
    ("copy", (np.arange(8.0)[::2], np.zeros(4))),
    ("spoil", (np.ones((3, 2)).T,)),
    ("same", (5,)),
]


def fresh(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) and value.flags.writeable else value


@pytest.mark.parametrize(("name", "args"), CALLS)
@pytest.mark.parametrize("discard", [False, True], ids=["taken", "discarded"])
def test_native_functions_behave_the_same_in_the_loop(
    kernels: dict[str, Any], name: str, args: tuple[Any, ...], discard: bool
) -> None:
    seen = []
    for optimize in (True, False):
        body = calling(name, len(args), discard)
        vm = machine(len(args), body, optimize=optimize, functions=kernels)
        for _ in range(3):
            given = [fresh(x) for x in args]
            try:
                result: Any = vm.main(*given)
            except Exception as error:
                result = type(error), str(error), error.__notes__
            seen.append(repr((result, given)))
    assert len(set(seen)) == 1


def test_hooks_and_limits_see_native_functions(kernels: dict[str, Any]) -> None:
    vm = machine(1, calling("negate", 1), functions=kernels)
    names: list[str] = []
    vm.set_instrument(lambda function, name, before, *rest: names.append(name))
    assert vm.main(True) is False
    assert names[-2:] == ["test.negate"] * 2
    vm.set_instrument(None)
    names.clear()
    assert vm.main(True) is False
    assert names == []

    def forever(b: ExecBuilder) -> None:
        b.emit_call("test.noop", [])
        b.emit_goto(-1)

    with pytest.raises(LimitError, match="fuel"):
        machine(0, forever, functions=kernels, limits=Limits(fuel=1000)).main()
    with pytest.raises(LimitError, match="wall_time"):
        machine(0, forever, functions=kernels, limits=Limits(wall_time=0.05)).main()


def test_a_loop_of_native_calls_can_be_cancelled(kernels: dict[str, Any]) -> None:
    def forever(b: ExecBuilder) -> None:
        b.emit_call("test.noop", [])
        b.emit_goto(-1)

    vm = machine(0, forever, functions=kernels)
    timer = threading.Timer(0.1, vm.cancel)
    timer.start()
    with pytest.raises(CancelledError):
        vm.main()
    timer.join()


def test_native_results_are_values_of_the_vm(kernels: dict[str, Any], optimize: bool) -> None:
    def body(b: ExecBuilder) -> None:
        b.emit_call("test.sum", [b.r(0), b.imm(1)], dst=b.r(0))
        b.emit_call("vm.builtin.make_tuple", [b.r(0), b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))

    vm = machine(1, body, optimize=optimize, functions=kernels)
    assert vm.main(1 << 40) == ((1 << 40) + 1,) * 2
