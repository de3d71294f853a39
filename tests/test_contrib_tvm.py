"""Programs compiled by TVM, run in the same process: `relaxvm.from_tvm`, and the VM that takes and
returns TVM's objects."""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import Shape
from relaxvm.contrib.tvm import drop_in as bridge
from relaxvm.core._native import LARGE_COPY
from relaxvm.errors import ArityError, CopyWarning, LinkError, MissingExtraError, RelaxVMError
from relaxvm.native import toolchain
from relaxvm.native.functions import NativeFunction, native_function

from . import children

tvm = pytest.importorskip("tvm")
tvm_ffi = pytest.importorskip("tvm_ffi")

from tvm import relax  # noqa: E402
from tvm.script import ir as I  # noqa: E402
from tvm.script import relax as R  # noqa: E402
from tvm.script import tirx as T  # noqa: E402

from .threads import run_in_threads  # noqa: E402
from .tvm_names import address  # noqa: E402


@I.ir_module
class Model:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"), y: R.Tensor((4,), "float32")
    ) -> R.Tuple(R.Tensor(("n", 4), "float32"), R.Tensor(("n", 4), "float32")):
        with R.dataflow():
            a = R.add(x, y)
            b = R.multiply(a, R.const(np.arange(4, dtype="float32")))
            R.output(a, b)
        return a, b

    @R.function
    def largest(x: R.Tensor(("n",), "float32")):
        with R.dataflow():
            r = R.topk(x, k=2)
            R.output(r)
        return r

    @R.function
    def same(x: R.Tensor) -> R.Tensor:
        return x

    @R.function
    def pair(x: R.Tuple(R.Tensor, R.Tensor)):
        return (x[1], (x[0], R.shape([2, 3])))

    @R.function
    def constant():
        return R.const(np.arange(3, dtype="float32"))


@I.ir_module
class Sum:
    @R.function
    def main(
        x: R.Tensor((3, 4), "float32"), y: R.Tensor((4,), "float32")
    ) -> R.Tensor((3, 4), "float32"):
        z: R.Tensor((3, 4), "float32") = R.add(x, y)
        return z


@I.ir_module
class Calls:
    """Calls of packed functions, which the tests register with TVM."""

    @R.function(pure=False)
    def main(x: R.Any) -> R.Any:
        return R.call_packed("relaxvm.test.f", x, ty_args=R.Any)


@I.ir_module
class Values:
    @R.function
    def same(x: R.Any) -> R.Any:
        return x

    @R.function
    def volume(shape: R.Shape(["n", "m"])):
        n, m = T.int64(), T.int64()
        return R.shape([n * m])

    @R.function(pure=False)
    def call(f: R.Callable((R.Any,), R.Any, False), x: R.Any) -> R.Any:
        result: R.Any = f(x)
        return result


@pytest.fixture(scope="module")
def values() -> Any:
    return tvm.compile(Values, "llvm")


@pytest.fixture(scope="module")
def model() -> Any:
    return tvm.compile(Model, "llvm")


@pytest.fixture(scope="module")
def calls() -> Any:
    return tvm.compile(Calls, "llvm")


