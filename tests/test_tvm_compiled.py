"""Functions in machine code that TVM makes of Relax functions (``exec_mode="compiled"``)."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import ExecBuilder, Limits, Shape, VirtualMachine, VMExecutable
from relaxvm.core._vm_tir import FORMS, MAX_DEPTH
from relaxvm.errors import ArityError, CopyWarning, LimitError, LinkError
from relaxvm.native import toolchain

from . import children
from .test_tvm_library import SOURCE, compiled, tree
from .tvm_free import PACKED, same

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or toolchain.compiler() is None, reason="Linux, with a C compiler"
)

# Machine code that a C compiler has made

CODE = """
int TVMBackendAnyListSetPackedArg(void *list, int index, RvmAny *args, int position);
int TVMBackendAnyListResetItem(void *list, int index);
int TVMBackendAnyListMoveFromPackedReturn(void *list, int index, RvmAny *args, int position);

#define VM_TIR(name) KERNEL(__vmtir__##name)
#define REGISTERS args[1].as_pointer
#define CONSTANTS args[2].as_pointer
#define FUNCTIONS args[3].as_pointer

/* A call of a function by name: the result is args[count]. */
static int call(const char *name, RvmAny *args, int count) {
  void *found = NULL;
  if (__TVMFFIEnvModLookupFromImports(__tvm_ffi__library_ctx, name, &found) != 0) return -1;
  args[count] = (RvmAny){0};
  return __TVMFFIFunctionCall(found, args, count, &args[count]);
}

/* note(x): what the host's "note" returns for the machine, x, a constant and a function. */
VM_TIR(note) {
  (void)self, (void)ret, (void)count;
  RvmAny room[8] = {args[0]};
  TVMBackendAnyListSetPackedArg(REGISTERS, 0, room, 1);
  TVMBackendAnyListSetPackedArg(CONSTANTS, 0, room, 2);
  TVMBackendAnyListSetPackedArg(FUNCTIONS, 0, room, 3);
  if (call("note", room, 4) != 0) return -1;
  TVMBackendAnyListMoveFromPackedReturn(REGISTERS, 1, room, 4);
  return 0;
}

/* forget(x): calls "note" and lets its result lie, three times; a register is reset. */
VM_TIR(forget) {
  (void)self, (void)ret, (void)count;
  for (int i = 0; i < 3; i++) {
    RvmAny room[8];
    TVMBackendAnyListSetPackedArg(REGISTERS, 0, room, 0);
    if (call("note", room, 1) != 0) return -1;
  }
  return TVMBackendAnyListResetItem(REGISTERS, 0);
}

/* outside(k): item k of list 1 to 3, where k counts from 10, 20 and 30. */
VM_TIR(outside) {
  (void)self, (void)ret, (void)count;
  RvmAny room[2];
  TVMBackendAnyListSetPackedArg(REGISTERS, 0, room, 0);
  int64_t k = room[0].as_int;
  if (TVMBackendAnyListSetPackedArg(args[k / 10].as_pointer, (int)(k % 10) - 1, room, 0) == 0)
    TVMBackendAnyListMoveFromPackedReturn(REGISTERS, (int)(k % 10) - 1, room, 0);
  return 0; /* TVM's code does not look at what these return */
}

/* address(): passes an address that is not the machine's. */
VM_TIR(address) {
  (void)self, (void)ret, (void)count, (void)args;
  RvmAny room[2] = {{RVM_POINTER, 0, {64}}};
  return call("note", room, 1);
}

/* null(): passes no address, which is None. */
VM_TIR(null) {
  (void)self, (void)ret, (void)count;
  RvmAny room[2] = {{RVM_POINTER, 0, {0}}};
  if (call("note", room, 1) != 0) return -1;
  TVMBackendAnyListMoveFromPackedReturn(REGISTERS, 0, room, 1);
  return 0;
}

