"""Functions of a VM as functions of TVM's FFI: `relaxvm.contrib.tvm.functions`."""

from __future__ import annotations

import ctypes
import gc
import itertools
import sys
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import ExecBuilder, Limits, Shape, VirtualMachine
from relaxvm.dtypes import as_dtype
from relaxvm.errors import ArityError, LimitError

tvm = pytest.importorskip("tvm")
tvm_ffi = pytest.importorskip("tvm_ffi")

from relaxvm.contrib.tvm import functions  # noqa: E402
from relaxvm.contrib.tvm.functions import ffi_function, object_of, values_of  # noqa: E402
from relaxvm.core import ffi  # noqa: E402

from . import children  # noqa: E402
from .threads import run_in_threads  # noqa: E402
from .tvm_names import address  # noqa: E402


def tensor(*shape: int, seed: int = 0, dtype: str = "float32") -> Any:
    return tvm.runtime.tensor(np.random.default_rng(seed).normal(size=shape).astype(dtype))


def identity(num_inputs: int = 1) -> VirtualMachine:
    """A VM whose function returns the tuple of its arguments."""
    builder = ExecBuilder()
    with builder.function("main", num_inputs=num_inputs):
        args = [builder.r(i) for i in range(num_inputs)]
        builder.emit_call("vm.builtin.make_tuple", args, dst=builder.r(num_inputs))
        builder.emit_ret(builder.r(num_inputs))
    return VirtualMachine(builder.get())


def test_a_tensor_that_is_returned_is_the_same() -> None:
    main = ffi_function(identity(2).main)
    a, b = tensor(3), tensor(2, 2)
    for _ in range(3):
        first, second = main(a, b)
        assert first.same_as(a)
        assert second.same_as(b)
        nested = main(a, main(b, b))
        assert nested[1][0].same_as(b)


def test_many_arguments() -> None:
    tensors = [tensor(i) for i in range(40)]
    results = ffi_function(identity(40).main)(*tensors)
    assert all(result.same_as(t) for result, t in zip(results, tensors, strict=True))
    np.testing.assert_array_equal(results[30].numpy(), tensors[30].numpy())


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "float16", "bfloat16", "uint64"])
def test_tensors_of_one_function_one_after_the_other(dtype: str) -> None:
    """The array that one tensor was seen through does not show in the next."""
    seen: list[Any] = []

    def look(x: Any) -> Any:
        seen.append((x.shape, x.dtype.name, x.tobytes()))
        return np.asarray(~x if x.dtype == bool else x + x)

    function = ffi_function(look)
    for shape in [(2, 3), (2, 3), (3, 2), (), (0, 4), (6,), (6,), (1, 6)]:
        for kind in (dtype, "float64"):
            before = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(as_dtype(kind))
            result = function(object_of(before.copy()))
            assert seen.pop() == (shape, kind, before.tobytes())
            assert result.numpy().tobytes() == look(before).tobytes()
            seen.clear()


def test_an_array_that_is_kept_keeps_its_tensor() -> None:
    kept: list[Any] = []
    function = ffi_function(lambda x: kept.append(x[1:]))
    expected = []
    for seed in range(5):
        given = tensor(1000, seed=seed)
        expected.append(given.numpy()[1:])
        assert function(given) is None
        del given
    gc.collect()
    tensors = [tensor(1000, seed=9) for _ in range(5)]  # would take memory that was freed
    for array, values in zip(kept, expected, strict=True):
        np.testing.assert_array_equal(array, values)
    assert len({array.ctypes.data for array in kept} | {address(t) for t in tensors}) == 10


def test_a_result_outlives_the_machine() -> None:
    builder = ExecBuilder()
    with builder.function("main", num_inputs=1):
        builder.emit_call("double", [builder.r(0)], dst=builder.r(1))
        builder.emit_ret(builder.r(1))
    vm = VirtualMachine(builder.get(), functions={"double": lambda x: x + x})
    given = tensor(100)
    result = ffi_function(vm.main)(given)
    died = weakref.ref(vm)
    del vm
    gc.collect()
    assert died() is None
    expected = given.numpy() * 2
    del given
    np.testing.assert_array_equal(result.numpy(), expected)