@pytest.fixture
def register() -> Iterator[Callable[[Callable[..., Any]], None]]:
    """Register a function with TVM under the name that `Calls` calls."""
    def put(function: Callable[..., Any]) -> None:
        tvm_ffi.register_global_func("relaxvm.test.f", function, override=True)

    yield put
    tvm_ffi.registry.remove_global_func("relaxvm.test.f")


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def at(offset: int, x: Any) -> Any:
    """Copy an array to an address that is `offset` above a multiple of 64."""
    room = np.empty(x.nbytes + 128, np.uint8)
    start = -room.ctypes.data % 64 + offset
    copy = room[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


# Programs


def test_a_program_gives_what_it_gives_under_tvm(model: Any) -> None:
    theirs, ours = relax.VirtualMachine(model, tvm.cpu()), relaxvm.from_tvm(model)
    for n in (1, 3, 0, 17):
        x, y = numbers(n, 4), numbers(4)
        expected = theirs["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(y))
        for mine, other in zip(ours.main(x, y), expected, strict=True):
            np.testing.assert_array_equal(mine, other.numpy())
    x = numbers(9)
    values, indices = ours.largest(x)
    assert values.tolist() == np.sort(x)[:-3:-1].tolist()
    assert indices.tolist() == np.argsort(x)[:-3:-1].tolist()


def test_kernels_are_called_without_python(model: Any) -> None:
    vm = relaxvm.from_tvm(model)
    kernels = {name: vm.module.imports[0].get_function(name) for name in ("add", "multiply")}
    assert {type(kernel) for kernel in kernels.values()} == {NativeFunction}


@pytest.mark.parametrize(
    "form",
    ["module", "exported", "path", "name", "machine", "its module", "drop-in", "jitted from C"],
)
def test_forms_of_an_executable(form: str, model: Any, tmp_path: Path) -> None:
    if form == "module":
        given = model.mod
    elif form == "exported":
        model.export_library(str(tmp_path / "model.so"))
        given = tvm.runtime.load_module(str(tmp_path / "model.so"))
    elif form in ("path", "name"):
        given = tmp_path / "model.so" if form == "path" else str(tmp_path / "model.so")
        model.export_library(str(given))
    elif form == "drop-in":
        given = bridge.VirtualMachine(model, tvm.cpu())
    elif form == "machine":
        given = relax.VirtualMachine(model, tvm.cpu())
    elif form == "its module":
        given = relax.VirtualMachine(model, tvm.cpu()).module
    else:
        given = tvm.compile(Sum, "c")
    x, y = numbers(3, 4), numbers(4)
    result = relaxvm.from_tvm(given).main(x, y)
    np.testing.assert_array_equal(result[0] if isinstance(result, tuple) else result, x + y)


@pytest.mark.parametrize("what", [None, 3, b"bytes", {}])
def test_from_tvm_of_other_objects(what: Any) -> None:
    with pytest.raises(TypeError, match=r"from_tvm: expected a result of tvm\.compile, .* got "):
        relaxvm.from_tvm(what)


def test_modules_without_an_executable(model: Any) -> None:
    with pytest.raises(TypeError, match="got a module of kind 'llvm'"):
        relaxvm.from_tvm(model.mod.imports[0])
    with pytest.raises(FileNotFoundError, match="no_such"):
        relaxvm.from_tvm("no_such.so")
    builder = relaxvm.ExecBuilder()
    with builder.function("main", num_inputs=1):
        builder.emit_ret(builder.r(0))
    ours = builder.get()
    for what in (ours, ours.mod, relaxvm.VirtualMachine(ours)):
        with pytest.raises(TypeError, match=f"got {type(what).__name__} of relaxvm, which has no"):
            relaxvm.from_tvm(what)


def test_a_vm_can_be_the_only_reference_to_a_program() -> None:
    machines = [relax.VirtualMachine(tvm.compile(m, "llvm"), tvm.cpu()) for m in (Model, Sum)]
    gc.collect()
    x, y = numbers(3, 4), numbers(4)
    for machine, names in zip(machines, ({"main", "pair"}, {"main"}), strict=True):
        vm = relaxvm.from_tvm(machine)
        assert names <= set(vm.functions)
        machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(y))
    np.testing.assert_array_equal(relaxvm.from_tvm(machines[1]).main(x, y), x + y)
    del machines, machine
    gc.collect()
    np.testing.assert_array_equal(vm.main(x, y), x + y)


def test_a_machine_whose_executable_is_not_found(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = relax.VirtualMachine(model, tvm.cpu())
    monkeypatch.setattr(bridge, "executable_of", lambda machine: None)
    with pytest.raises(TypeError, match="pass the executable that it was made of"):
        relaxvm.from_tvm(machine)


def test_functions_in_machine_code() -> None:
    """TVM's machine runs them."""
    compiled = relax.build(Model, "llvm", exec_mode="compiled")
    x, y = numbers(3, 4), numbers(4)
    np.testing.assert_array_equal(relaxvm.from_tvm(compiled).main(x, y)[0], x + y)
    got = bridge.VirtualMachine(compiled, tvm.cpu())["main"](*map(tvm.runtime.tensor, (x, y)))
    np.testing.assert_array_equal(got[0].numpy(), x + y)


def test_code_for_other_devices_is_refused() -> None:
    class Fake:
        kind = "relax.VMExecutable"
        imports = (type("Cuda", (), {"kind": "cuda", "imports": (), "implements_function":
                                     staticmethod(lambda name: False)}),)  # fmt: skip

        def write_to_file(self, path: str, fmt: str) -> None:
            relaxvm.ExecBuilder().get().save(path)

    with pytest.raises(LinkError, match="on the CPU alone: modules of kind cuda"):
        relaxvm.from_tvm(Fake())


def test_code_for_devices_that_tvm_cannot_load_is_refused() -> None:
    target = tvm.target.Target("opencl", host="llvm")
    with pytest.raises(LinkError, match="on the CPU alone: modules of kind opencl"):
        relaxvm.from_tvm(tvm.compile(Sum, target))


# Alignment


@pytest.mark.parametrize("offset", [4, 16, 20, 32, 60])
@pytest.mark.parametrize("target", ["generic", "x86-64-v3"])
def test_misaligned_inputs(offset: int, target: str, model: Any) -> None:
    if target != "generic":
        if "x86_64" not in tvm.target.codegen.llvm_get_system_triple():
            pytest.skip("not an x86 machine")
        model = tvm.compile(Model, tvm.target.Target({"kind": "llvm", "mcpu": target}))
    vm = relaxvm.from_tvm(model)
    x, y = at(offset, numbers(7, 4)), at(offset, numbers(4, seed=1))
    before = x.copy(), y.copy()
    a, _ = vm.main(x, y)
    np.testing.assert_array_equal(a, before[0] + before[1])
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(vm.main(x[::-1], y)[0], a[::-1])
    np.testing.assert_array_equal(vm.main(np.asfortranarray(x), y)[0], a)
    x.flags.writeable = y.flags.writeable = False
    np.testing.assert_array_equal(vm.main(x, y)[0], a)


@pytest.mark.parametrize("make", [lambda x: at(8, x), lambda x: at(0, np.repeat(x, 2))[::2],
                                  lambda x: at(0, x)])  # fmt: skip
def test_what_a_kernel_writes_to_any_argument_arrives(make: Any) -> None:
    library = toolchain.compile_c(
        '#include <relaxvm/kernel.h>\nRVM_KERNEL(zero) {\n'
        '  RvmTensor *x = rvm_any_tensor(args, (int)args[0].as_int);\n'
        '  rvm_f32(x)[0] = 0;\n  return RVM_OK;\n}\n', name="zero"
    )  # fmt: skip
    function = tvm_ffi.load_module(str(library)).zero
    zero = native_function(function)
    assert (zero.writes, zero.alignment) == (None, 64)
    for position in (1, 2):
        x, y = make(np.ones(3, np.float32)), make(np.ones(3, np.float32))
        assert zero(position, x, y) is None
        assert (x.tolist(), y.tolist())[position - 1] == [0, 1, 1]
        assert (x.tolist(), y.tolist())[2 - position] == [1, 1, 1]
    x = make(np.ones(3, np.float32))
    x.flags.writeable = False
    y = make(np.ones(3, np.float32))
    zero(2, x, y)  # arguments that are only read need not be writable
    assert y.tolist() == [0, 1, 1]


@pytest.mark.parametrize("make", [lambda x: at(8, x), lambda x: at(0, np.repeat(x, 2))[::2],
                                  lambda x: np.broadcast_to(x[:1], x.shape)])  # fmt: skip
def test_what_a_kernel_writes_is_not_lost_with_a_copy(make: Any) -> None:
    library = toolchain.compile_c(
        '#include <relaxvm/kernel.h>\nRVM_KERNEL(zero) {\n'
        '  rvm_f32(rvm_any_tensor(args, 1))[0] = 0;\n  return RVM_OK;\n}\n', name="zero"
    )  # fmt: skip
    zero = native_function(tvm_ffi.load_module(str(library)).zero, "zero")
    x = make(np.ones(3, np.float32))
    x.flags.writeable = False
    with pytest.raises(ValueError, match="zero: argument 1: the kernel writes it, and the array is "
                                         "read-only"):  # fmt: skip
        zero(None, x)
    assert x.tolist() == [1, 1, 1]


def test_an_argument_that_is_not_written_is_left_alone() -> None:
    """Two views of the same memory are copied; the unchanged copy must not overwrite the writes to
    the other."""
    library = toolchain.compile_c(
        '#include <relaxvm/kernel.h>\nRVM_KERNEL(shift) {\n'
        '  const float *x = rvm_f32(rvm_any_tensor(args, 1));\n'
        '  float *y = rvm_f32(rvm_any_tensor(args, 0));\n'
        '  for (int i = 0; i < 4; i++) y[i] = x[i] + 10;\n  return RVM_OK;\n}\n', name="shift"
    )  # fmt: skip
    shift = native_function(tvm_ffi.load_module(str(library)).shift)
    x = np.arange(8, dtype=np.float32)
    shift(x[::2], x[::2])
    assert x.tolist() == [10, 1, 12, 3, 14, 5, 16, 7]


# Errors


def test_errors_of_kernels(model: Any) -> None:
    add = relaxvm.from_tvm(model).module.imports[0].get_function("add")
    x = numbers(3, 4)
    with pytest.raises(Exception, match="add") as theirs:
        model.mod.imports[0].get_function("add")(x, numbers(5), x)
    with pytest.raises(type(theirs.value)) as ours:
        add(x, numbers(5), x)
    assert str(ours.value) == str(theirs.value)
    assert ours.value.__notes__ == ["in native function add"]
    with pytest.raises(type(theirs.value)):  # only one message
        add(x, numbers(5), x)
    with pytest.raises(TypeError):
        add(x, x)


def test_errors_in_programs_name_the_place(model: Any) -> None:
    vm = relaxvm.from_tvm(model)
    with pytest.raises(ValueError, match="dtype") as e:
        vm.main(np.zeros((2, 4)), numbers(4))
    assert "in main, pc " in "".join(e.value.__notes__)
    with pytest.raises(RuntimeError, match="2 arguments"):
        vm.main(numbers(2, 4))


def test_a_function_that_fails_and_does_not_say_why() -> None:
    library = toolchain.compile_c(
        "#include <relaxvm/kernel.h>\nRVM_KERNEL(fail) { return -1; }\n", name="fail"
    )
    fail = native_function(tvm_ffi.load_module(str(library)).fail, "fail")
    with pytest.raises(RelaxVMError, match="fail: the kernel failed with code -1 and did not say"):
        fail()


def test_errors_of_python_functions_keep_class_and_traceback(calls: Any, register: Any) -> None:
    def fail(x: Any) -> None:
        raise KeyError(x)

    register(fail)
    with pytest.raises(KeyError, match="gone") as e:
        relaxvm.from_tvm(calls).main("gone")
    assert e.traceback[-1].path == Path(__file__)
    assert any("in main, pc 0: call relaxvm.test.f" in note for note in e.value.__notes__)


# Functions that are registered with TVM


def test_arguments_and_results_of_python_functions(calls: Any, register: Any) -> None:
    seen: list[Any] = []

    def echo(x: Any) -> Any:
        seen.append(x)
        return x

    register(echo)
    main = relaxvm.from_tvm(calls).main
    for value in (None, True, 7, -(1 << 62), 2.5, "", "short", "not so short a text", b"bytes"):
        assert main(value) == value
        assert type(main(value)) is type(value)
    assert main(Shape((2, 3))) == (2, 3)
    assert type(main(Shape((2, 3)))) is Shape
    assert main(np.dtype("int8")) == np.dtype("int8")
    assert main(relaxvm.cpu(3)) == relaxvm.cpu(3)
    seen.clear()
    x = numbers(2, 3)
    result = main((x, (1, "a"), Shape(())))
    assert isinstance(seen[0][0], tvm.runtime.Tensor)
    np.testing.assert_array_equal(result[0], x)
    assert result[1:] == ((1, "a"), ())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint16",
                                   "bool", "float8_e4m3fn"])  # fmt: skip
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3)])
@pytest.mark.parametrize("readonly", [False, True])
def test_tensors_of_all_types(
    dtype: str, shape: tuple[int, ...], readonly: bool, calls: Any, register: Any
) -> None:
    pytest.importorskip("ml_dtypes")
    seen: list[Any] = []

    def echo(x: Any) -> Any:
        seen.append((str(x.dtype), tuple(x.shape), address(x) if 0 not in x.shape else None))
        return x

    register(echo)
    x = at(0, np.ones(shape, relaxvm.values.as_dtype(dtype)))
    x.flags.writeable = not readonly
    y = relaxvm.from_tvm(calls).main(x)
    assert seen == [(dtype, shape, x.ctypes.data if x.size else None)]
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    assert not x.size or y.ctypes.data == x.ctypes.data
    assert y.tobytes() == x.tobytes()