/* triple(x): three times x, in place, by a kernel. */
VM_TIR(triple) {
  (void)self, (void)ret, (void)count;
  RvmAny room[2];
  TVMBackendAnyListSetPackedArg(REGISTERS, 0, room, 0);
  if (room[0].type != RVM_TENSOR_OBJECT) return fail("TypeError", "expected a tensor", "triple");
  const RvmTensor *x = &((RvmTensorObject *)room[0].as_object)->tensor;
  if ((uintptr_t)x->data & 15) return fail("ValueError", "misaligned", "triple");
  for (int64_t i = 0; i < x->shape[0]; i++) ((float *)x->data)[i] *= 3;
  if (call("vm.builtin.copy", room, 1) != 0) return -1;
  TVMBackendAnyListMoveFromPackedReturn(REGISTERS, 1, room, 1);
  return 0;
}
"""

FORM_ARGS = 8

CODE += f"""
/* builtin(k, count, machine, x, ...): what builtin k returns for the machine, if asked for, and the
 * arguments x, ... */
VM_TIR(builtin) {{
  (void)self, (void)ret, (void)count;
  static const char *const names[] = {{{', '.join(f'"{name}"' for name in FORMS)}}};
  RvmAny room[{FORM_ARGS + 2}];
  int64_t number[3];
  for (int i = 0; i < 3; i++) {{
    TVMBackendAnyListSetPackedArg(REGISTERS, i, room, 0);
    number[i] = room[0].as_int;
  }}
  int used = 0;
  if (number[2]) room[used++] = args[0];
  for (int i = 0; i < number[1]; i++) TVMBackendAnyListSetPackedArg(REGISTERS, 3 + i, room, used++);
  if (call(names[number[0]], room, used) != 0) return -1;
  return TVMBackendAnyListMoveFromPackedReturn(REGISTERS, {FORM_ARGS + 3}, room, used);
}}
"""

PARAMETERS = {
    "note": 1, "forget": 1, "outside": 1, "address": 0, "null": 0, "triple": 1,
    "builtin": FORM_ARGS + 3,
}  # fmt: skip


def _blob() -> bytes:
    builder = ExecBuilder()
    for name, num_inputs in PARAMETERS.items():
        builder.add_compiled(name, num_inputs, num_inputs + 2, [f"x{i}" for i in range(num_inputs)])
    builder.convert_constant(np.arange(3.0))
    builder.convert_constant("text")
    return tree(("relax.VMExecutable", builder.get().to_bytes()), ("_lib", None))


@pytest.fixture(scope="module")
def path() -> Path:
    return compiled(_blob(), source=SOURCE + CODE)


@pytest.fixture(scope="module")
def program(path: Path) -> VMExecutable:
    return relaxvm.load_library(path)


def machine(path: Path, note: Any = None) -> VirtualMachine:
    functions = {} if note is None else {"note": note}
    return VirtualMachine(relaxvm.load_library(path), functions=functions)


X = np.arange(4, dtype=np.float32)


def test_what_a_function_gets(path: Path) -> None:
    seen: list[Any] = []
    vm = machine(path, lambda *args: seen.append(args) or ("result", args[1]))
    for value in (None, True, -3, 2.5, "text", np.dtype("int8"), relaxvm.Shape((2,)), (1, (X,))):
        assert vm.note(value) == ("result", value)
        got, x, constant, function = seen.pop()
        assert got is vm
        assert type(x) is type(value)
        np.testing.assert_array_equal(constant, np.arange(3.0))
        assert function == vm["note"]
    with pytest.raises(ArityError):
        vm.note()


HEAP = np.array([8, 32, 4], np.int64)
STORAGE = VirtualMachine(ExecBuilder().get()).allocators[0].alloc(64)
PAIR = (X, Shape((4,)))
F32 = np.dtype("float32")


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("alloc_shape_heap", ("vm", 3)),
        ("alloc_shape_heap", ("vm", 0)),
        ("alloc_storage", ("vm", Shape((2, 4)), 0, F32)),
        ("alloc_storage", ("vm", Shape((0, 1 << 62)), -1, F32, "global")),
        ("alloc_tensor", (STORAGE, 0, Shape((4, 4)), F32)),
        ("alloc_tensor", (STORAGE, 64, Shape((0,)), F32, "global")),
        ("check_tensor_info", (X, 1, F32, "here")),
        ("check_tensor_info", (X, -1, None)),
        ("copy", (X,)),
        ("copy", (3,)),
        ("copy", (None,)),
        ("copy", (PAIR,)),
        ("make_shape", (HEAP, 3, 0, -5, 1, 1, 1, 0)),
        ("make_shape", (None, 0)),
        ("make_tuple", ()),
        ("make_tuple", (X, Shape((1,)), None, "text")),
        ("match_shape", (X, None, 1, 0, 4, "here")),
        ("match_shape", (X, HEAP, 1, 3, 2)),
        ("match_shape", (Shape((7, 7)), HEAP, 2, 1, 1, 3, 1)),
        ("null_value", ()),
        ("read_if_cond", (np.array(True),)),
        ("read_if_cond", (False,)),
        ("read_if_cond", (7,)),
        ("reshape", (X, Shape((2, 1, 2)))),
        ("reshape", (np.zeros((0, 3)), Shape((5, 0)))),
        ("shape_of", (np.zeros((0, 3)),)),
        ("tuple_getitem", (PAIR, 1)),
        ("tuple_getitem", (PAIR, 0)),
    ],
)  # fmt: skip
def test_builtins_that_run_in_c(
    program: VMExecutable, name: str, args: tuple[Any, ...]
) -> None:
    expected, _ = outcome(program, name, args, own=False)
    got, in_c = outcome(program, name, args, own=True)
    assert in_c
    assert same(got, expected)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("alloc_shape_heap", ("vm", -1)),
        ("alloc_shape_heap", (3,)),
        ("alloc_storage", ("vm", Shape((-1,)), 0, F32)),
        ("alloc_storage", ("vm", Shape((1 << 40, 1 << 40)), 0, F32)),
        ("alloc_storage", ("vm", Shape((1,)), 1, F32)),
        ("alloc_storage", ("vm", Shape((1,)), 0, F32, "texture")),
        ("alloc_storage", ("vm", (1, 2), 0, "float32")),
        ("alloc_tensor", (STORAGE, 4, Shape((16,)), F32)),
        ("alloc_tensor", (STORAGE, -4, Shape((1,)), F32)),
        ("alloc_tensor", (STORAGE, 4, Shape((1,)), F32)),
        ("alloc_tensor", (STORAGE, 0, Shape((1,)), np.dtype(object))),
        ("alloc_tensor", (X, 0, Shape((1,)), F32)),
        ("check_tensor_info", (X, 2, F32, "here")),
        ("check_tensor_info", (X, 1, np.dtype("int8"), "here")),
        ("check_tensor_info", (PAIR, 1, F32, "here")),
        ("make_shape", (HEAP, 1, 1, 3)),
        ("make_shape", (None, 1, 1, 0)),
        ("make_shape", (HEAP, 2, 0, 1)),
        ("make_shape", (HEAP, 1, 2, 0)),
        ("match_shape", (X, None, 1, 0, 5, "here")),
        ("match_shape", (X, None, 2, 0, 5, 0, 5)),
        ("match_shape", (X, HEAP, 1, 1, 3)),
        ("match_shape", (X, X, 1, 1, 0)),
        ("match_shape", (Shape((7, 8)), HEAP, 2, 1, 1, 3, 1)),
        ("match_shape", (X, HEAP, 1, 4, 0)),
        ("read_if_cond", (X,)),
        ("read_if_cond", (np.zeros(0, bool),)),
        ("read_if_cond", (np.array([3]),)),
        ("reshape", (X, Shape((5,)))),
        ("reshape", (X, Shape((3,)))),
        ("shape_of", (3,)),
        ("tuple_getitem", (PAIR, 2)),
        ("tuple_getitem", (PAIR, -1)),
        ("tuple_getitem", (Shape((1,)), 0)),
    ],
)  # fmt: skip
def test_calls_that_c_leaves_to_builtins(
    program: VMExecutable, name: str, args: tuple[Any, ...]
) -> None:
    expected, _ = outcome(program, name, args, own=False)
    got, in_c = outcome(program, name, args, own=True)
    assert not in_c
    assert same(got, expected)


def outcome(
    program: VMExecutable, name: str, args: tuple[Any, ...], *, own: bool
) -> tuple[Any, bool]:
    """Return what a builtin returns to machine code, or its error, and the heap afterwards; and
    whether it ran in C.  Unless it is `own`, the machine has a function of its own in its place."""
    full = f"vm.builtin.{name}"
    reference = relaxvm.get_func(full)
    functions = {} if own else {full: lambda *args: reference(*args)}
    vm = VirtualMachine(program, functions=functions)
    HEAP[:] = [8, 32, 4]
    wants_vm = bool(args) and isinstance(args[0], str)
    given = args[wants_vm:]
    called: list[Any] = []
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code) if event == "call" else None)
    try:
        result = vm["builtin"](FORMS.index(full), len(given), int(wants_vm), *given,
                               *[None] * (FORM_ARGS - len(given)))  # fmt: skip
        result = result.nbytes if isinstance(result, type(STORAGE)) else result
    except Exception as error:
        result = type(error).__name__, str(error)
    finally:
        sys.setprofile(None)
    return (result, HEAP.copy()), reference.__code__ not in called


def test_what_c_allocates_counts(path: Path) -> None:
    limits = Limits(live_bytes=1 << 20)
    vm = VirtualMachine(relaxvm.load_library(path), limits=limits)
    alloc = FORMS.index("vm.builtin.alloc_storage")
    rest = [None] * (FORM_ARGS - 3)
    kept = vm["builtin"](alloc, 3, 1, Shape((1 << 19,)), 0, np.dtype("uint8"), *rest)
    assert vm.allocators[0].stats()["live_bytes"] == 1 << 19
    with pytest.raises(LimitError, match=r"allocation of 1048576 bytes: 524288 are live"):
        vm["builtin"](alloc, 3, 1, Shape((1 << 20,)), 0, np.dtype("uint8"), *rest)
    del kept
    heap = FORMS.index("vm.builtin.alloc_shape_heap")
    with pytest.raises(LimitError, match="live_bytes=1048576"):
        vm["builtin"](heap, 1, 1, 1 << 20, *[None] * (FORM_ARGS - 1))


def test_an_array_is_the_same_on_both_sides(path: Path) -> None:
    vm = machine(path, lambda vm, x, *rest: x)
    for x in (np.ones((2, 3)), np.zeros(0), np.array(1.5), np.ones(64, np.int8), np.ones(9)[1:]):
        assert vm.note(x) is x
        assert vm.note((x, x))[1] is x


@pytest.mark.parametrize("offset", [0, 1], ids=["aligned", "misaligned"])
@pytest.mark.parametrize("step", [1, 2], ids=["contiguous", "strided"])
def test_code_that_writes_to_its_argument(path: Path, offset: int, step: int) -> None:
    room = np.zeros(64, np.float32)
    start = -room.ctypes.data % 64 // 4 + offset
    x = room[start : start + 4 * step : step]
    x[...] = X
    result = machine(path).triple(x)
    assert result is x
    np.testing.assert_array_equal(x, 3 * X)
    x.flags.writeable = False
    with pytest.raises(ValueError, match=r"__vmtir__triple: .*read-only"):
        machine(path).triple(x)
    np.testing.assert_array_equal(x, 3 * X)


def test_large_arguments_that_are_copied_are_reported(path: Path) -> None:
    vm = machine(path)
    x = np.zeros(1 << 15, np.float32)[::2]
    with pytest.warns(CopyWarning, match="triple: argument 'x0', .*copied .*not contiguous"):
        vm.triple(x)


def test_a_constant_is_one_array(path: Path) -> None:
    """It is copied for its alignment at most once, and passed on as it is."""
    seen: list[Any] = []
    vm = machine(path, lambda vm, x, constant, function: seen.append(constant) or constant)
    results = [vm.note(None) for _ in range(3)]
    assert all(each is seen[0] for each in [*seen, *results])
    assert vm.note(seen[0]) is seen[0]


def test_results_that_nobody_takes_are_freed(path: Path) -> None:
    made: list[Any] = []

    class Object:
        pass

    def note(x: Any) -> Any:
        found = Object()
        made.append(weakref.ref(found))
        return found

    vm = machine(path, note)
    assert vm.forget(Object()) is None
    assert [each() for each in made] == [None] * 3


def test_a_machine_and_its_library_are_freed(path: Path) -> None:
    kept: list[Any] = []
    vm = machine(path, lambda vm, x, constant, function: (x * 2, constant))
    result, constant = vm.note(X)
    kept.append(weakref.ref(vm))
    del vm
    gc.collect()
    assert kept[0]() is None
    np.testing.assert_array_equal(result, 2 * X)
    np.testing.assert_array_equal(constant, np.arange(3.0))


@pytest.mark.parametrize("k", [14, 10, 19, 23, 20, 37, 30])
def test_items_that_do_not_exist(path: Path, k: int) -> None:
    with pytest.raises(LinkError, match=r"item -?\d+ of a list of \d+"):
        machine(path).outside(k)


def test_addresses(path: Path) -> None:
    with pytest.raises(TypeError, match="passes an address"):
        machine(path, lambda x: x).address()
    assert machine(path, lambda x: x is None).null() is True


def test_functions_that_are_missing_or_fail(path: Path) -> None:
    with pytest.raises(LinkError, match=r"'note': not among `functions`") as caught:
        machine(path).note(1)
    assert caught.value.missing == ("note",)

    def fail(*args: Any) -> None:
        raise KeyError("reason")

    with pytest.raises(KeyError, match="reason") as caught_key:
        machine(path, fail).note(1)
    assert "in native function __vmtir__note" in caught_key.value.__notes__
    with pytest.raises(TypeError, match="expected a tensor in triple"):
        machine(path).triple(1)


def test_a_function_that_calls_back(path: Path) -> None:
    """Machine code within machine code of another machine, and of the same."""
    inner = machine(path, lambda vm, x, *rest: x + 1)

    def note(vm: VirtualMachine, x: Any, *rest: Any) -> Any:
        if x == 0:
            return 0
        return inner.note(x) + vm.note(x - 1)

    assert machine(path, note).note(5) == sum(range(2, 7))


def test_code_without_its_program(path: Path) -> None:
    builder = ExecBuilder()
    builder.add_compiled("absent", 0, 1, [])
    blob = tree(("relax.VMExecutable", builder.get().to_bytes()), ("_lib", None))
    with pytest.raises(LinkError, match="no machine code of absent"):
        relaxvm.load_library(compiled(blob, source=SOURCE + CODE))


def test_the_name_of_a_function_in_tvm_0_25(path: Path) -> None:
    """Code that TVM 0.25 has compiled looks up functions under another name."""
    code = (SOURCE + CODE).replace("__TVMFFIEnvModLookupFromImports", "__TVMBackendGetFuncFromEnv")
    old = compiled(_blob(), source=code)
    assert machine(old, lambda vm, x, *rest: x + 1).note(5) == 6


def test_an_unknown_function_of_tvm_is_refused() -> None:
    code = SOURCE + CODE + "SLOT int (*__TVMBackendOfTomorrow)(void);\n"
    with pytest.raises(LinkError, match="calls TVMBackendOfTomorrow, which relaxvm does not have"):
        relaxvm.load_library(compiled(_blob(), source=code))


def test_data_of_such_a_library(path: Path, tmp_path: Path) -> None:
    executable = relaxvm.load(path)
    with pytest.raises(LinkError, match="native=True"):
        VirtualMachine(executable)
    exported = tmp_path / "exported.vmexec"
    relaxvm.load_library(path).export_library(exported)
    vm = VirtualMachine(relaxvm.load(exported, native=True))
    np.testing.assert_array_equal(vm.triple(X.copy()), 3 * X)


# Programs that TVM has compiled


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an exported library of every model, and with its results in a process without
    TVM."""
    pytest.importorskip("tvm")
    pytest.importorskip("tvm.relax")
    try:
        from . import tvm_models
        from .test_tvm_models import RUNNABLE
    except Exception as error:
        pytest.skip(f"the models are for later versions of TVM: {error!r}")
    folder = tmp_path_factory.mktemp("compiled")
    for model in RUNNABLE:
        tvm_models.export(model, folder, model.compile(exec_mode="compiled"))
    ran = children.run([sys.executable, "-m", "tests.tvm_free", str(folder)],
                       capture_output=True, text=True)  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.strip() == "[]", "TVM was in the process"
    return folder