def test_a_function_that_nobody_refers_to_lets_go_of_its_machine() -> None:
    vm = identity()
    died = weakref.ref(vm)
    function = ffi_function(vm.main)
    given = tensor(3)
    (result,) = function(given)
    del vm
    gc.collect()
    assert died() is not None
    del function
    gc.collect()
    assert died() is None
    assert result.same_as(given)


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -(1 << 63), (1 << 63) - 1, 1.5, "", "short", "ß" * 3, "x" * 100, b"",
        b"\0bytes", b"y" * 50, (), (1, (2.5, "a", ())),
    ],
    ids=repr,
)  # fmt: skip
def test_plain_values_both_ways(value: Any) -> None:
    seen: list[Any] = []
    result = ffi_function(lambda x: seen.append(x) or x)(value)
    assert seen == [value]
    assert type(seen[0]) is type(value)

    def plain(x: Any) -> Any:
        return tuple(map(plain, x)) if isinstance(x, (tuple, tvm_ffi.Array)) else x

    assert plain(result) == value


def test_shapes_data_types_and_devices() -> None:
    seen: list[Any] = []
    function = ffi_function(lambda x: seen.append(x) or x)
    given = [tvm_ffi.Shape((2, 3)), tvm_ffi.Shape(()), tvm_ffi.dtype("bfloat16"), tvm.cpu()]
    results = [function(each) for each in given]
    assert seen[:2] == [Shape([2, 3]), Shape()]
    assert [type(each) for each in seen[:2]] == [Shape, Shape]
    assert str(seen[2]) == "bfloat16"
    assert seen[3] == relaxvm.cpu()
    assert results == given
    assert [type(each) for each in results[:2]] == [tvm_ffi.Shape] * 2


@pytest.mark.parametrize("name", ["float32x4", "handle", "int5", "bool", "float8_e4m3fn"])
def test_every_data_type_of_tvm_passes(name: str) -> None:
    """Those that numpy does not have are objects that only TVM knows."""
    given = tvm_ffi.dtype(name)
    vm = identity(2)
    result = ffi_function(vm.main)(given, (given, 1))
    assert [result[0], result[1][0]] == [given] * 2
    assert ffi.to_ffi(vm.main(given, 1)[0]) == given
    assert ffi.to_ffi(ffi.Function(tvm.get_global_func("testing.echo"), "echo")(given)) == given


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4", "float4_e2m1fn", "int8x4"])
def test_a_tensor_of_any_data_type_is_the_same_as_a_result(name: str) -> None:
    """Of types that numpy has through an extension, and of those that it does not have."""
    given = tvm.runtime.empty((4,), name)
    result = ffi_function(identity(3).main)(given, 2, (given,))
    assert result[0].same_as(given)
    assert result[2][0].same_as(given)
    assert object_of(identity(1).main(given))[0].same_as(given)


def test_a_tensor_that_numpy_does_not_have_is_no_operand() -> None:
    add = ffi_function(relaxvm.get_func("relaxvm.kernel.add"))
    with pytest.raises(TypeError, match=r"add: a: expected a tensor .*, got tvm\..*Tensor"):
        add(tvm.runtime.empty((4,), "int8x4"), tensor(4), tensor(4))


def test_a_function_that_is_returned_is_the_same() -> None:
    builder = ExecBuilder()
    with builder.function("inner", num_inputs=1):
        builder.emit_ret(builder.r(0))
    with builder.function("main", num_inputs=1):
        args = [builder.f("inner"), builder.r(0)]
        builder.emit_call("vm.builtin.make_closure", args, dst=builder.r(1))
        builder.emit_ret(builder.r(1))
    closure = ffi_function(VirtualMachine(builder.get())["main"])(0)
    result = ffi_function(identity(2).main)(1, closure)
    assert result[1].same_as(closure)
    assert ffi_function(lambda x: x)(closure).same_as(closure)