def test_data_types_that_tvm_cannot_be_given(calls: Any, register: Any) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    register(lambda x: None)
    main = relaxvm.from_tvm(calls).main
    for dtype in (ml_dtypes.int4, "S3", "datetime64[s]"):
        with pytest.raises(TypeError, match="cannot be passed to C"):
            main(np.zeros(2, dtype))


def writable(x: Any) -> np.ndarray:
    """A view of a contiguous tensor of TVM.  Those of numpy 1 cannot be written to."""
    view = np.from_dlpack(x)
    memory = (ctypes.c_char * view.nbytes).from_address(view.ctypes.data)
    return np.ndarray(view.shape, view.dtype, memory)


@pytest.mark.parametrize("make", [lambda x: at(4, x), lambda x: np.repeat(x, 2)[::2],
                                  lambda x: x.astype(">f4")])  # fmt: skip
def test_python_functions_write_to_copies(make: Any, calls: Any, register: Any) -> None:
    def fill(x: Any) -> None:
        assert address(x) % 64 == 0
        writable(x)[...] = 5

    register(fill)
    x = make(numbers(6))
    relaxvm.from_tvm(calls).main(x)
    assert x.tolist() == [5] * 6


def test_large_copies_for_functions_of_tvm_are_reported_once(calls: Any, register: Any) -> None:
    register(lambda _: None)
    vm = relaxvm.from_tvm(calls)
    large = np.zeros((2, LARGE_COPY // 4), np.float32)
    with pytest.warns(CopyWarning) as caught:
        vm.main(at(4, large[0]))
    (message,) = [str(each.message) for each in caught]
    assert "relaxvm.test.f: argument 0, float32[16384]" in message
    assert "copied for relaxvm.test.f in every call: its address is not a multiple" in message
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vm.main(at(4, large[0]))  # the second time
        vm.main(at(4, large[0, :8]))  # small


def test_a_function_as_a_value(calls: Any, register: Any) -> None:
    register(lambda f: f(np.ones(2, np.float32), 3))
    taken: list[Any] = []

    def f(x: Any, n: int) -> Any:
        taken.append(type(x))
        return x * n

    assert relaxvm.from_tvm(calls).main(f).tolist() == [3, 3]
    assert taken == [np.ndarray]
    register(lambda f: tvm_ffi.convert(lambda x: x + 1))
    assert relaxvm.from_tvm(calls).main(None)(1) == 2


def test_objects_of_tvm_as_arguments(values: Any) -> None:
    vm = relaxvm.from_tvm(values)
    bfloat16 = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    tensor = tvm.runtime.tensor(np.ones(2, bfloat16))
    pairs = [
        (tensor, np.ones(2, bfloat16)),
        (tvm_ffi.Shape((2, 3)), Shape((2, 3))),
        (tvm_ffi.Array([tensor, 1]), (np.ones(2, bfloat16), 1)),
        ((tensor, [tvm_ffi.Shape((2,))]), (np.ones(2, bfloat16), (Shape((2,)),))),
        (tvm_ffi.dtype("int8"), np.dtype("int8")),
        (tvm_ffi.device("cpu", 2), relaxvm.cpu(2)),
        (tvm_ffi.Map({"a": 1}), {"a": 1}),
    ]
    for given, wanted in pairs:
        value = vm.same(given)
        assert type(value) is type(wanted)
        np.testing.assert_equal(value, wanted)
    assert vm.volume(tvm_ffi.Shape((2, 3))) == Shape((6,))


def test_functions_of_tvm_as_arguments(values: Any) -> None:
    kinds: list[str] = []

    def double(x: Any) -> Any:
        kinds.append(type(x).__name__)
        return tvm.runtime.tensor(2 * x.numpy()) if hasattr(x, "numpy") else 2 * x

    x = numbers(3)
    vm, theirs = relaxvm.from_tvm(values), relax.VirtualMachine(values, tvm.cpu())
    ours = bridge.VirtualMachine(values, tvm.cpu())
    function = tvm_ffi.convert(double)
    for call, f in ((theirs["call"], double), (ours["call"], double), (ours["call"], function)):
        result = call(f, tvm.runtime.tensor(x))
        assert isinstance(result, tvm.runtime.Tensor)
        np.testing.assert_array_equal(result.numpy(), 2 * x)
    result = vm.call(function, x)
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, 2 * x)
    assert kinds == ["Tensor"] * 4
    np.testing.assert_array_equal(vm.call(double, x), 2 * x)  # a Python function gets arrays
    assert kinds[4:] == ["ndarray"]


def test_tensors_live_as_long_as_they_are_used(calls: Any, register: Any) -> None:
    kept: list[Any] = []
    register(lambda x: kept.append(x))
    x = numbers(100)
    expected = x.copy()
    relaxvm.from_tvm(calls).main(x)
    held = weakref.ref(x)
    aligned = x.ctypes.data % 64 == 0
    del x
    gc.collect()
    assert (held() is not None) == aligned  # otherwise a copy is kept
    np.testing.assert_array_equal(kept[0].numpy(), expected)
    kept.clear()
    gc.collect()
    assert held() is None

    register(lambda n: tvm.runtime.tensor(np.arange(n)))
    y = relaxvm.from_tvm(calls).main(5)[1:]
    gc.collect()
    assert y.tolist() == [1, 2, 3, 4]


def test_which_functions_a_program_may_use(calls: Any, register: Any) -> None:
    register(lambda x: "TVM's")
    assert relaxvm.from_tvm(calls).main(0) == "TVM's"
    assert relaxvm.from_tvm(calls, functions=["relaxvm.test.f"]).main(0) == "TVM's"
    own = {"relaxvm.test.f": lambda x: "mine"}
    assert relaxvm.from_tvm(calls, functions=own).main(0) == "mine"
    for others in ([], {}, relaxvm.Registry()):
        with pytest.raises(LinkError, match=r"relaxvm\.test\.f"):
            relaxvm.from_tvm(calls, functions=others)


def test_a_missing_function_is_named(calls: Any) -> None:
    with pytest.raises(LinkError, match=r"relaxvm\.test\.f"):
        relaxvm.from_tvm(calls)


def test_functions_of_tvm_without_conversion() -> None:
    b = relaxvm.ExecBuilder()
    with b.function("main", num_inputs=1):
        b.emit_call("f", [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    executable = b.get()

    def double(x: Any) -> Any:
        assert isinstance(x, tvm.runtime.Tensor)
        return tvm.runtime.tensor(x.numpy() * 2)

    f = tvm_ffi.convert(double)
    x = numbers(3)
    got = relaxvm.VirtualMachine(executable, functions={"f": f}).main(x)
    np.testing.assert_array_equal(got, x * 2)
    with pytest.raises(TypeError, match=r"defined in Python is no native code; give it to a VM"):
        native_function(f)


# Threads, references


def test_eight_threads(model: Any) -> None:
    vm = relaxvm.from_tvm(model)
    wrong: list[int] = []

    def work(seed: int) -> None:
        for n in range(1, 60):
            x, y = numbers(n, 4, seed=seed), numbers(4, seed=n)
            if not np.array_equal(vm.main(x, y)[0], x + y):
                wrong.append(seed)

    run_in_threads(work, 8)
    assert not wrong


def test_no_reference_is_lost(model: Any, calls: Any, register: Any) -> None:
    register(lambda x: x)
    vm, echo = relaxvm.from_tvm(model), relaxvm.from_tvm(calls).main
    x, y, skew = at(0, numbers(3, 4)), at(0, numbers(4)), at(4, numbers(4))
    counts = [sys.getrefcount(i) for i in (x, y, skew, x.dtype)]
    for _ in range(50):
        vm.main(x, y)
        vm.main(x, skew)
        echo((x, skew, 1.5, "a long enough text"))
        echo(None)
        with pytest.raises(ValueError):
            vm.main(x.astype(np.float64), y)
    gc.collect()
    assert [sys.getrefcount(i) for i in (x, y, skew, x.dtype)] == pytest.approx(counts, abs=3)


def test_a_program_outlives_its_executable() -> None:
    vm = relaxvm.from_tvm(tvm.compile(Model, "llvm"))
    gc.collect()
    x, y = numbers(3, 4), numbers(4)
    np.testing.assert_array_equal(vm.main(x, y)[0], x + y)


# The VM for TVM's objects


@pytest.fixture
def vm(model: Any) -> Any:
    return bridge.VirtualMachine(model, tvm.cpu())


def test_tensors_in_and_out(vm: Any) -> None:
    x, y = numbers(3, 4), numbers(4)
    result = vm["main"](tvm.runtime.tensor(x), y)
    assert [type(item) for item in result] == [tvm.runtime.Tensor] * 2
    np.testing.assert_array_equal(result[0].numpy(), x + y)
    tensor = tvm.runtime.tensor(x)
    assert vm["same"](tensor).same_as(tensor)
    assert address(vm["same"](x)) == x.ctypes.data


def test_errors_are_caught_as_those_of_tvm(vm: Any) -> None:
    x = tvm.runtime.tensor(numbers(2))
    for call in (lambda: vm["pair"](x, x), lambda: vm.set_input("pair", x, x)):
        with pytest.raises(tvm.error.InternalError, match="pair: expects 1 argument") as raised:
            call()
        assert type(raised.value) is ArityError
        assert type(pickle.loads(pickle.dumps(raised.value))) is ArityError
    with pytest.raises(ValueError, match="no output is saved"):
        vm.get_outputs("pair")


def test_copies_share_the_vm_and_pickling_is_refused(vm: Any) -> None:
    other = copy.copy(vm)
    assert other is not vm
    assert other.vm is vm.vm
    assert other["constant"]().numpy().tolist() == [0, 1, 2]
    for refused in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot pickle a VirtualMachine of TVM's interface"):
            refused(vm)


def test_nested_tuples_and_shapes(vm: Any) -> None:
    x, y = tvm.runtime.tensor(numbers(2)), tvm.runtime.tensor(numbers(3))
    for given in ((x, y), [x, y], tvm_ffi.Array([x, y])):
        first, (second, shape) = vm["pair"](given)
        assert first.same_as(y)
        assert second.same_as(x)
        assert (type(shape), shape) == (tvm_ffi.Shape, (2, 3))


def test_constants_cannot_be_changed_from_outside(vm: Any) -> None:
    writable(vm["constant"]())[...] = 9
    assert vm["constant"]().numpy().tolist() == [0, 1, 2]


def test_the_stateful_interface(vm: Any, capsys: Any) -> None:
    x, y = numbers(3, 4), numbers(4)
    vm.set_input("main", tvm.runtime.tensor(x), y=y, other=1)
    assert 'Warning: Keyword argument "other" is unused in main' in capsys.readouterr().out
    vm.invoke_stateful("main")
    a, b = vm.get_outputs("main")
    np.testing.assert_array_equal(a.numpy(), x + y)
    assert isinstance(b, tvm.runtime.Tensor)
    assert vm.module["get_output_arity"]("main") == 2
    np.testing.assert_array_equal(vm.module["get_output"]("main", 0).numpy(), x + y)
    tensor = tvm.runtime.tensor(x)
    vm.set_input("same", tensor)
    vm.invoke_stateful("same")
    assert vm.get_outputs("same").same_as(tensor)
    vm.set_input("same", 3)
    vm.invoke_stateful("same")
    assert (vm.get_outputs("same").dtype, vm.get_outputs("same").shape) == ("int32", ())
    with pytest.raises(ValueError, match="unknown function"):
        vm.set_input("nothing", x)
    with pytest.raises(ValueError, match="call set_input first"):
        vm.invoke_stateful("pair")


def test_saved_functions_and_timing(vm: Any) -> None:
    x, y = numbers(3, 4), numbers(4)
    vm.save_function("main", "saved", x, y=tvm.runtime.tensor(y))
    np.testing.assert_array_equal(vm["saved"]()[0].numpy(), x + y)
    vm.save_function("main", "quiet", x, y, include_return=False)
    assert vm["quiet"]() is None
    assert len(vm.time_evaluator("saved", tvm.cpu(), number=2, repeat=3)().results) == 3
    timed = vm.time_evaluator("main", tvm.cpu(), number=1)(tvm.runtime.tensor(x), y)
    assert timed.mean > 0


def test_instruments(vm: Any) -> None:
    seen: list[Any] = []
    functions: dict[str, Any] = {}

    def instrument(func: Any, name: str, before: bool, ret: Any, *args: Any) -> int:
        seen.append((name, before, ret, args))
        assert functions.setdefault(name, func) is func
        return 0

    vm.set_instrument(instrument)
    x, y = numbers(3, 4), numbers(4)
    vm["main"](x, y)
    added = [args for name, before, _, args in seen if name == "add" and not before]
    assert [type(arg) for arg in added[0]] == [tvm.runtime.Tensor] * 3
    np.testing.assert_array_equal(added[0][2].numpy(), x + y)
    assert {type(func) for func in functions.values()} == {tvm_ffi.Function}
    out = tvm.runtime.tensor(np.zeros((3, 4), np.float32))
    functions["add"](*added[0][:2], out)
    np.testing.assert_array_equal(out.numpy(), x + y)
    vm.set_instrument(None)
    count = len(seen)
    vm["main"](x, y)
    assert len(seen) == count
    with pytest.raises(ValueError, match=r"no_such\.function"):
        vm.set_instrument("no_such.function")


def test_the_module(vm: Any, model: Any) -> None:
    module = vm.module
    assert module.kind == "relax.VirtualMachine"
    assert module["get_function_arity"]("main") == 2
    assert module["get_function_param_name"]("main", 1) == "y"
    x = tvm.runtime.tensor(numbers(4))
    assert module["same"](x).same_as(x)
    kernel = module.get_function("add", query_imports=True)
    assert isinstance(kernel, tvm_ffi.Function)
    assert not module.implements_function("add")
    assert module.implements_function("add", query_imports=True)
    with pytest.raises(AttributeError, match="nothing"):
        module["nothing"]
    with pytest.raises(AttributeError, match="nothing"):
        vm["nothing"]


def test_it_passes_for_a_machine_of_tvm(vm: Any, model: Any) -> None:
    assert isinstance(vm, relax.VirtualMachine)
    theirs = relax.VirtualMachine(model, tvm.cpu())
    assert [name for name in vars(theirs) if not hasattr(vm, name)] == []
    assert vm._get_function_arity("main") == 2
    with pytest.raises(AttributeError, match="no attribute '_nothing'"):
        vm._nothing  # noqa: B018
    assert isinstance(vm["main"], tvm_ffi.Function)
    assert vm["main"] is vm["main"]
    with relaxvm.profile(vm) as profile:
        vm["main"](tvm.runtime.tensor(numbers(3, 4)), numbers(4))
    assert "add" in str(profile)


def test_a_machine_of_relaxvm_from_an_executable_of_tvm(model: Any) -> None:
    x, y = numbers(3, 4), numbers(4)
    for device in (tvm.cpu(), [tvm.cpu()], relaxvm.cpu(), None):
        vm = relaxvm.VirtualMachine(model, device)
        np.testing.assert_array_equal(vm.main(x, y)[0], x + y)
    with pytest.raises(ValueError, match=r"expected a CPU, got cuda\(0\)"):
        relaxvm.VirtualMachine(model, tvm.device("cuda", 0))
    vm = relaxvm.VirtualMachine(relax.build(Model, "llvm", exec_mode="compiled"), tvm.cpu())
    np.testing.assert_array_equal(vm.main(x, y)[0], x + y)


def test_arguments_of_the_machine(model: Any) -> None:
    for wrong in (None, Model, "model.so"):
        with pytest.raises(ValueError, match=r"expected a tvm\.runtime\.Module or Executable"):
            bridge.VirtualMachine(wrong, tvm.cpu())
    for wrong in (None, "cpu", [tvm.cpu(), 1], relaxvm.cpu()):
        with pytest.raises(TypeError, match=r"expected a tvm\.runtime\.Device or a list of them"):
            bridge.VirtualMachine(model, wrong)
    with pytest.raises(ValueError, match=r"expected a CPU, got cuda\(1\)"):
        bridge.VirtualMachine(model, [tvm.device("cuda", 1), tvm.cpu()])
    for memory in ("naive", "pooled", {tvm.cpu(): bridge.VirtualMachine.NAIVE_ALLOCATOR}):
        vm = bridge.VirtualMachine(model, [tvm.cpu()], memory)
        assert vm["main"](numbers(1, 4), numbers(4))[0].shape == (1, 4)


def test_closures() -> None:
    @I.ir_module
    class Closures:
        @R.function
        def make(x: R.Tensor((2,), "float32")):
            @R.function
            def inner(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                s: R.Tensor((2,), "float32") = R.add(x, y)
                return s

            return inner

    lifted = relax.transform.LambdaLift()(Closures)
    executable = tvm.compile(lifted, "llvm")
    vm = bridge.VirtualMachine(executable, tvm.cpu())
    x, y = numbers(2), numbers(2, seed=1)
    closure = vm["make"](tvm.runtime.tensor(x))
    np.testing.assert_array_equal(vm.invoke_closure(closure, y).numpy(), x + y)
    np.testing.assert_array_equal(closure(tvm.runtime.tensor(y)).numpy(), x + y)


def test_closures_in_machine_code() -> None:
    """TVM's machine makes and calls them; they go in and out as the same object."""

    @I.ir_module
    class Closures:
        @R.function
        def make(x: R.Tensor((2,), "float32")):
            @R.function
            def inner(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                s: R.Tensor((2,), "float32") = R.add(x, y)
                return s

            return (inner, x)

        @R.function
        def same(x: R.Any):
            return x

    lifted = relax.transform.LambdaLift()(Closures)
    executable = relax.build(lifted, "llvm", exec_mode="compiled")
    x, y = numbers(2), numbers(2, seed=1)
    vm = bridge.VirtualMachine(executable, tvm.cpu())
    closure = vm["make"](tvm.runtime.tensor(x))[0]
    assert vm["same"](closure).__chandle__() == closure.__chandle__()
    for call in (vm.invoke_closure, vm.module["invoke_closure"], vm._invoke_closure):
        np.testing.assert_array_equal(call(closure, tvm.runtime.tensor(y)).numpy(), x + y)

    machine = relaxvm.from_tvm(executable)
    closure = machine["make"](x)[0]
    for call in (machine.invoke_closure, machine.module["invoke_closure"]):
        np.testing.assert_array_equal(call(closure, y), x + y)
    np.testing.assert_array_equal(machine["same"](closure)(y), x + y)
    with pytest.raises(TypeError, match="expected a closure or a VM function, got int"):
        machine.invoke_closure(1)


def test_a_machine_with_closures_is_freed_without_the_collector() -> None:
    @I.ir_module
    class Closures:
        @R.function
        def make(x: R.Tensor((2,), "float32")) -> R.Object:
            @R.function
            def inner(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                return R.add(x, y)

            return inner

    lifted = relax.transform.LambdaLift()(Closures)
    vm = bridge.VirtualMachine(tvm.compile(lifted, "llvm"), tvm.cpu())
    gc.collect()
    gc.disable()
    try:
        x = np.array([1.0, 2.0], np.float32)
        gone = weakref.ref(vm.vm)
        closure = vm["make"](tvm.runtime.tensor(x))
        vm.set_input("make", tvm.runtime.tensor(x))
        vm.invoke_stateful("make")
        del vm
        assert gone() is not None
        np.testing.assert_array_equal(closure(tvm.runtime.tensor(x)).numpy(), x + x)
        del closure
        assert gone() is None
    finally:
        gc.enable()


# Without TVM


def test_the_error_without_tvm_names_the_extra() -> None:
    code = """
import sys
sys.modules["tvm"] = None
import relaxvm, relaxvm.contrib.tvm
try:
    relaxvm.contrib.tvm.VirtualMachine(None, None)
except relaxvm.errors.MissingExtraError as error:
    print(error)
try:
    relaxvm.from_tvm(3)
except TypeError as error:
    print(error)
assert "tvm_ffi" not in sys.modules
"""
    done = children.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "needs the package apache-tvm; install relaxvm[tvm]" in done.stdout
    assert "expected a result of tvm.compile" in done.stdout
    assert issubclass(MissingExtraError, ImportError)


def test_a_machine_is_no_program_of_a_machine() -> None:
    builder = relaxvm.ExecBuilder()
    with builder.function("main", num_inputs=1):
        builder.emit_ret(builder.r(0))
    vm = relaxvm.VirtualMachine(builder.get())
    with pytest.raises(ValueError, match=r"got a relaxvm.VirtualMachine.* use it as it is"):
        relaxvm.VirtualMachine(vm)  # type: ignore[arg-type]
    assert relaxvm.VirtualMachine(vm.executable).main(3) == 3