def test_models_without_tvm(models: Path) -> None:
    """The same results as on TVM's machine, also for arrays that have to be copied and from eight
    threads; wrong arguments raise what they raise as bytecode."""
    import pickle

    import tvm

    from . import tvm_side
    from .test_tvm_models import RUNNABLE, on_tvm

    for name, function in PACKED.items():
        tvm.register_global_func(name, tvm_side._adapted(function), override=True)
    for model in RUNNABLE:
        found = pickle.loads((models / f"{model.name}.results").read_bytes())
        assert "failed" not in found, (model.name, found)
        wanted = on_tvm(model, models)
        for how in ("results", "misaligned", "strided"):
            assert same(found[how], wanted), (model.name, how)
        assert found["threads"], model.name
        for (kind, message), (_, _, words) in zip(found["errors"], model.wrong(), strict=True):
            assert kind, (model.name, words)
            assert all(word in message for word in words), (model.name, message)


def test_models_with_tvm(models: Path) -> None:
    """In the process with TVM: libraries by name, and what TVM has compiled or loaded."""
    import tvm

    from relaxvm.contrib.tvm import VirtualMachine as DropIn

    from . import tvm_side
    from .test_tvm_models import plain, to_tvm
    from .tvm_free import to_relaxvm
    from .tvm_models import MODELS

    for name in ("tuples", "closures", "recursion", "branch", "shapes", "sort"):
        model = MODELS[name]
        module = tvm.runtime.load_module(str(models / f"{name}.so"))
        theirs = tvm.relax.VirtualMachine(module, tvm.cpu())
        by_name = relaxvm.from_tvm(models / f"{name}.so")
        loaded = relaxvm.from_tvm(module)
        drop_in = DropIn(model.compile(exec_mode="compiled"), tvm.cpu())
        for function, args in model.arguments():
            want = plain(tvm_side.from_tvm(theirs[function](*map(to_tvm, args))))
            mine = [to_relaxvm(arg) for arg in args]
            assert same(plain(by_name[function](*mine)), want), name
            assert same(plain(loaded[function](*mine)), want), name
            got = drop_in[function](*map(to_tvm, args))
            assert same(plain(tvm_side.from_tvm(got)), want), name


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library whose function `down` calls itself as often as its argument says."""
    pytest.importorskip("tvm")
    from tvm import relax
    from tvm.script import ir as I
    from tvm.script import relax as R

    @I.ir_module
    class Deep:
        @R.function
        def down(x: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
            cls = Deep
            end = R.less(x, R.const(1, "int64"))
            if end:
                r: R.Tensor((), "int64") = x
            else:
                y = R.subtract(x, R.const(1, "int64"))
                z: R.Tensor((), "int64") = cls.down(y)
                r: R.Tensor((), "int64") = R.add(z, R.const(1, "int64"))
            return r

    path = tmp_path_factory.mktemp("deep") / "deep.so"
    relax.build(Deep, "llvm", exec_mode="compiled").export_library(str(path))
    return path


def test_calls_that_are_nested_deeply(deep: Path) -> None:
    vm = VirtualMachine(relaxvm.load_library(deep))
    assert vm.down(np.array(300)) == 300
    with pytest.raises((RecursionError, LimitError)) as caught:
        vm.down(np.array(10 * MAX_DEPTH))
    assert len(caught.value.__notes__) < 10
    assert vm.down(np.array(300)) == 300
    few = VirtualMachine(relaxvm.load_library(deep), limits=Limits(call_depth=50))
    with pytest.raises(LimitError, match="nested deeper than 50"):
        few.down(np.array(51))
    assert few.down(np.array(40)) == 40


def test_the_time_of_a_run(deep: Path) -> None:
    vm = VirtualMachine(relaxvm.load_library(deep), limits=Limits(wall_time=1e-6))
    with pytest.raises(LimitError, match="wall_time"):
        vm.down(np.array(300))