def test_objects_that_only_tvm_knows_pass_unharmed() -> None:
    vm = identity(3)
    module = tvm.IRModule({})
    packed = tvm.get_global_func("testing.echo")
    mapping = tvm_ffi.Map({"a": tensor(2)})
    results = ffi_function(vm.main)(module, packed, mapping)
    assert results[0].same_as(module)
    assert results[1].same_as(packed)
    assert results[2]["a"].shape == (2,)
    own = object()
    assert ffi_function(vm.main)(own, 1, 2)[0] is own


@pytest.mark.parametrize("kind", [tvm_ffi.Array, tvm_ffi.List])
def test_a_sequence_that_is_returned_is_the_same(kind: Any) -> None:
    vm = identity(2)
    x, y = kind([tensor(2), 1]), kind([kind([2])])
    results = ffi_function(vm.main)(x, y)
    assert results[0].same_as(x)
    assert results[1].same_as(y)
    nested = ffi_function(lambda x, y: (y, (x, 3), x))(x, y)
    assert nested[0].same_as(y)
    assert nested[1][0].same_as(x)
    assert nested[2].same_as(x)
    assert type(ffi_function(lambda x: ())(kind([]))) is tvm_ffi.Array
    other = ffi_function(lambda x: (*x[:1], 1))(x)
    assert not other.same_as(x)
    del x, y, results, nested
    assert [each.shape for each in other[:1]] == [(2,)]


def test_numbers_beyond_64_bits_are_as_without_a_machine() -> None:
    echo = tvm_ffi.convert(lambda x: x)
    function = ffi_function(lambda x: x)
    for number in (1 << 63, -(1 << 63) - 1, 1 << 200):
        try:
            assert echo(number) == number
        except OverflowError:  # apache-tvm-ffi 0.1.12 has no such numbers
            with pytest.raises((OverflowError, RuntimeError), match="too large"):
                ffi_function(lambda number=number: number)()
        else:
            assert function(number) == number
            assert function((number, 1))[0] == number


def test_a_function_of_a_machine_comes_back_as_itself() -> None:
    vm = identity()
    seen: list[Any] = []
    look = ffi_function(lambda f, x: seen.append(f) or f(x))
    (result,) = look(ffi_function(vm.main), 3)
    assert seen == [vm.main]
    assert result == 3
    returned = ffi_function(lambda: vm.main)()
    assert isinstance(returned, tvm_ffi.Function)
    assert returned(4)[0] == 4


def test_tensors_lent_by_a_caller_are_copied() -> None:
    """A program in C may pass a DLTensor that is gone after the call, as TVM's VM expects."""
    kept: list[Any] = []
    keep = ffi_function(kept.append)

    @tvm_ffi.register_global_func("relaxvm.test.lend", override=True)
    def lend(x: Any) -> None:
        keep(x)

    try:
        array = np.arange(4, dtype=np.float32)
        tvm_ffi.get_global_func("relaxvm.test.lend")(array)
        array[:] = 0
        assert kept[0].shape == (4,)
    finally:
        tvm_ffi.registry.remove_global_func("relaxvm.test.lend")


def test_arrays_that_share_parts() -> None:
    """Each part is converted once: a tree of them would be exponential."""
    shared = tvm_ffi.Array([1.0])
    for _ in range(30):
        shared = tvm_ffi.Array([shared] * 2)
    result = ffi_function(identity().main)(shared)
    for _ in range(31):
        result = result[0]
    assert result[0] == 1.0


def test_errors_keep_their_class_and_notes() -> None:
    def fail(x: Any) -> Any:
        raise KeyError("lost")

    builder = ExecBuilder()
    with builder.function("main", num_inputs=1):
        builder.emit_call("fail", [builder.r(0)], dst=builder.r(1))
        builder.emit_ret(builder.r(1))
    vm = VirtualMachine(builder.get(), functions={"fail": fail})
    with pytest.raises(KeyError, match="lost") as caught:
        ffi_function(vm.main)(tensor(2))
    assert any("main" in note for note in caught.value.__notes__)
    with pytest.raises(ArityError, match="expects 1 argument, got 2"):
        ffi_function(vm.main)(1, 2)
    endless = ExecBuilder()
    with endless.function("main", num_inputs=0):
        endless.emit_goto(0) if False else endless.emit_call("main", [], dst=endless.r(0))
        endless.emit_ret(endless.r(0))
    limited = VirtualMachine(endless.get(), limits=Limits(call_depth=50))
    with pytest.raises(LimitError, match="call_depth"):
        ffi_function(limited.main)()


def test_errors_reach_callers_without_the_interpreter_lock() -> None:
    """A function in C calls: the error becomes one of the FFI, of the same kind."""
    def fail() -> None:
        raise ValueError("from inside")

    apply = tvm_ffi.get_global_func("testing.apply", allow_missing=True)
    if apply is None:
        pytest.skip("this TVM has no function that calls another")
    with pytest.raises(ValueError, match="from inside"):
        apply(ffi_function(fail))
    assert apply(ffi_function(lambda x: x + 1), 2) == 3


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("has no text")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("from inside"), "from inside"),
        (KeyboardInterrupt("stopped"), "stopped"),
        (Unprintable(), "an exception that cannot be passed on"),
    ],
    ids=repr,
)
def test_callers_without_the_interpreter_lock_always_get_an_error(
    error: BaseException, text: str
) -> None:
    """Code in C++ takes for granted that there is one."""
    def fail() -> None:
        raise error

    function = ffi_function(fail)
    function.release_gil = True
    with pytest.raises(Exception, match=text) as caught:
        function()
    assert caught.type is (ValueError if text == "from inside" else RuntimeError)


def test_references_are_balanced() -> None:
    main = ffi_function(identity(3).main)
    objects = [tensor(4), "text" * 10, tvm_ffi.Shape((1, 2))]
    main(*objects)
    before = sys.getrefcount(None), [sys.getrefcount(o) for o in objects]
    counts = [use_count(o) for o in objects if isinstance(o, tvm_ffi.Object)]
    for _ in range(1000):
        main(*objects)
        with pytest.raises(ArityError):
            main(*objects, 1)
    gc.collect()
    after = sys.getrefcount(None), [sys.getrefcount(o) for o in objects]
    assert abs(after[0] - before[0]) < 500
    assert after[1] == before[1]
    assert [use_count(o) for o in objects if isinstance(o, tvm_ffi.Object)] == counts


def use_count(value: Any) -> int:
    """The number of strong references to an object of TVM's FFI."""
    return ctypes.c_uint32.from_address(value.__chandle__()).value


def test_calls_inside_of_calls() -> None:
    """A function that is called while it runs sees each tensor as it is."""
    def descend(x: Any, depth: int) -> float:
        below = 0.0 if depth == 0 else function(tensor(3, seed=depth), depth - 1)
        return float(x.sum()) + below

    function = ffi_function(descend)
    expected = sum(float(tensor(3, seed=s).numpy().sum()) for s in range(1, 9))
    given = tensor(3, seed=8)
    assert function(given, 7) == pytest.approx(expected, rel=1e-6)


def test_several_threads() -> None:
    vm = identity(2)
    main = ffi_function(vm.main)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for i in itertools.islice(itertools.cycle(range(1, 9)), 400):
            a, b = tensor(i, seed=seed), tensor(2, i, seed=seed)
            before = a.numpy(), b.numpy()
            x, y = main(a, b)
            if not (x.same_as(a) and y.same_as(b) and (x.numpy() == before[0]).all()
                    and (y.numpy() == before[1]).all()):  # fmt: skip
                wrong.append((seed, i))

    run_in_threads(work, 6)
    assert not wrong


def test_values_and_objects() -> None:
    given = tensor(3)
    array, shape, text = values_of([given, tvm_ffi.Shape((2,)), "a"])
    assert array.ctypes.data == address(given)
    assert (shape, text) == (Shape([2]), "a")
    assert object_of(array).same_as(given)
    assert not object_of(array[:2]).same_as(given)
    reversed_view = object_of(array[::-1])
    assert reversed_view.strides == (-1,)


def test_weak_references_do_not_find_an_array_after_its_call() -> None:
    """Its tensor may be gone."""
    seen: list[weakref.ref[Any]] = []
    function = ffi_function(lambda x: seen.append(weakref.ref(x)))
    for seed in range(3):
        function(tensor(1000, seed=seed))
        assert seen.pop()() is None


def test_more_arguments_than_bits() -> None:
    """The first arguments are tensors, whose arrays are kept between calls, the others are not."""
    given: list[tuple[Any, ...]] = []
    function = ffi_function(lambda *args: given.append(args))
    first = [tensor(3, seed=seed) for seed in range(16)]
    before = [x.numpy().copy() for x in first]
    for _ in range(3):
        function(*first, *range(16, 80))
        function(*first, *first, *first, *first, *first)
    del first
    gc.collect()
    for args in given:
        assert len(args) == 80
        for i, value in enumerate(args):
            if i < 16 or isinstance(value, np.ndarray):
                np.testing.assert_array_equal(value, before[i % 16])
            else:
                assert value == i
    assert ffi_function(lambda *args: len(args))(*[tensor(2)] * 300) == 300


def test_a_tensor_that_is_returned_in_another_shape_is_another() -> None:
    def turn(x: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            x.shape = x.shape[::-1]
        return x

    def as_int(x: Any) -> Any:
        x.dtype = np.int32
        return x

    given = tensor(2, 3)
    for _ in range(3):
        result = ffi_function(turn)(given)
        assert result.shape == (3, 2)
        assert address(result) == address(given)
        assert ffi_function(as_int)(given).dtype == "int32"
        assert given.shape == (2, 3)


def test_a_tensor_that_is_returned_read_only_or_empty_is_the_same() -> None:
    def lock(x: Any) -> Any:
        x.setflags(write=False)
        return x

    function = ffi_function(lock)
    for given in [tensor(3), tensor(3), tensor(3, 0, 2), tensor()]:
        assert function(given).same_as(given)
        assert object_of(values_of([given])[0]).same_as(given)
    written: list[bool] = []
    look = ffi_function(lambda x: written.append(x.flags.writeable) or lock(x))
    for _ in range(3):
        look(tensor(3))
    assert written == [True] * 3


def test_an_array_that_has_taken_memory_of_its_own() -> None:
    """Its memory is freed with it, and no tensor is seen through it."""
    owns: list[bool] = []

    def change(x: Any) -> None:
        owns.append(x.flags.owndata)
        x.__setstate__((1, x.shape, x.dtype, False, bytes(x.nbytes)))

    function = ffi_function(change)
    for size in range(1, 200):
        for seed in range(3):
            function(tensor(size, seed=seed))
    assert not any(owns)


LEVELS = 12_000
"""More than C code may nest: CPython 3.13 allows 10,000, the versions before it fewer."""


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the size of the stack is the limit")
def test_deep_lists_end_in_an_error() -> None:
    deep, wide = tvm_ffi.Array([]), tvm_ffi.Array([])
    items: tuple[Any, ...] = ()
    for _ in range(LEVELS):
        deep, wide, items = tvm_ffi.Array([deep]), tvm_ffi.Array([1, wide]), (1, items)
    with pytest.raises(RecursionError):
        ffi_function(identity().main)(deep)
    with pytest.raises(RecursionError, match="in an argument of relaxvm"):
        ffi_function(lambda x: 1)(wide)
    with pytest.raises(RecursionError):
        ffi_function(lambda: items)()


def test_lists_that_contain_themselves_are_refused() -> None:
    endless = tvm_ffi.List([1])
    endless.append(endless)
    with pytest.raises(ValueError, match="a list contains itself"):
        ffi_function(lambda x: 1)(endless)
    endless.clear()


def test_pointers_pass_unharmed() -> None:
    seen: list[Any] = []
    function = ffi_function(lambda x: seen.append(x) or x)
    assert function(ctypes.c_void_p(64)).value == 64
    assert [x.value for x in seen] == [64]


def test_a_handle_is_forgotten_with_its_function() -> None:
    """A callee that something else keeps does not stand for a function of the same address."""
    function = ffi_function(lambda: None)
    callees = [each for each in gc.get_objects() if type(each).__name__ == "_Callee"]
    del function
    gc.collect()
    others = [tvm_ffi.convert(lambda i=i: i) for i in range(50)]  # one of them has its address
    assert [values_of([other])[0]() for other in others] == list(range(50))
    assert callees


AT_EXIT = """
import ctypes
import numpy as np
import tvm
from relaxvm.contrib.tvm.functions import ffi_function, object_of
from relaxvm.core import ffi

keep = ffi.library().TVMFFIObjectIncRef
function = ffi_function(lambda x: x)
tensor = object_of(np.arange(10.0))
assert function(tensor).same_as(tensor)
libc = ctypes.CDLL(None)
for each in (function, tensor):
    handle = ctypes.c_void_p(each.__chandle__())
    keep(handle)
    # Called when the process ends, long after the interpreter, as are destructors of C++.
    libc.__cxa_atexit(ffi.library().TVMFFIObjectDecRef, handle, None)
del function, tensor, each
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="registers what the process ends with")
def test_objects_that_outlive_the_interpreter() -> None:
    done = children.run(
        [sys.executable, "-P", "-c", AT_EXIT], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def nested_lists() -> list[Any]:
    """Values whose conversion meets a tuple again, at every depth that is treated differently."""
    x = np.arange(3, dtype=np.float32)
    flat = (x, 1, "a")
    long = tuple(range(40))
    return [
        (), (flat, flat), ((flat, flat), flat), (((flat,),),), (long, long), ((long, flat), long),
        (Shape(()), Shape((2, 3)), (Shape((1 << 40, 0)),)), tuple((i, (i,)) for i in range(40)),
    ]  # fmt: skip


def plainly(value: Any) -> Any:
    """A value of the FFI or of a VM in a form that can be compared."""
    if isinstance(value, (np.ndarray, tvm_ffi.Tensor)):
        return np.asarray(value if isinstance(value, np.ndarray) else value.numpy()).tolist()
    if isinstance(value, (tuple, list, tvm_ffi.Array, tvm_ffi.Shape)):
        return [plainly(item) for item in value]
    return value


@pytest.fixture(params=[True, False], ids=["made here", "made by the FFI"])
def making(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let arrays and shapes be made in both ways: the second is for unknown versions of the FFI."""
    if not request.param:
        monkeypatch.setattr(ffi, "version", lambda: (0, 2, 0))
    functions._attach.cache_clear()
    assert functions._attach() is request.param
    yield
    monkeypatch.undo()
    functions._attach.cache_clear()


@pytest.mark.usefixtures("making")
@pytest.mark.parametrize("value", nested_lists(), ids=lambda value: str(plainly(value))[:40])
def test_nested_tuples_both_ways(value: Any) -> None:
    seen: list[Any] = []
    made = object_of(value)
    assert plainly(made) == plainly(value)
    result = ffi_function(lambda x: seen.append(x) or x)(made)
    assert plainly(seen) == [plainly(value)]
    assert plainly(result) == plainly(value)
    if value:
        assert [type(item) for item in seen[0]] == [type(item) for item in value]


@pytest.mark.usefixtures("making")
def test_items_of_a_result_outlive_it() -> None:
    made = object_of((tensor(2), (Shape((4, 5)), "text that is not short"), 7))
    items = list(made)
    joined = made + made
    inner = joined[1]
    del made, joined
    gc.collect()
    assert plainly(inner) == [[4, 5], "text that is not short"]
    assert items[0].shape == (2,)
    assert tvm_ffi.Array([inner, *items])[3] == 7


@pytest.mark.usefixtures("making")
def test_tensors_of_results_keep_their_arrays() -> None:
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    read_only = base.copy()
    read_only.flags.writeable = False
    arrays = [base, base.transpose(2, 0, 1), base[:, ::2, 1:], base[:0], np.array(2.5),
              np.ones((1,) * 20, np.int8), read_only,
              base.astype(as_dtype("bfloat16"))]  # fmt: skip
    for array in arrays:
        made = object_of(array)
        assert (made.shape, str(made.dtype)) == (array.shape, array.dtype.name)
        assert made.strides == tuple(s // array.itemsize for s in array.strides)
        assert values_of([made])[0].tolist() == array.tolist()
        assert (address(made) == array.ctypes.data) == array.flags.writeable
        again = tvm_ffi.from_dlpack(made)
        assert address(again) == address(made)
    alone = np.arange(1000.0)
    died = weakref.ref(alone)
    made = object_of(alone)
    seen = np.from_dlpack(made)
    del alone, made, again
    assert seen[999] == 999
    assert died() is not None
    del seen
    assert died() is None


@pytest.mark.usefixtures("making")
def test_a_result_whose_steps_are_not_whole_elements_is_refused() -> None:
    array = np.zeros((3, 5), np.int8)[:, :4].view(np.int32)[:, 0]
    with pytest.raises(BufferError, match="not whole elements"):
        object_of(array)


@pytest.mark.usefixtures("making")
def test_threads_without_the_interpreter_lock_let_go_of_results() -> None:
    libc, library = ctypes.CDLL(None), ffi.library()
    array = np.arange(10.0)
    died = weakref.ref(array)
    handles = [object_of((array, array[1:])) for _ in range(200)]
    owned = [ctypes.c_void_p(handle.__chandle__()) for handle in handles]
    for handle in owned:
        library.TVMFFIObjectIncRef(handle)
    del handles, array
    run = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    threads = []
    for handle in owned:  # C code alone: these threads have no state of Python
        thread = ctypes.c_ulong()
        code = ctypes.cast(library.TVMFFIObjectDecRef, run)
        assert libc.pthread_create(ctypes.byref(thread), None, code, handle) == 0
        threads.append(thread)
    for thread in threads:
        assert libc.pthread_join(thread, None) == 0
    assert died() is None


@pytest.mark.parametrize("kind", ["Map", "Dict"])
def test_maps_that_are_returned_are_the_same(kind: str) -> None:
    make = getattr(tvm_ffi, kind, None)
    if make is None:
        pytest.skip(f"this version of TVM's FFI has no {kind}")
    x = tensor(3)
    inner = make({"x": x, "function": tvm.get_global_func("testing.echo"), "n": 3, "nan": 1e400})
    given = make({"inner": inner, "list": [x, make({1: "a text of many characters"})]})
    main = ffi_function(identity(2).main)
    for _ in range(2):
        first, second = main(given, inner)
        assert first.same_as(given)
        assert second.same_as(inner)
    assert main(main(given, given), 1)[0][1].same_as(given)
    changes = [
        lambda d: d.update(more=1), lambda d: d["inner"].update(n=4), lambda d: d.pop("list"),
        lambda d: d["list"][1].clear(), lambda d: d["inner"].update(x=d["inner"]["x"][1:]),
        lambda d: d["inner"].update(function=None),
    ]  # fmt: skip
    for change in changes:
        result = ffi_function(lambda d, change=change: (change(d), d)[1])(given)
        assert not result.same_as(given)
        expected = values_of([given])[0]
        change(expected)
        assert str(values_of([result])[0]) == str(expected)


def test_shapes_and_texts_that_are_returned() -> None:
    shape, text = tvm_ffi.Shape((4, 5)), tvm_ffi.core.String("a text of many characters")
    result = ffi_function(identity(2).main)(shape, text)
    assert result[0] == shape
    assert result[1] == text
