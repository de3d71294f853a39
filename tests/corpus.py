"""The corpus: small executables that together use every part of the instruction set and builtins.

Each `Case` builds an executable and lists calls with their expected results.  These are computed by
plain numpy or written down, never by the VM.  The tests of the oracle, the core with and without
its fast paths, TVM, the formats, the verifier and the fuzzer all use this list.

A case is a function over `tests.asm.Asm`; its docstring describes it.
"""

from __future__ import annotations

import functools
import itertools
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np

from relaxvm import Adt, isa
from relaxvm.adt import DataType
from relaxvm.errors import ArityError, InternalError, RelaxVMWarning
from relaxvm.executable import FunctionInfo, VMExecutable, shape_program
from relaxvm.isa import FuncKind
from relaxvm.values import Shape

from .asm import VM, VOID, Asm, Func, Reg, r0, r1, r2, r3, r4, r5, r6, r7, r8
from .kernels import KERNELS, KernelError, registry

__all__ = ["CORPUS", "KERNELS", "Case", "Run", "all_runs", "registry"]


@dataclass(frozen=True)
class T:
    """An argument: a random tensor."""

    shape: tuple[int, ...] = ()
    dtype: str = "float32"

    def make(self, rng: np.random.Generator) -> np.ndarray:
        dtype = np.dtype(self.dtype)
        if dtype.kind == "b":
            return rng.integers(0, 2, self.shape).astype(bool)
        if dtype.kind in "iu":
            low = -5 if dtype.kind == "i" else 0
            return np.asarray(rng.integers(low, 6, self.shape)).astype(dtype)
        return np.asarray(rng.standard_normal(self.shape)).astype(dtype)


@dataclass(frozen=True)
class Made:
    """An argument: the result of a function of the random generator."""

    make: Callable[[np.random.Generator], Any]


def make_value(spec: Any, rng: np.random.Generator) -> Any:
    """Make a new argument from its specification, in which tuples may contain `T` and `Made`."""
    if isinstance(spec, (T, Made)):
        return spec.make(rng)
    if isinstance(spec, Shape):
        return Shape(spec)
    if type(spec) in (tuple, list):
        return type(spec)(make_value(item, rng) for item in spec)
    return spec


@dataclass(frozen=True)
class Run:
    """A call of a function of the executable.

    Attributes:
        function: its name.
        specs: arguments, see `make_value`.
        expect: the result, or a function that computes it from the arguments before the call.
        error, match: instead of a result, the exception class and a fragment of its message.
        no_tvm: why this run is not compared with TVM, or empty.
    """

    function: str
    specs: tuple[Any, ...]
    expect: Any = None
    error: type[BaseException] | None = None
    match: str = ""
    no_tvm: str = ""

    def args(self, seed: int = 0) -> tuple[Any, ...]:
        rng = np.random.default_rng(seed)
        return tuple(make_value(spec, rng) for spec in self.specs)

    def expected(self, args: tuple[Any, ...]) -> Any:
        return self.expect(*args) if callable(self.expect) else self.expect


def gives(function: str, specs: Sequence[Any], expect: Any, *, no_tvm: str = "") -> Run:
    return Run(function, tuple(specs), expect, no_tvm=no_tvm)


def fails(
    function: str, specs: Sequence[Any], error: type[BaseException], match: str = "", *,
    no_tvm: str = "",
) -> Run:
    return Run(function, tuple(specs), error=error, match=match, no_tvm=no_tvm)


@dataclass(frozen=True)
class Case:
    """An executable and the calls to try on it.

    Attributes:
        name: key in `CORPUS`.
        build: makes the executable; all calls return equal ones.
        runs: the calls.
        savable: whether TVM's stream can hold it (it has no bool and no None constant).
        about: a description in one line.
    """

    name: str
    build: Callable[[], VMExecutable]
    runs: tuple[Run, ...]
    savable: bool = True
    about: str = ""

    @functools.cached_property
    def executable(self) -> VMExecutable:
        """One shared instance of `build()`."""
        return self.build()

    @property
    def kernels(self) -> dict[str, Callable[..., Any]]:
        """The packed functions that it names, without builtins."""
        names = [f.name for f in self.executable.functions if f.kind == FuncKind.PACKED]
        return {name: KERNELS[name] for name in names if ".builtin." not in name}

    def __str__(self) -> str:
        return self.name


CORPUS: Final[dict[str, Case]] = {}
"""All cases by name."""


def case(*runs: Run, savable: bool = True) -> Callable[[Callable[[Asm], Any]], Case]:
    """Register a case: the decorated function emits the code or returns an executable."""

    def register(emit: Callable[[Asm], Any]) -> Case:
        def build() -> VMExecutable:
            asm = Asm()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RelaxVMWarning)  # unused inputs, on purpose
                made = emit(asm)
                return made if made is not None else asm.get()

        made = Case(emit.__name__, build, runs, savable, (emit.__doc__ or "").strip())
        if made.name in CORPUS:
            raise ValueError(f"corpus: two cases are named {made.name}")
        CORPUS[made.name] = made
        return made

    return register


def all_runs() -> Iterator[tuple[Case, Run]]:
    """Every call of every case."""
    for item in CORPUS.values():
        for run in item.runs:
            yield item, run


# Reasons not to compare with TVM.
_VOID_CALL = "stores the result of a VM function in the void register"
_CALLS_BACK = "its closures are not callable from Python"
_CRASHES = "crashes the process"
_NO_DATA_TYPES = "has no data types"
_CLASSES = "raises another class"
_CONVERTED = "kernels there see converted tensors, not the ones passed"
_NO_HOST = "knows no device -1"
_PACKED_CLOSURE = "closures are of VM functions only"
_LAZY = "hands out memory that it has not got"
_BOUNDS = "goes outside the memory"

# Moving values


@case(
    gives("main", (7,), lambda x: (1, x, False, True), no_tvm=_NO_DATA_TYPES),
    gives("main", ("s",), lambda x: (1, x, False, True), no_tvm=_NO_DATA_TYPES),
)
def data_types(asm: Asm) -> None:
    """A value of a data type, its tag and a field, a constant, and the definition of the type."""
    own = "relaxvm.builtin."
    fields = ["A", "R.Tuple(A, Pair[R.Any])", 'R.Tensor((2,), dtype="int8")']
    asm.add_data_type(DataType("Pair", ["A"], {"Nothing": [], "Both": ["A", "R.Any"]}))
    asm.add_data_type(DataType("odd name", ["A", "B"], {"Here": fields}))
    asm.add_signature("main", 'R.Callable((A,), R.Tuple(R.Any, Pair[A]), True, type_params=("A",))')
    with asm.func("main", 1):
        asm.op(r1, f"{own}make_adt", "Pair.Both", 1, r0, 2)
        asm.op(r2, f"{own}adt_tag", r1)
        asm.op(r3, f"{own}adt_field", r1, 0)
        asm.op(r4, f"{own}tag_is", r2, 0)
        asm.op(r2, f"{own}match_tag", r1, "Pair.None", 0, "Pair.Both", 2)
        asm.op(r5, f"{own}tag_is", r2, 1)
        asm.op(r6, ".make_tuple", r2, r3, r4, r5)
        asm.op(r1, ".copy", Adt("Pair.Both", 1, ((2.5, "x"), Adt("Pair.Nothing", 0))))
        asm.ret(r6)


@case(gives("main", [T((3, 4))], lambda x: x), gives("main", [7], 7), gives("main", ["s"], "s"))
def identity(a: Asm) -> None:
    """A function that returns its argument."""
    with a.func("main", 1):
        a.ret(r0)


@case(gives("main", [T((3,)), T((3,))], lambda x, y: (x + y) * y))
def two_kernels(a: Asm) -> None:
    with a.func("main", 2):
        a.op(r2, "add", r0, r1)
        a.op(r3, "mul", r2, r1)
        a.ret(r3)


@case(gives("main", [T((2, 2))], lambda x: x), gives("main", [3], 3))
def copies(a: Asm) -> None:
    """A chain of copies; the last one copies a register to itself."""
    with a.func("main", 1):
        a.op(r1, ".copy", r0)
        a.op(r2, ".copy", r1)
        a.op(r2, ".copy", r2)
        a.op(r0, ".copy", r2)
        a.ret(r0)


@case(gives("main", [T((2,)), 5], lambda x, y: (5, x)))
def swap(a: Asm) -> None:
    with a.func("main", 2):
        a.op(r2, ".copy", r0)
        a.op(r0, ".copy", r1)
        a.op(r1, ".copy", r2)
        a.op(r2, ".make_tuple", r0, r1)
        a.ret(r2)


@case(gives("main", [T((3,)), T((3,))], lambda x, y: 2 * (x + y) + (x + y)))
def dst_is_argument(a: Asm) -> None:
    """Destinations that are also arguments, once and twice."""
    with a.func("main", 2):
        a.op(r0, "add", r0, r1)
        a.op(r1, ".copy", r0)
        a.op(r0, "add", r0, r0)
        a.op(r0, "add", r0, r1)
        a.ret(r0)


@case(
    gives("main", [T((2,))], lambda x: (((x,), (x,)), ((x,), (x,)))),
    gives("main", [1], (((1,), (1,)), ((1,), (1,)))),
)
def tuple_onto_itself(a: Asm) -> None:
    """make_tuple whose destination is among its elements."""
    with a.func("main", 1):
        a.op(r0, ".make_tuple", r0)
        a.op(r0, ".make_tuple", r0, r0)
        a.op(r0, ".make_tuple", r0, r0)
        a.ret(r0)


@case(gives("main", [T((2,))], lambda x: (None, x.shape, 3, "x", (1, 2))))
def register_of_all_kinds(a: Asm) -> None:
    """One register that holds values of different kinds in turn."""
    with a.func("main", 1):
        a.op(r1, ".null_value")
        a.op(r2, ".copy", r1)
        a.op(r1, ".shape_of", r0)
        a.op(r3, ".copy", r1)
        a.op(r1, ".copy", 3)
        a.op(r4, ".copy", r1)
        a.op(r1, ".copy", "x")
        a.op(r5, ".copy", r1)
        a.op(r1, ".make_tuple", 1, 2)
        a.op(r1, ".make_tuple", r2, r3, r4, r5, r1)
        a.ret(r1)


@case(
    gives("main", [T((2,)), 1], None, no_tvm=_VOID_CALL),
    gives("effect", [T((3,))], lambda x: x + 1, no_tvm=_VOID_CALL),
)
def void_destinations(a: Asm) -> None:
    """Calls whose results are discarded: of kernels, builtins and a VM function."""
    with a.func("helper", 1):
        a.op(None, "bump", r0)
        a.ret(r0)
    with a.func("main", 2):
        a.op(None, "add", r0, r0)
        a.op(None, ".shape_of", r0)
        a.op(None, ".make_tuple", r0, r1)
        a.op(None, ".copy", r0)
        a.op(None, ".null_value")
        a.op(None, "helper", r0)
        a.op(r2, "none", r0)
        a.ret(r2)
    with a.func("effect", 1):
        a.op(None, "helper", r0)
        a.ret(r0)


@case(gives("main", [T((2,))], lambda x: (x, None)), gives("nothing", [], None))
def void_arguments(a: Asm) -> None:
    """The void register reads as None, as an argument of any function and as a result."""
    with a.func("second", 2):
        a.op(None, "none", r0)
        a.ret(r1)
    with a.func("main", 1):
        a.op(r1, "second", r0, VOID)
        a.op(r2, ".make_tuple", r0, r1)
        a.ret(r2)
    with a.func("nothing"):
        a.ret(VOID)


@case(gives("main", [True, T((2,))], lambda c, x: x), gives("main", [False, 0], None))
def register_never_written(a: Asm) -> None:
    """A register that one path does not write reads as None on that path."""
    with a.func("main", 2):
        skip = a.label()
        a.iff(r0, skip)
        a.op(r2, ".copy", r1)
        a.bind(skip)
        a.op(r3, ".copy", r2)
        a.ret(r3)


@case(gives("main", [], (None, None)), gives("ret", [], None))
def registers_unwritten_anywhere(a: Asm) -> VMExecutable:
    """Registers that no instruction writes: rejected by the builder, legal in a file."""
    registers = (isa.Arg(isa.ArgKind.REGISTER, 0), isa.Arg(isa.ArgKind.REGISTER, 1))
    code = [
        *isa.encode(isa.Instruction(isa.OP_BY_NAME["call"], (2, 2), registers)),
        *isa.encode(isa.Instruction(isa.OP_BY_NAME["ret"], (2,))),
        *isa.encode(isa.Instruction(isa.OP_BY_NAME["ret"], (4,))),
    ]
    table = [
        FunctionInfo(FuncKind.BYTECODE, "main", 0, 2, 0, 3),
        FunctionInfo(FuncKind.BYTECODE, "ret", 2, 3, 0, 5),
        FunctionInfo(FuncKind.PACKED, "vm.builtin.make_tuple"),
    ]
    return VMExecutable(table, [], [0, 6, 8], code)


# Operands


@case(
    gives("main", [T((2,))], lambda x: (x, 7, 2.5, "s", (3, 4))),
    gives("mirrored", [T((2,))], lambda x: ((3, 4), "s", 2.5, 7, x)),
    gives("kernel", [T((2,))], lambda x: (x, -1, 2.5, "s", (3, 4))),
    gives("count", [1], 6),
    gives("func_first", [T((2,))], lambda x: x + x, no_tvm=_CALLS_BACK),
    gives("func_last", [4], 3),
    gives("vm_last", [4], 2),
)
def operand_kinds(a: Asm) -> None:
    """Register, immediate, constant, function, VM and void operands in first and last position."""
    with a.func("double", 1):
        a.op(r1, "add", r0, r0)
        a.ret(r1)
    with a.func("main", 1):
        a.op(r1, ".make_tuple", r0, 7, 2.5, "s", Shape((3, 4)))
        a.ret(r1)
    with a.func("mirrored", 1):
        a.op(r1, ".make_tuple", Shape((3, 4)), "s", 2.5, 7, r0)
        a.ret(r1)
    with a.func("kernel", 1):
        a.op(r1, "pack", r0, -1, 2.5, "s", Shape((3, 4)))
        a.ret(r1)
    with a.func("count", 1):
        a.op(r1, "count", VM, VOID, Func("double"), r0, 1, "x")
        a.ret(r1)
    with a.func("func_first", 1):
        a.op(r1, "apply", Func("double"), r0)
        a.ret(r1)
    with a.func("func_last", 1):
        a.op(r1, "count", r0, VM, Func("test.add"))
        a.ret(r1)
    with a.func("vm_last", 1):
        a.op(r1, "count", r0, VM)
        a.ret(r1)


@case(
    gives("main", [], (0, 1, -1, 255, 256, 65_536, 2**31, -(2**31), 2**53, 2**55 - 1, 1 - 2**55)),
    gives("arithmetic", [3], 3 + 2**55 - 1),
)
def immediates(a: Asm) -> None:
    """Immediates at the ends of their range and around the limits of encodings."""
    values = (0, 1, -1, 255, 256, 65_536, 2**31, -(2**31), 2**53, 2**55 - 1, 1 - 2**55)
    with a.func("main"):
        a.op(r0, ".make_tuple", *values)
        a.ret(r0)
    with a.func("arithmetic", 1):
        a.op(r1, "add", r0, 2**55 - 1)
        a.ret(r1)


@case(gives("main", [], (2**62, -(2**63), 5)), gives("copied", [], 2**63 - 1))
def int_constants(a: Asm) -> None:
    """Ints that do not fit an immediate, and one that would."""
    with a.func("main"):
        a.op(r0, ".make_tuple", 2**62, -(2**63), 5)
        a.ret(r0)
    with a.func("copied"):
        a.op(r0, ".copy", 2**63 - 1)
        a.ret(r0)


_FLOATS = (0.0, -0.0, 1.5, -2.25, 1e308, 5e-324, float("inf"), float("-inf"), float("nan"))


@case(gives("main", [], _FLOATS), gives("one", [], 0.1))
def float_constants(a: Asm) -> None:
    with a.func("main"):
        a.op(r0, ".make_tuple", *_FLOATS)
        a.ret(r0)
    with a.func("one"):
        a.op(r0, ".copy", 0.1)
        a.ret(r0)


_STRINGS = ("", "x", "seven b", "longer than any small buffer",
            "\u00fc\u4f60\U0001f600", 'quote " and \\ and \n newline')  # fmt: skip


@case(gives("main", [], _STRINGS))
def string_constants(a: Asm) -> None:
    with a.func("main"):
        a.op(r0, ".make_tuple", *_STRINGS)
        a.ret(r0)


_SHAPES = tuple(map(Shape, [(), (1,), (2, 3), (0, 5), (2**40, 1), range(16)]))


@case(gives("main", [], _SHAPES), gives("dim", [2], 3))
def shape_constants(a: Asm) -> None:
    with a.func("main"):
        a.op(r0, ".make_tuple", *_SHAPES)
        a.ret(r0)
    with a.func("dim", 1):
        a.op(r1, "dim", Shape((1, 2, 3)), r0)
        a.ret(r1)


_DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
           "float16", "float32", "float64")  # fmt: skip
_ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


@case(gives("main", [], tuple(map(np.dtype, _DTYPES))))
def dtype_constants(a: Asm) -> None:
    with a.func("main"):
        a.op(r0, ".make_tuple", *map(np.dtype, _DTYPES))
        a.ret(r0)


def _ramp(dtype: str) -> np.ndarray:
    return (np.arange(6).reshape(2, 3) % 2 if dtype == "bool" else
            np.arange(6).reshape(2, 3)).astype(dtype)  # fmt: skip


@case(*[gives(f"get_{d}", [], _ramp(d)) for d in _DTYPES])
def tensor_constants(a: Asm) -> None:
    """A tensor of every data type that both numpy and TVM name."""
    for dtype in _DTYPES:
        with a.func(f"get_{dtype}"):
            a.op(r0, ".copy", _ramp(dtype))
            a.ret(r0)


@case(
    gives("bf16", [], _ramp("float32").astype(ml_dtypes.bfloat16)),
    gives("e4m3", [], _ramp("float32").astype(ml_dtypes.float8_e4m3fn)),
    gives("e5m2", [], _ramp("float32").astype(ml_dtypes.float8_e5m2)),
)
def narrow_float_constants(a: Asm) -> None:
    for name, dtype in (("bf16", ml_dtypes.bfloat16), ("e4m3", ml_dtypes.float8_e4m3fn),
                        ("e5m2", ml_dtypes.float8_e5m2)):  # fmt: skip
        with a.func(name):
            a.op(r0, ".copy", _ramp("float32").astype(dtype))
            a.ret(r0)


@case(
    gives("scalar", [], np.asarray(3.5, np.float32)),
    gives("empty", [], np.zeros((0, 3), np.float32)),
    gives("transposed", [], np.arange(6, dtype=np.int32).reshape(2, 3).T),
    gives("strided", [], np.arange(10, dtype=np.int16)[1::3]),
    gives("large", [], np.arange(5000, dtype=np.int64).sum(keepdims=True)),
    gives("special", [], np.array([np.nan, np.inf, -np.inf, -0.0], np.float64)),
)
def tensor_constant_layouts(a: Asm) -> None:
    """Constants that are 0-d, empty, not contiguous, larger than a few bytes, not finite."""
    with a.func("scalar"):
        a.op(r0, ".copy", np.asarray(3.5, np.float32))
        a.ret(r0)
    with a.func("empty"):
        a.op(r0, ".copy", np.zeros((0, 3), np.float32))
        a.ret(r0)
    with a.func("transposed"):
        a.op(r0, ".copy", np.arange(6, dtype=np.int32).reshape(2, 3).T)
        a.ret(r0)
    with a.func("strided"):
        a.op(r0, ".copy", np.arange(10, dtype=np.int16)[1::3])
        a.ret(r0)
    with a.func("large"):
        a.op(r0, "sum", np.arange(5000, dtype=np.int64))
        a.op(r0, ".reshape", r0, Shape((1,)))
        a.ret(r0)
    with a.func("special"):
        a.op(r0, ".copy", np.array([np.nan, np.inf, -np.inf, -0.0]))
        a.ret(r0)


@case(gives("main", [], (None, True, False)), gives("pick", [], 1), savable=False)
def bool_and_none_constants(a: Asm) -> None:
    with a.func("main"):
        a.op(r0, ".make_tuple", None, True, False)
        a.ret(r0)
    with a.func("pick"):
        otherwise = a.label()
        a.op(r0, ".copy", True)
        a.iff(r0, otherwise)
        a.op(r1, ".copy", 1)
        a.ret(r1)
        a.bind(otherwise)
        a.op(r1, ".copy", 2)
        a.ret(r1)


@case(gives("main", [T((2,))], lambda x: (x + 1, x + 1, x + 2)))
def constants_shared(a: Asm) -> None:
    """Equal constants share a slot of the pool."""
    one = np.ones(2, np.float32)
    with a.func("other", 1):
        a.op(r1, "add", r0, one.copy())
        a.ret(r1)
    with a.func("main", 1):
        a.op(r1, "add", r0, one)
        a.op(r2, "other", r0)
        a.op(r3, "other", r2)
        a.op(r4, ".make_tuple", r1, r2, r3)
        a.ret(r4)


# Shapes


@case(
    gives("main", [T((3, 4))], (3, 4)),
    gives("main", [T(())], Shape(())),
    gives("main", [T((300, 1, 0), "int8")], (300, 1, 0)),
    fails("main", [3], TypeError, "ensor"),
    fails("main", [None], TypeError, "ensor", no_tvm=_CRASHES),
    fails("main", ["x"], TypeError, "ensor"),
)
def shape_of(a: Asm) -> None:
    with a.func("main", 1):
        a.op(r1, ".shape_of", r0)
        a.ret(r1)


@case(
    gives("main", [T((3, 4))], (3, 4, 3, 8)),
    gives("main", [T((300, 7), "int64")], (300, 7, 300, 14)),
    fails("main", [T((3,))], RuntimeError, "main: x"),
    fails("main", [4.5], TypeError, "main: x"),
)
def shape_heap(a: Asm) -> None:
    """Store both dimensions, compute a third by a shape function, read them back."""
    with a.func("main", 1):
        a.op(r1, ".alloc_shape_heap", VM, 4)
        a.op(None, ".match_shape", r0, r1, 2, 1, 0, 1, 1, "main: x ")
        a.op(None, "double_slot", r1, 1, 2)
        a.op(r2, ".make_shape", r1, 4, 1, 0, 1, 1, 1, 0, 1, 2)
        a.ret(r2)


@case(
    gives("main", [T((3, 4)), T((4, 9, 3))], (3, 4)),
    gives("main", [Shape((3, 4)), Shape((4, 9, 3))], (3, 4)),
    fails("main", [T((3, 4)), T((5, 9, 3))], RuntimeError, "second"),
    fails("main", [T((3, 4)), T((4, 8, 3))], RuntimeError, "second"),
    fails("main", [T((3, 4)), T((4, 9))], RuntimeError, "second"),
    fails("main", [None, T((4, 9))], TypeError, "first", no_tvm=_CRASHES),
    gives("main", [(3, 4), T((4, 9, 3))], (3, 4)),
    fails("main", [(3, "4"), T((4, 9, 3))], TypeError, "first"),
)
def match_shape_codes(a: Asm) -> None:
    """Every code: equal to an immediate, store, ignore, equal to a slot."""
    with a.func("main", 2):
        a.op(r2, ".alloc_shape_heap", VM, 2)
        a.op(None, ".match_shape", r0, r2, 2, 1, 0, 1, 1, "first ")
        a.op(None, ".match_shape", r1, r2, 3, 3, 1, 0, 9, 3, 0, "second ")
        a.op(None, ".match_shape", r1, r2, 3, 2, 0, 2, 7, 2, 0, "third ")
        a.op(r3, ".make_shape", r2, 2, 1, 0, 1, 1)
        a.ret(r3)


@case(
    gives("main", [T((2, 3))], True),
    gives("main", [Shape((2, 9))], True),
    fails("main", [T((1, 3))], RuntimeError, ""),
    fails("main", [T((2,))], RuntimeError, ""),
)
def match_shape_without_heap(a: Asm) -> None:
    """The heap may be None if no slot is used, as the void operand or in a register."""
    with a.func("main", 1):
        a.op(r1, ".null_value")
        a.op(None, ".match_shape", r0, r1, 2, 0, 2, 2, 0, "")
        a.op(None, ".match_shape", r0, VOID, 2, 0, 2, 2, 0, "")
        a.op(r2, ".match_shape", r0, r1, 2, 2, 0, 2, 0, "")
        a.op(r3, "is_none", r2)
        a.ret(r3)


@case(
    gives("main", [T((3,)), 2], (3, 2)),
    gives("main", [T((3,)), 4], (3, 4)),
    fails("main", [T((3,)), -1], IndexError, ""),
)
def match_shape_after_kernel(a: Asm) -> None:
    """make_shape reads heap slots that a kernel wrote."""
    with a.func("main", 2):
        a.op(r2, ".alloc_shape_heap", VM, 2)
        a.op(None, ".match_shape", r0, r2, 1, 1, 0, "x ")
        a.op(None, "fill_slot", r2, 1, r1)
        a.op(r3, ".make_shape", r2, 2, 1, 0, 1, 1)
        a.ret(r3)


@case(
    gives("main", [], (5, 0, -1, 2**40)),
    gives("empty", [], Shape(())),
    gives("tensor", [T((2, 3))], lambda x: x.reshape(3, 2)),
)
def make_shape_static(a: Asm) -> None:
    with a.func("main"):
        a.op(r0, ".make_shape", VOID, 4, 0, 5, 0, 0, 0, -1, 0, 2**40)
        a.ret(r0)
    with a.func("empty"):
        a.op(r0, ".make_shape", VOID, 0)
        a.ret(r0)
    with a.func("tensor", 1):
        a.op(r1, ".make_shape", VOID, 2, 0, 3, 0, 2)
        a.op(r2, ".reshape", r0, r1)
        a.ret(r2)


@case(
    gives("shape", [Shape((2, 3)), None], 0),
    fails("prim", [5, None], TypeError, ""),
    gives("make_shape", [None], (5,)),
    fails("make_prim", [None], TypeError, ""),
)
def heap_not_needed(a: Asm) -> None:
    """Heaps that no code uses: where None is accepted and where it is not."""
    with a.func("shape", 2):
        a.op(None, ".match_shape", r0, r1, 2, 0, 2, 2, 0, "")
        a.op(r2, ".copy", 0)
        a.ret(r2)
    with a.func("prim", 2):
        a.op(None, ".match_prim_value", r0, r1, 0, 5, "")
        a.op(r2, ".copy", 0)
        a.ret(r2)
    with a.func("make_shape", 1):
        a.op(r1, ".make_shape", r0, 1, 0, 5)
        a.ret(r1)
    with a.func("make_prim", 1):
        a.op(r1, ".make_prim_value", r0, 0, 5)
        a.ret(r1)


@case(
    gives("main", [5, 5], (5, 9, 5)),
    fails("main", [5, 6], RuntimeError, "second"),
    fails("main", ["5", 5], TypeError, ""),
    fails("main", [5, None], TypeError, ""),
)
def prim_values(a: Asm) -> None:
    """match_prim_value and make_prim_value, all codes."""
    with a.func("main", 2):
        a.op(r2, ".alloc_shape_heap", VM, 1)
        a.op(None, ".match_prim_value", r0, r2, 1, 0, "first ")
        a.op(None, ".match_prim_value", r1, r2, 3, 0, "second ")
        a.op(None, ".match_prim_value", r1, r2, 2, 0, "")
        a.op(None, ".match_prim_value", r1, r2, 0, 5, "")
        a.op(r3, ".make_prim_value", r2, 1, 0)
        a.op(r4, ".make_prim_value", r2, 0, 9)
        a.op(r5, ".make_prim_value", r2, 1, 0)
        a.op(r6, ".make_tuple", r3, r4, r5)
        a.ret(r6)


_OTHER_ERRORS = "TVM makes a RuntimeError of what it does not know"


@case(
    gives("main", [7, 3], (10, 4, 21, 2, 1, 1)),
    gives("main", [-7, 3], (-4, -10, -21, -3, 2, 0)),
    fails("main", [7, 0], ZeroDivisionError, "floordiv: 7 // 0", no_tvm=_OTHER_ERRORS),
    fails("main", [1 << 62, 1 << 61], OverflowError, "mul: ", no_tvm=_OTHER_ERRORS),
)
def shape_programs(a: Asm) -> None:
    """Six assignments at once."""
    pair: list[shape_program.Step] = [("load", 0), ("load", 1)]
    steps = [*pair, "add", ("store", 2), *pair, "sub", ("store", 3), *pair, "mul", ("store", 4),
             *pair, "floordiv", ("store", 5), *pair, "floormod", ("store", 6),
             *pair, "gt", ("const", 1), ("const", 0), "select", ("store", 7)]  # fmt: skip
    with a.func("main", 2):
        a.op(r2, ".alloc_shape_heap", VM, 8)
        a.op(None, ".match_prim_value", r0, r2, 1, 0, "")
        a.op(None, ".match_prim_value", r1, r2, 1, 1, "")
        a.op(None, "relaxvm.builtin.compute_shape", r2, shape_program.encode(steps))
        for i in range(6):
            a.op(Reg(3 + i), ".make_prim_value", r2, 1, 2 + i)
        a.op(r3, ".make_tuple", *[Reg(3 + i) for i in range(6)])
        a.ret(r3)


@case(
    gives("main", [Made(lambda rng: np.array([2, 3], np.int64))], (2, 3)),
    gives("main", [Made(lambda rng: np.array([4], np.int32))], (4,)),
    gives("main", [Made(lambda rng: np.array([], np.int16))], Shape(())),
    fails("main", [T((2,), "float32")], InternalError, ""),
    fails("main", [T((2, 2), "int64")], InternalError, ""),
)
def tensor_to_shape(a: Asm) -> None:
    with a.func("main", 1):
        a.op(r1, ".tensor_to_shape", r0)
        a.ret(r1)


@case(
    gives("main", [T((2, 6)), Shape((3, 4))], lambda x, s: x.reshape(3, 4)),
    gives("main", [T((0,)), Shape((0, 7))], np.zeros((0, 7), np.float32)),
    gives("shares", [T((4,))], lambda x: np.full((2, 2), 5, np.float32)),
    fails("main", [T((2,)), Shape((3,))], ValueError, ""),
    fails("main", [None, Shape((3,))], TypeError, "", no_tvm=_CRASHES),
)
def reshape(a: Asm) -> None:
    """A reshape is a view: writing to the tensor afterwards shows in it."""
    with a.func("main", 2):
        a.op(r2, ".reshape", r0, r1)
        a.ret(r2)
    with a.func("shares", 1):
        a.op(r1, ".reshape", r0, Shape((2, 2)))
        a.op(None, "fill", r0, 5)
        a.ret(r1)


# Checks


@case(
    gives("rank_and_dtype", [T((2, 3))], 0),
    fails("rank_and_dtype", [T((2,))], ValueError, " ndim "),
    fails("rank_and_dtype", [T((2, 3), "int32")], ValueError, " dtype "),
    fails("rank_and_dtype", [3], TypeError, "arg x"),
    fails("rank_and_dtype", [None], TypeError, "arg x"),
    fails("rank_and_dtype", [Shape((2, 3))], TypeError, "arg x"),
    gives("any_rank", [T((2, 3, 4))], 0),
    fails("any_rank", [T((2,), "float64")], ValueError, " dtype "),
    gives("any_dtype", [T((2, 3), "int8")], 0),
    fails("any_dtype", [T((2, 3, 4), "int8")], ValueError, " ndim "),
    gives("null_dtype", [T((2, 3), "int8")], 0),
    fails("null_dtype", [T(())], ValueError, " ndim "),
)
def check_tensor_info(a: Asm) -> None:
    """The forms with three and four arguments, any rank, any dtype."""
    with a.func("rank_and_dtype", 1):
        a.op(None, ".check_tensor_info", r0, 2, np.dtype("float32"), "arg x ")
        a.op(r1, ".copy", 0)
        a.ret(r1)
    with a.func("any_rank", 1):
        a.op(None, ".check_tensor_info", r0, -1, np.dtype("float32"), "")
        a.op(r1, ".copy", 0)
        a.ret(r1)
    with a.func("any_dtype", 1):
        a.op(None, ".check_tensor_info", r0, 2, "arg x ")
        a.op(r1, ".copy", 0)
        a.ret(r1)
    with a.func("null_dtype", 1):
        a.op(r1, ".null_value")
        a.op(None, ".check_tensor_info", r0, 2, r1, "arg x ")
        a.op(r1, ".copy", 0)
        a.ret(r1)


@case(
    gives("shape", [Shape((2, 3))], 0),
    fails("shape", [Shape((2,))], ValueError, " ndim "),
    fails("shape", [T((2, 3))], TypeError, "here"),
    gives("any_shape", [Shape((2, 3, 4))], 0),
    gives("pair", [(1, T((2,)))], 0),
    fails("pair", [(1, 2, 3)], ValueError, " elements"),
    fails("pair", [5], TypeError, "here"),
    gives("integer", [5], 0),
    gives("integer", [True], 0),
    fails("integer", [5.5], TypeError, "here"),
    fails("integer", [T((2,))], TypeError, "here"),
    gives("floating", [5.5], 0),
    gives("floating", [5], 0),
    fails("floating", ["5"], TypeError, "here"),
    gives("boolean", [True], 0),
    fails("function", [5], TypeError, "here"),
    gives("function_ok", [], 0),
)
def check_others(a: Asm) -> None:
    """Shapes, tuples, scalars and functions."""
    checks = {
        "shape": (".check_shape_info", r0, 2, "here "),
        "any_shape": (".check_shape_info", r0, -1, "here "),
        "pair": (".check_tuple_info", r0, 2, "here "),
        "integer": (".check_prim_value_info", r0, np.dtype("int64"), "here "),
        "floating": (".check_prim_value_info", r0, np.dtype("float32"), "here "),
        "boolean": (".check_prim_value_info", r0, np.dtype("bool"), "here "),
        "function": (".check_func_info", r0, "here "),
    }
    for name, call in checks.items():
        with a.func(name, 1):
            a.op(None, *call)
            a.op(r1, ".copy", 0)
            a.ret(r1)
    with a.func("function_ok"):
        a.op(None, ".check_func_info", Func("function"), "here ")
        a.op(r0, ".make_closure", Func("function"), 1)
        a.op(None, ".check_func_info", r0, "here ")
        a.op(r0, ".copy", 0)
        a.ret(r0)


@case(
    gives("main", [T((2, 3)), T((3,))], (2, 3)),
    fails("main", [T((2, 3)), T((2,))], RuntimeError, "w "),
    fails("main", [T((2, 3)), T((3,), "float64")], ValueError, " dtype "),
    fails("main", [T((2, 3)), T((3, 1))], ValueError, " ndim "),
    fails("main", [T((2,)), T((3,))], ValueError, " ndim "),
    fails("main", [Shape((2, 3)), T((3,))], TypeError, "x "),
)
def checked_entry(a: Asm) -> None:
    """check_tensor_info directly followed by match_shape of the same tensor, as functions begin."""
    with a.func("main", params=["x", "w"]):
        a.op(r2, ".alloc_shape_heap", VM, 2)
        a.op(None, ".check_tensor_info", r0, 2, np.dtype("float32"), "x ")
        a.op(None, ".match_shape", r0, r2, 2, 1, 0, 1, 1, "x ")
        a.op(None, ".check_tensor_info", r1, 1, np.dtype("float32"), "w ")
        a.op(None, ".match_shape", r1, r2, 1, 3, 1, "w ")
        a.op(r3, ".make_shape", r2, 2, 1, 0, 1, 1)
        a.ret(r3)


@case(
    gives("main", [True, T((2, 3), "int8")], (2, 3)),
    gives("main", [False, T((2, 3))], (2, 3)),
    fails("main", [False, T((2, 3), "int8")], ValueError, " dtype "),
    fails("main", [True, T((2,), "int8")], RuntimeError, "x "),
    fails("main", [True, 4], TypeError, "x "),
)
def jump_into_checked_entry(a: Asm) -> None:
    """A jump between check_tensor_info and match_shape must skip only the check."""
    with a.func("main", params=["skip", "x"]):
        check, match = a.label(), a.label()
        a.op(r2, ".alloc_shape_heap", VM, 2)
        a.iff(r0, check)
        a.go(match)
        a.bind(check)
        a.op(None, ".check_tensor_info", r1, 2, np.dtype("float32"), "x ")
        a.bind(match)
        a.op(None, ".match_shape", r1, r2, 2, 1, 0, 1, 1, "x ")
        a.op(r3, ".make_shape", r2, 2, 1, 0, 1, 1)
        a.ret(r3)


# Memory


@case(
    gives("main", [T((2, 3)), T((2, 3))], operator.add),
    fails("main", [T((4,)), T((4,))], ValueError, ""),
)
def alloc_static(a: Asm) -> None:
    """alloc_storage, alloc_tensor and the kill of the storage, all of constant size."""
    with a.func("main", 2):
        a.alloc(r3, r2, (2, 3))
        a.op(None, "add_into", r0, r1, r3)
        a.ret(r3)


@case(gives("main", [T((2, 3)), T((2, 3))], lambda x, y: (x + y, x + y + y)))
def alloc_two(a: Asm) -> None:
    """Two allocations of one size alive together; the second storage is not killed."""
    with a.func("main", 2):
        a.alloc(r3, r2, (2, 3))
        a.op(None, "add_into", r0, r1, r3)
        a.alloc(r4, r2, (2, 3), kill=False)
        a.op(None, "add_into", r3, r1, r4)
        a.op(r5, ".make_tuple", r3, r4)
        a.ret(r5)


@case(
    gives("main", [5], [np.full((4,), i, np.float32) for i in range(5)]),
    gives("main", [0], []),
)
def alloc_in_loop(a: Asm) -> None:
    """One allocation site run many times while all its results stay alive."""
    with a.func("main", 1):
        head, done = a.label(), a.label()
        a.op(r1, ".make_tuple")
        a.op(r2, ".copy", 0)
        a.bind(head)
        a.op(r3, "less", r2, r0)
        a.iff(r3, done)
        a.alloc(r5, r4, (4,))
        a.op(None, "fill", r5, r2)
        a.op(r6, ".make_tuple", r5)
        a.op(r1, "extend", r1, r6)
        a.op(r2, "add", r2, 1)
        a.go(head)
        a.bind(done)
        a.ret(r1)


@case(gives("main", [6], np.full((4,), 5, np.float32)), gives("main", [1], np.zeros(4, np.float32)))
def alloc_in_loop_dropped(a: Asm) -> None:
    """One allocation site run many times, each result dropped before the next."""
    with a.func("main", 1):
        head, done = a.label(), a.label()
        a.op(r1, ".copy", 0)
        a.bind(head)
        a.alloc(r3, r2, (4,))
        a.op(None, "fill", r3, r1)
        a.op(r1, "add", r1, 1)
        a.op(r4, "less", r1, r0)
        a.iff(r4, done)
        a.op(r3, ".null_value")
        a.go(head)
        a.bind(done)
        a.ret(r3)


@case(
    gives("main", [], (np.full(4, 1, np.float32), np.full(2, 7, np.float32),
                       np.array([1, 1, 7, 7], np.float32)), no_tvm=_NO_HOST),
)  # fmt: skip
def storage_shared(a: Asm) -> None:
    """Two tensors on one storage, one at an offset, and a third over both."""
    with a.func("main"):
        a.op(r0, ".alloc_storage", VM, Shape([24]), -1, np.dtype("uint8"), "global")
        a.op(r1, ".alloc_tensor", r0, 0, Shape((4,)), np.dtype("float32"), "global")
        a.op(r2, ".alloc_tensor", r0, 16, Shape((2,)), np.dtype("float32"))
        a.op(r3, ".alloc_tensor", r0, 8, Shape((4,)), np.dtype("float32"))
        a.op(r0, ".null_value")
        a.op(None, "fill", r1, 1)
        a.op(None, "fill", r2, 7)
        a.op(r4, ".make_tuple", r1, r2, r3)
        a.ret(r4)


@case(
    gives("main", [T((5, 2)), T((5, 2))], operator.add),
    gives("main", [T((1, 3)), T((1, 3))], operator.add),
    gives("main", [T((0, 3)), T((0, 3))], operator.add),
    fails("main", [T((5, 2)), T((5,))], ValueError, " ndim "),
)
def alloc_dynamic(a: Asm) -> None:
    """Sizes computed on the shape heap."""
    with a.func("main", 2):
        f32 = np.dtype("float32")
        a.op(r2, ".alloc_shape_heap", VM, 3)
        a.op(None, ".check_tensor_info", r0, 2, f32, "x ")
        a.op(None, ".check_tensor_info", r1, 2, f32, "y ")
        a.op(None, ".match_shape", r0, r2, 2, 1, 0, 1, 1, "x ")
        a.op(None, ".match_shape", r1, r2, 2, 3, 0, 3, 1, "y ")
        a.op(None, "nbytes_slot", r2)
        a.op(r3, ".make_shape", r2, 1, 1, 2)
        a.op(r4, ".make_shape", r2, 2, 1, 0, 1, 1)
        a.op(r5, ".alloc_storage", VM, r3, 0, np.dtype("uint8"), "global")
        a.op(r6, ".alloc_tensor", r5, 0, r4, f32, "global")
        a.op(r5, ".null_value")
        a.op(None, "add_into", r0, r1, r6)
        a.ret(r6)


@case(
    gives("main", [True], np.zeros((2, 2), np.float32)),
    gives("main", [False], np.zeros((2, 2), np.float32)),
    gives("late", [False], np.full(3, 4, np.int32)),
    fails("late", [True], TypeError, "", no_tvm=_CLASSES),
)
def jump_into_alloc(a: Asm) -> None:
    """Jumps between alloc_storage and alloc_tensor, with and without a storage in the register."""
    with a.func("main", 1):
        again, tensor = a.label(), a.label()
        a.op(r1, ".alloc_storage", VM, Shape([16]), 0, np.dtype("uint8"), "global")
        a.iff(r0, again)
        a.go(tensor)
        a.bind(again)
        a.op(r1, ".alloc_storage", VM, Shape([16]), 0, np.dtype("uint8"), "global")
        a.bind(tensor)
        a.op(r2, ".alloc_tensor", r1, 0, Shape((2, 2)), np.dtype("float32"), "global")
        a.op(r1, ".null_value")
        a.op(None, "fill", r2, 0)
        a.ret(r2)
    with a.func("late", 1):
        alloc, tensor = a.label(), a.label()
        a.iff(r0, alloc)
        a.go(tensor)
        a.bind(alloc)
        a.op(r1, ".alloc_storage", VM, Shape([12]), 0, np.dtype("uint8"), "global")
        a.bind(tensor)
        a.op(r2, ".alloc_tensor", r1, 0, Shape((3,)), np.dtype("int32"), "global")
        a.op(r1, ".null_value")
        a.op(None, "fill", r2, 4)
        a.ret(r2)


@case(gives("main", [3], (np.full(2, 3, np.int64), True)))
def jump_onto_kill(a: Asm) -> None:
    """The kill of a storage is a jump target: it must stay a separate instruction."""
    with a.func("main", 1):
        kill, done = a.label(), a.label()
        a.op(r1, ".alloc_storage", VM, Shape([16]), 0, np.dtype("uint8"), "global")
        a.op(r2, ".alloc_tensor", r1, 0, Shape((2,)), np.dtype("int64"), "global")
        a.bind(kill)
        a.op(r1, ".null_value")
        a.op(r3, "is_zero", r0)
        a.op(r3, "not", r3)
        a.iff(r3, done)
        a.op(None, "fill", r2, 3)
        a.op(r0, "sub", r0, 1)
        a.op(r1, ".copy", "not a storage")
        a.go(kill)
        a.bind(done)
        a.op(r4, "is_none", r1)
        a.op(r5, ".make_tuple", r2, r4)
        a.ret(r5)


@case(
    gives("main", [0], np.zeros(4, np.uint8)),
    gives("main", [12], np.zeros(4, np.uint8)),
    fails("main", [13], InternalError, "", no_tvm=_BOUNDS),
    fails("main", [-1], InternalError, "", no_tvm=_BOUNDS),
    fails("main", ["0"], TypeError, ""),
    fails("main", [None], TypeError, ""),
)
def alloc_tensor_bounds(a: Asm) -> None:
    """A tensor must lie inside its storage."""
    with a.func("main", 1):
        a.op(r1, ".alloc_storage", VM, Shape([16]), 0, np.dtype("uint8"), "global")
        a.op(r2, ".alloc_tensor", r1, r0, Shape((4,)), np.dtype("uint8"), "global")
        a.op(None, "fill", r2, 0)
        a.ret(r2)


@case(
    fails("main", [Shape((-5,))], InternalError, ""),
    fails("main", [3], TypeError, ""),
    fails("main", [Shape((2**62,))], MemoryError, "", no_tvm=_LAZY),
    fails("main", [Shape((2**40, 2**40))], MemoryError, "", no_tvm="wraps around"),
    gives("main", [Shape((64,))], 0),
    gives("main", [Shape((0,))], 0),
    fails("device", [7], InternalError, ""),
    gives("device", [-1], 0, no_tvm=_NO_HOST),
    fails("device", ["x"], TypeError, ""),
)
def alloc_storage_arguments(a: Asm) -> None:
    """Sizes and device numbers that are known only at run time."""
    with a.func("main", 1):
        a.op(r1, ".alloc_storage", VM, r0, 0, np.dtype("uint8"), "global")
        a.op(r1, ".copy", 0)
        a.ret(r1)
    with a.func("device", 1):
        a.op(r1, ".alloc_storage", VM, Shape([8]), r0, np.dtype("uint8"), "global")
        a.op(r1, ".copy", 0)
        a.ret(r1)


@case(
    gives("main", [T((3,))], lambda x: (x, True), no_tvm=_CONVERTED),
    gives("other", [T((3,))], lambda x: (x, False)),
)
def offsets_and_devices(a: Asm) -> None:
    """ensure_zero_offset keeps the object, to_device makes a new one."""
    with a.func("main", 1):
        a.op(r1, ".ensure_zero_offset", r0)
        a.op(r2, "same", r0, r1)
        a.op(r3, ".make_tuple", r1, r2)
        a.ret(r3)
    with a.func("other", 1):
        a.op(r1, ".to_device", r0, 1, 0, "global")
        a.op(r2, "same", r0, r1)
        a.op(r3, ".make_tuple", r1, r2)
        a.ret(r3)


@case(gives("main", [T((3,))], lambda x: (None, None, x)))
def kills(a: Asm) -> None:
    """null_value into registers that hold values, one of them kept alive elsewhere."""
    with a.func("main", 1):
        a.op(r1, "clone", r0)
        a.op(r2, ".make_tuple", r0)
        a.op(r1, ".null_value")
        a.op(r0, ".null_value")
        a.op(r3, ".tuple_getitem", r2, 0)
        a.op(r4, ".make_tuple", r0, r1, r3)
        a.ret(r4)


@case(gives("main", [T((3,))], lambda x: x + 1), gives("both", [T((2,))], lambda x: (x + 2, x + 2)))
def in_place(a: Asm) -> None:
    """A kernel that writes its argument and returns it: the result is the same object."""
    with a.func("main", 1):
        a.op(r1, "bump", r0)
        a.ret(r1)
    with a.func("both", 1):
        a.op(r1, "bump", r0)
        a.op(r2, "bump", r1)
        a.op(r3, ".make_tuple", r0, r2)
        a.ret(r3)


@case(fails("main", [], ValueError, "read-only", no_tvm="constants are writable there"))
def constants_are_read_only(a: Asm) -> None:
    with a.func("main"):
        a.op(r0, "bump", np.arange(3, dtype=np.int32))
        a.ret(r0)


# Tuples


@case(
    gives("main", [T((2,)), 3], lambda x, y: (3, x)),
    gives("none", [], ()),
    gives("nested", [T((2,))], lambda x: ((x,), (1, (x, "s")))),
    gives("wide", [T((2,))], lambda x: (x,) * 40),
)
def tuples(a: Asm) -> None:
    with a.func("main", 2):
        a.op(r2, ".make_tuple", r0, r1)
        a.op(r3, ".tuple_getitem", r2, 0)
        a.op(r4, ".tuple_getitem", r2, 1)
        a.op(r5, ".make_tuple", r4, r3)
        a.ret(r5)
    with a.func("none"):
        a.op(r0, ".make_tuple")
        a.ret(r0)
    with a.func("nested", 1):
        a.op(r1, ".make_tuple", r0)
        a.op(r2, ".make_tuple", r0, "s")
        a.op(r3, ".make_tuple", 1, r2)
        a.op(r4, ".make_tuple", r1, r3)
        a.ret(r4)
    with a.func("wide", 1):
        a.op(r1, ".make_tuple", *[r0] * 40)
        a.ret(r1)


@case(
    gives("main", [(4, 5, 6), 0], 4),
    gives("main", [(4, 5, 6), 2], 6),
    gives("main", [[7, 8], 1], 8),
    fails("main", [(4, 5, 6), 3], IndexError, ""),
    fails("main", [(4, 5, 6), -1], IndexError, ""),
    fails("main", [(), 0], IndexError, ""),
    fails("main", [(4, 5), "0"], TypeError, ""),
    fails("main", [T((3,)), 0], TypeError, ""),
    fails("main", [None, 0], TypeError, ""),
    fails("static", [(4, 5)], IndexError, ""),
    gives("static", [(4, 5, (6,))], (6,)),
)
def tuple_getitem(a: Asm) -> None:
    """Index by register and by immediate, in and out of range."""
    with a.func("main", 2):
        a.op(r2, ".tuple_getitem", r0, r1)
        a.ret(r2)
    with a.func("static", 1):
        a.op(r0, ".tuple_getitem", r0, 2)
        a.ret(r0)


@case(gives("main", [4], ((4, 0), (4, 1), (4, 2))))
def tuple_kept_across_loop(a: Asm) -> None:
    """make_tuple into one register again and again while earlier results stay alive."""
    with a.func("main", 1):
        head, done = a.label(), a.label()
        a.op(r1, ".make_tuple")
        a.op(r2, ".copy", 0)
        a.bind(head)
        a.op(r3, ".make_tuple", r0, r2)
        a.op(r4, ".make_tuple", r3)
        a.op(r1, "extend", r1, r4)
        a.op(r2, "add", r2, 1)
        a.op(r5, "less", r2, 3)
        a.iff(r5, done)
        a.go(head)
        a.bind(done)
        a.ret(r1)


# Conditions and jumps


@case(
    gives("main", [True], 1), gives("main", [False], 2), gives("main", [7], 1),
    gives("main", [0], 2), gives("main", [-1], 1), gives("main", [2**40], 1),
    gives("main", [2**70], 1, no_tvm="has no such ints"),
    fails("main", [Made(lambda rng: np.asarray(True))], TypeError, "read_if_cond"),
    fails("main", [None], TypeError, ""),
    fails("main", ["x"], TypeError, ""),
    fails("main", [1.0], TypeError, ""),
    fails("main", [(1,)], TypeError, ""),
    fails("main", [Shape((1,))], TypeError, ""),
)  # fmt: skip
def if_register(a: Asm) -> None:
    """If on a register: ints and bools; anything else is an error."""
    with a.func("main", 1):
        otherwise = a.label()
        a.iff(r0, otherwise)
        a.op(r1, ".copy", 1)
        a.ret(r1)
        a.bind(otherwise)
        a.op(r1, ".copy", 2)
        a.ret(r1)


_COND = [
    gives("main", [True], 1), gives("main", [False], 2), gives("main", [3], 1),
    gives("main", [0], 2),
    gives("main", [Made(lambda rng: np.asarray(True))], 1),
    gives("main", [Made(lambda rng: np.asarray(False))], 2),
    gives("main", [Made(lambda rng: np.asarray(-2, np.int8))], 1),
    gives("main", [Made(lambda rng: np.asarray(0, np.int64))], 2),
    gives("main", [Made(lambda rng: np.array([0], np.uint16))], 2),
    gives("main", [Made(lambda rng: np.array([256], np.uint16))], 1),
    gives("main", [Made(lambda rng: np.array([True]))], 1),
    fails("main", [Made(lambda rng: np.asarray(1.0, np.float32))], InternalError, ""),
    fails("main", [None], TypeError, "", no_tvm=_CRASHES),
    fails("main", ["x"], TypeError, ""),
]  # fmt: skip


@case(*_COND)
def read_if_cond(a: Asm) -> None:
    """read_if_cond directly followed by If, as code generation emits it."""
    with a.func("main", 1):
        otherwise, done = a.label(), a.label()
        a.op(r1, ".read_if_cond", r0)
        a.iff(r1, otherwise)
        a.op(r2, ".copy", 1)
        a.go(done)
        a.bind(otherwise)
        a.op(r2, ".copy", 2)
        a.bind(done)
        a.ret(r2)


@case(
    gives("main", [Made(lambda rng: np.asarray(True))], (True, True)),
    gives("main", [Made(lambda rng: np.asarray(0))], (False, False)),
    fails("main", [2.5], TypeError, ""),
)
def read_if_cond_used_later(a: Asm) -> None:
    """The condition register is used after the If, so fusing must keep it."""
    with a.func("main", 1):
        otherwise = a.label()
        a.op(r1, ".read_if_cond", r0)
        a.iff(r1, otherwise)
        a.op(r2, ".make_tuple", r1, r1)
        a.ret(r2)
        a.bind(otherwise)
        a.op(r2, ".make_tuple", r1, r1)
        a.ret(r2)


@case(gives("main", [True, 0], 2), gives("main", [False, Made(lambda rng: np.asarray(1))], 1))
def jump_into_read_if_cond(a: Asm) -> None:
    """A jump onto the If of a read_if_cond + if pair."""
    with a.func("main", 2):
        read, test, otherwise = a.label(), a.label(), a.label()
        a.op(r2, ".copy", r1)
        a.iff(r0, read)
        a.go(test)
        a.bind(read)
        a.op(r2, ".read_if_cond", r1)
        a.bind(test)
        a.iff(r2, otherwise)
        a.op(r3, ".copy", 1)
        a.ret(r3)
        a.bind(otherwise)
        a.op(r3, ".copy", 2)
        a.ret(r3)


@case(gives("main", [3], 3), gives("far", [3], 103))
def goto_chain(a: Asm) -> None:
    """Jumps to jumps, forwards and backwards."""
    with a.func("main", 1):
        labels = [a.label() for _ in range(6)]
        a.go(labels[0])
        for here, there in itertools.pairwise(labels):
            a.bind(here)
            a.go(there)
        a.bind(labels[5])
        a.ret(r0)
    with a.func("far", 1):
        first, second, end = a.label(), a.label(), a.label()
        a.go(second)
        a.bind(first)
        a.go(end)
        a.bind(second)
        a.go(first)
        for _ in range(50):
            a.op(r0, "neg", r0)
        a.bind(end)
        a.op(r0, "add", r0, 100)
        a.ret(r0)


@case(gives("main", [3], 3))
def unreachable_code(a: Asm) -> None:
    """Unreachable code after a jump and after a return."""
    with a.func("main", 1):
        end = a.label()
        a.go(end)
        a.op(None, "fail", "never")
        a.bind(end)
        a.ret(r0)
        a.op(None, "fail", "never")
        a.ret(r0)


@case(
    *[gives("main", [x, y], e) for x, y, e in
      [(True, True, 3), (True, False, 2), (False, True, 1), (False, False, 0)]],
)  # fmt: skip
def nested_ifs(a: Asm) -> None:
    with a.func("main", 2):
        outer, inner, other, end = a.label(), a.label(), a.label(), a.label()
        a.iff(r0, outer)
        a.iff(r1, inner)
        a.op(r2, ".copy", 3)
        a.go(end)
        a.bind(inner)
        a.op(r2, ".copy", 2)
        a.go(end)
        a.bind(outer)
        a.iff(r1, other)
        a.op(r2, ".copy", 1)
        a.go(end)
        a.bind(other)
        a.op(r2, ".copy", 0)
        a.bind(end)
        a.ret(r2)


@case(gives("main", [10], 45), gives("main", [0], 0), gives("main", [10_000], 49_995_000))
def loop(a: Asm) -> None:
    """Sum of the ints below n."""
    with a.func("main", 1):
        head, done = a.label(), a.label()
        a.op(r1, ".copy", 0)
        a.op(r2, ".copy", 0)
        a.bind(head)
        a.op(r3, "less", r1, r0)
        a.iff(r3, done)
        a.op(r2, "add", r2, r1)
        a.op(r1, "add", r1, 1)
        a.go(head)
        a.bind(done)
        a.ret(r2)


@case(gives("main", [4, 3], 12), gives("main", [0, 3], 0), gives("main", [3, 0], 0))
def nested_loops(a: Asm) -> None:
    with a.func("main", 2):
        outer, inner, next_outer, done = (a.label() for _ in range(4))
        a.op(r2, ".copy", 0)
        a.op(r3, ".copy", 0)
        a.bind(outer)
        a.op(r5, "less", r3, r0)
        a.iff(r5, done)
        a.op(r4, ".copy", 0)
        a.bind(inner)
        a.op(r5, "less", r4, r1)
        a.iff(r5, next_outer)
        a.op(r2, "add", r2, 1)
        a.op(r4, "add", r4, 1)
        a.go(inner)
        a.bind(next_outer)
        a.op(r3, "add", r3, 1)
        a.go(outer)
        a.bind(done)
        a.ret(r2)


@case(gives("main", [Made(lambda rng: np.asarray(5, np.int32))], 5),
      gives("main", [Made(lambda rng: np.asarray(0, np.int32))], 0))  # fmt: skip
def loop_on_tensor(a: Asm) -> None:
    """A loop whose condition is a tensor, read in every iteration."""
    with a.func("main", 1):
        head, done = a.label(), a.label()
        a.op(r1, ".copy", 0)
        a.bind(head)
        a.op(r2, ".read_if_cond", r0)
        a.iff(r2, done)
        a.op(r0, "sub", r0, np.asarray(1, np.int32))
        a.op(r1, "add", r1, 1)
        a.go(head)
        a.bind(done)
        a.ret(r1)


@case(gives("main", [1], 11), gives("main", [0], 12))
def if_over_long_branch(a: Asm) -> None:
    """A false branch 200 instructions away."""
    with a.func("main", 1):
        otherwise = a.label()
        a.iff(r0, otherwise)
        for _ in range(200):
            a.op(r1, ".copy", r0)
        a.op(r1, "add", r1, 10)
        a.ret(r1)
        a.bind(otherwise)
        a.op(r1, ".copy", 12)
        a.ret(r1)


# Calls between VM functions


@case(gives("main", [T((3,))], lambda x: (x + x) * x), gives("twice", [T((3,))], lambda x: x * 4))
def vm_calls(a: Asm) -> None:
    with a.func("double", 1):
        a.op(r1, "add", r0, r0)
        a.ret(r1)
    with a.func("twice", 1):
        a.op(r1, "double", r0)
        a.op(r1, "double", r1)
        a.ret(r1)
    with a.func("main", 1):
        a.op(r1, "double", r0)
        a.op(r2, "mul", r1, r0)
        a.ret(r2)


@case(gives("main", [2, 3], (3, 2, 3, 7, "c", None)))
def vm_call_operands(a: Asm) -> None:
    """Every kind of operand passed to a VM function, with the destination among the arguments."""
    with a.func("six", 6):
        a.op(r6, ".make_tuple", r0, r1, r2, r3, r4, r5)
        a.ret(r6)
    with a.func("main", 2):
        a.op(r1, "six", r1, r0, r1, 7, "c", VOID)
        a.ret(r1)


@case(*[gives("fib", [n], f) for n, f in [(0, 0), (1, 1), (2, 1), (10, 55), (15, 610)]])
def recursion(a: Asm) -> None:
    with a.func("fib", 1):
        deeper = a.label()
        a.op(r1, "less", r0, 2)
        a.iff(r1, deeper)
        a.ret(r0)
        a.bind(deeper)
        a.op(r1, "sub", r0, 1)
        a.op(r1, "fib", r1)
        a.op(r2, "sub", r0, 2)
        a.op(r2, "fib", r2)
        a.op(r3, "add", r1, r2)
        a.ret(r3)


@case(gives("main", [5_000], 5_000, no_tvm="needs a C stack of that depth"),
      gives("main", [50], 50))  # fmt: skip
def deep_recursion(a: Asm) -> None:
    """Recursion deeper than the C stack would allow."""
    with a.func("main", 1):
        deeper = a.label()
        a.op(r1, "is_zero", r0)
        a.iff(r1, deeper)
        a.ret(r0)
        a.bind(deeper)
        a.op(r1, "sub", r0, 1)
        a.op(r1, "main", r1)
        a.op(r1, "add", r1, 1)
        a.ret(r1)


@case(gives("even", [10], True), gives("even", [7], False), gives("odd", [7], True))
def mutual_recursion(a: Asm) -> None:
    a.forward("odd")
    for name, other, at_zero in (("even", "odd", True), ("odd", "even", False)):
        with a.func(name, 1):
            deeper = a.label()
            a.op(r1, "is_zero", r0)
            a.iff(r1, deeper)
            if not at_zero:
                a.op(r1, "not", r1)
            a.ret(r1)
            a.bind(deeper)
            a.op(r1, "sub", r0, 1)
            a.op(r1, other, r1)
            a.ret(r1)


@case(
    gives("main", [T((2,))], lambda x: x + 3),
    fails("main", ["x"], TypeError, "", no_tvm=_CLASSES),
)
def call_later_function(a: Asm) -> None:
    """A function that is defined after its caller, three deep."""
    a.forward("second", "third")
    with a.func("main", 1):
        a.op(r1, "second", r0)
        a.ret(r1)
    with a.func("second", 1):
        a.op(r1, "third", r0)
        a.op(r1, "add", r1, np.ones(2, np.float32))
        a.ret(r1)
    with a.func("third", 1):
        a.op(r1, "add", r0, np.full(2, 2, np.float32))
        a.ret(r1)


# Closures and functions as values


@case(
    gives("main", [T((3,)), T((3,))], lambda x, y: x - y),
    gives("two_captures", [1, 2], (1, 7, 2, 8)),
    gives("nested", [1], (1, 30, 20, 10)),
    gives("no_capture", [5], (5, 5)),
)
def closures(a: Asm) -> None:
    """Captured values come after the arguments of the call."""
    with a.func("sub", 2):
        a.op(r2, "test.sub", r0, r1)
        a.ret(r2)
    with a.func("four", 4):
        a.op(r4, ".make_tuple", r0, r1, r2, r3)
        a.ret(r4)
    with a.func("pair", 1):
        a.op(r1, ".make_tuple", r0, r0)
        a.ret(r1)
    with a.func("main", 2):
        a.op(r2, ".make_closure", Func("sub"), r1)
        a.op(r3, ".invoke_closure", VM, r2, r0)
        a.ret(r3)
    with a.func("two_captures", 2):
        a.op(r2, ".make_closure", Func("four"), r1, 8)
        a.op(r3, ".invoke_closure", VM, r2, r0, 7)
        a.ret(r3)
    with a.func("nested", 1):
        a.op(r1, ".make_closure", Func("four"), 10)
        a.op(r1, ".make_closure", r1, 20)
        a.op(r1, ".make_closure", r1, 30)
        a.op(r1, ".invoke_closure", VM, r1, r0)
        a.ret(r1)
    with a.func("no_capture", 1):
        a.op(r1, ".make_closure", Func("pair"))
        a.op(r2, ".invoke_closure", VM, r1, r0)
        a.ret(r2)


@case(
    gives("main", [3, 4], (3, 4), no_tvm=_PACKED_CLOSURE),
    gives("direct", [3, 4], 7),
    gives("in_kernel", [3, 4], 7, no_tvm=_PACKED_CLOSURE),
    gives("vm_function", [3], 7),
    gives("from_tuple", [3], 13),
)
def function_values(a: Asm) -> None:
    """Functions as operands: packed and bytecode, invoked, passed to kernels, kept in tuples."""
    with a.func("plus4", 1):
        a.op(r1, "add", r0, 4)
        a.ret(r1)
    with a.func("main", 2):
        a.op(r2, ".make_closure", Func("test.pack"), r1)
        a.op(r3, ".invoke_closure", VM, r2, r0)
        a.ret(r3)
    with a.func("direct", 2):
        a.op(r2, ".invoke_closure", VM, Func("test.add"), r0, r1)
        a.ret(r2)
    with a.func("in_kernel", 2):
        a.op(r2, ".make_closure", Func("test.add"), r1)
        a.op(r3, "apply", r2, r0)
        a.ret(r3)
    with a.func("vm_function", 1):
        a.op(r1, ".invoke_closure", VM, Func("plus4"), r0)
        a.ret(r1)
    with a.func("from_tuple", 1):
        a.op(r1, ".make_tuple", Func("plus4"), Func("test.add"))
        a.op(r2, ".tuple_getitem", r1, 0)
        a.op(r3, ".invoke_closure", VM, r2, r0)
        a.op(r4, ".tuple_getitem", r1, 1)
        a.op(r5, ".invoke_closure", VM, r4, r3, 6)
        a.ret(r5)


@case(
    gives("main", [4], 11, no_tvm=_CALLS_BACK),
    gives("hands_in", [T((2,))], lambda x: x * 4, no_tvm=_CALLS_BACK),
    gives("through_python", [6], 720, no_tvm=_CALLS_BACK),
)
def reentrant(a: Asm) -> None:
    """Kernels that call VM functions, which call kernels."""
    with a.func("plus", 2):
        a.op(r2, "add", r0, r1)
        a.ret(r2)
    with a.func("double", 1):
        a.op(r1, "add", r0, r0)
        a.ret(r1)
    with a.func("main", 1):
        a.op(r1, ".make_closure", Func("plus"), 7)
        a.op(r2, "apply", r1, r0)
        a.ret(r2)
    with a.func("hands_in", 1):
        a.op(r1, "twice", Func("double"), r0)
        a.ret(r1)
    with a.func("through_python", 1):
        deeper = a.label()
        a.op(r1, "is_zero", r0)
        a.iff(r1, deeper)
        a.op(r1, ".copy", 1)
        a.ret(r1)
        a.bind(deeper)
        a.op(r1, "sub", r0, 1)
        a.op(r1, "apply", Func("through_python"), r1)
        a.op(r1, "mul", r1, r0)
        a.ret(r1)


@case(
    gives("call", [Made(lambda rng: operator.neg), 5], -5),
    fails("call", [5, 5], TypeError, ""),
    fails("call", [None, 5], TypeError, "", no_tvm=_CLASSES),
    fails("call", [T((2,)), 5], TypeError, "", no_tvm=_CLASSES),
    fails("wrap", [5], TypeError, ""),
)
def calling_values(a: Asm) -> None:
    """invoke_closure and make_closure of values passed from Python."""
    with a.func("call", 2):
        a.op(r2, ".invoke_closure", VM, r0, r1)
        a.ret(r2)
    with a.func("wrap", 1):
        a.op(r1, ".make_closure", r0, 1)
        a.ret(r1)


@case(
    fails("main", [1], ArityError, "inner"),
    fails("in_kernel", [1], ArityError, "inner", no_tvm=_CALLS_BACK),
    fails("closure_arity", [1], ArityError, "inner"),
)
def arity_at_run_time(a: Asm) -> None:
    """Wrong argument counts that are detected only at run time."""
    with a.func("inner", 3):
        a.ret(r0)
    with a.func("main", 1):
        a.op(r1, ".make_tuple", Func("inner"))
        a.op(r1, ".tuple_getitem", r1, 0)
        a.op(r2, ".invoke_closure", VM, r1, r0, r0)
        a.ret(r2)
    with a.func("in_kernel", 1):
        a.op(r1, "apply", Func("inner"), r0)
        a.ret(r1)
    with a.func("closure_arity", 1):
        a.op(r1, ".make_closure", Func("inner"), 1, 2, 3)
        a.op(r2, ".invoke_closure", VM, r1, r0)
        a.ret(r2)


# Errors


@case(
    fails("value", [T((2,))], ValueError, "broken"),
    fails("own", [T((2,))], KernelError, "own class", no_tvm=_CLASSES),
    fails("system", [T((2,))], SystemExit, "7", no_tvm="would leave the process"),
    fails("broadcast", [T((2,)), T((3,))], ValueError, "broadcast"),
    fails("deep", [5], ValueError, "deep down"),
    gives("fine", [T((2,))], lambda x: x),
)
def kernel_errors(a: Asm) -> None:
    """Exceptions of kernels keep their class and message, at any call depth."""
    with a.func("value", 1):
        a.op(r1, "clone", r0)
        a.op(r1, "fail", "broken")
        a.ret(r1)
    with a.func("own", 1):
        a.op(r1, "fail_own", r0, r0)
        a.ret(r1)
    with a.func("system", 1):
        a.op(r1, "fail_system", r0)
        a.ret(r1)
    with a.func("broadcast", 2):
        a.op(r2, "add", r0, r1)
        a.ret(r2)
    with a.func("deep", 1):
        deeper = a.label()
        a.op(r1, "is_zero", r0)
        a.iff(r1, deeper)
        a.op(r1, "fail", "deep down")
        a.ret(r1)
        a.bind(deeper)
        a.op(r1, "sub", r0, 1)
        a.op(r1, "deep", r1)
        a.ret(r1)
    with a.func("fine", 1):
        a.ret(r0)


@case(
    fails("main", [], ArityError, "x"),
    fails("main", [1, 2, 3], ArityError, "main"),
    gives("main", [1, 2], (1, 2)),
    fails("no_parameters", [1], ArityError, "no_parameters"),
    gives("no_parameters", [], 1),
)
def entry_arity(a: Asm) -> None:
    with a.func("main", params=["x", "y"]):
        a.op(r2, ".make_tuple", r0, r1)
        a.ret(r2)
    with a.func("no_parameters"):
        a.op(r0, ".copy", 1)
        a.ret(r0)


@case(
    fails("tuple_of", [5], TypeError, ""),
    fails("shape_from", [T((2,))], TypeError, ""),
    fails("heap_size", ["x"], TypeError, ""),
    fails("heap_size", [-1], InternalError, ""),
    gives("heap_size", [2], 0),
    fails("slot_of", [None], TypeError, "", no_tvm=_CRASHES),
    fails("slot_of", [T((2,), "float32")], TypeError, "", no_tvm="reads floats as ints"),
    fails("slot_of", [Made(lambda rng: np.zeros(1, np.int64))], IndexError, "",
          no_tvm=_BOUNDS),
    gives("slot_of", [Made(lambda rng: np.array([5, 6], np.int64))], (6,)),
    fails("store_to", [Made(lambda rng: np.zeros(1, np.int64))], IndexError, "",
          no_tvm=_BOUNDS),
)  # fmt: skip
def wrong_kinds(a: Asm) -> None:
    """Builtins called with arguments of the wrong kind."""
    with a.func("tuple_of", 1):
        a.op(r1, ".tuple_getitem", r0, 0)
        a.ret(r1)
    with a.func("shape_from", 1):
        a.op(None, ".check_shape_info", r0, -1, "")
        a.ret(r0)
    with a.func("heap_size", 1):
        a.op(r1, ".alloc_shape_heap", VM, r0)
        a.op(r1, ".copy", 0)
        a.ret(r1)
    with a.func("slot_of", 1):
        a.op(r1, ".make_shape", r0, 1, 1, 1)
        a.ret(r1)
    with a.func("store_to", 1):
        a.op(None, ".match_shape", Shape((3, 4)), r0, 2, 1, 0, 1, 1, "")
        a.ret(r0)


# Sizes and names


@case(gives("main", [7], 7 + 5000))
def many_registers(a: Asm) -> None:
    """5,000 registers, every one written once and read once."""
    with a.func("main", 1):
        for i in range(5000):
            a.op(Reg(i + 1), "add", Reg(i), 1)
        a.ret(Reg(5000))


@case(gives("main", [3], tuple(range(3, 303))), gives("kernel", [3], 300))
def many_arguments(a: Asm) -> None:
    """Calls with 300 arguments."""
    with a.func("main", 1):
        for i in range(1, 300):
            a.op(Reg(i), "add", Reg(i - 1), 1)
        a.op(Reg(300), ".make_tuple", *map(Reg, range(300)))
        a.ret(Reg(300))
    with a.func("kernel", 1):
        a.op(r1, "count", *[r0] * 299, 4)
        a.ret(r1)


@case(gives("main", list(range(64)), tuple(range(63, -1, -1))), gives("call", [5], 5))
def many_parameters(a: Asm) -> None:
    with a.func("main", 64):
        a.op(Reg(64), ".make_tuple", *map(Reg, range(63, -1, -1)))
        a.ret(Reg(64))
    with a.func("call", 1):
        a.op(r1, "main", *[0] * 63, r0)
        a.op(r2, ".tuple_getitem", r1, 0)
        a.ret(r2)


@case(gives("f0", [1], 41), gives("f39", [1], 2), gives("f20", [1], 21))
def many_functions(a: Asm) -> None:
    """Forty functions, each calling the next."""
    a.forward(*[f"f{i}" for i in range(1, 40)])
    for i in range(40):
        with a.func(f"f{i}", 1):
            a.op(r1, "add", r0, 1)
            if i < 39:
                a.op(r1, f"f{i + 1}", r1)
            a.ret(r1)


@case(
    gives("main", [3], 3),
    gives("ein Name mit Leerzeichen", [3], 3),
    gives("\u540d\u524d", [3], 3),
    gives("a.b-c/d:e[0]%1", [3], 3),
)
def odd_names(a: Asm) -> None:
    with a.func("ein Name mit Leerzeichen", params=["erster Parameter"]):
        a.ret(r0)
    with a.func("\u540d\u524d", params=["\u00e4"]):
        a.op(r1, "ein Name mit Leerzeichen", r0)
        a.ret(r1)
    with a.func("a.b-c/d:e[0]%1", params=["x.y"]):
        a.op(r1, "\u540d\u524d", r0)
        a.ret(r1)
    with a.func("main", params=["x"]):
        a.op(r1, "a.b-c/d:e[0]%1", r0)
        a.op(r1, "名 前 \N{SNOWMAN}", r1)
        a.ret(r1)


@case(gives("main", [1], 1 - 1500 + 1500))
def long_function(a: Asm) -> None:
    """A few thousand instructions in a row."""
    with a.func("main", 1):
        for _ in range(1500):
            a.op(r1, "sub", r0, 1)
            a.op(r0, ".copy", r1)
        for _ in range(1500):
            a.op(r0, "add", r0, 1)
        a.ret(r0)


# Small programs


def _mlp(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.maximum(x @ w + b, 0)


@case(
    gives("main", [T((4, 8)), T((8, 3)), T((4, 3))], _mlp),
    fails("main", [T((4, 7)), T((8, 3)), T((4, 3))], RuntimeError, "x "),
    fails("main", [T((4, 8), "float64"), T((8, 3)), T((4, 3))], ValueError, " dtype "),
)
def dense_layer(a: Asm) -> None:
    """matmul, bias and relu into planned memory; the first buffer is reused."""
    f32 = np.dtype("float32")
    with a.func("main", params=["x", "w", "b"]):
        for i, (name, dims) in enumerate((("x", (4, 8)), ("w", (8, 3)), ("b", (4, 3)))):
            a.op(None, ".check_tensor_info", Reg(i), 2, f32, f"{name} ")
            a.op(None, ".match_shape", Reg(i), VOID, 2, 0, dims[0], 0, dims[1], f"{name} ")
        a.op(r3, ".alloc_storage", VM, Shape([48]), 0, np.dtype("uint8"), "global")
        a.op(r4, ".alloc_tensor", r3, 0, Shape((4, 3)), f32, "global")
        a.op(None, "matmul_into", r0, r1, r4)
        a.alloc(r6, r5, (4, 3))
        a.op(None, "add_into", r4, r2, r6)
        a.op(r4, ".null_value")
        a.op(r7, ".alloc_tensor", r3, 0, Shape((4, 3)), f32, "global")
        a.op(r3, ".null_value")
        a.op(None, "relu_into", r6, r7)
        a.ret(r7)


@case(gives("main", [T((5, 4))], lambda x: np.asarray(x[:5, :4].sum()).reshape(())))
def dynamic_kernel(a: Asm) -> None:
    """call_tir_dyn appends the dimensions as scalars."""
    with a.func("main", 1):
        a.op(r1, ".shape_of", r0)
        a.alloc(r3, r2, ())
        a.op(None, ".call_tir_dyn", Func("test.window_sum"), r0, r3, r1)
        a.ret(r3)


@case(
    gives("main", [T((3,)), True], lambda x, c: x + 1),
    gives("main", [T((3,)), False], lambda x, c: x - 1),
)
def closure_chosen_by_if(a: Asm) -> None:
    """A closure made in one of two branches and invoked after the branches."""
    with a.func("plus", 2):
        a.op(r2, "add", r0, r1)
        a.ret(r2)
    with a.func("minus", 2):
        a.op(r2, "sub", r0, r1)
        a.ret(r2)
    with a.func("main", 2):
        otherwise, done = a.label(), a.label()
        one = np.ones(3, np.float32)
        a.op(r2, ".read_if_cond", r1)
        a.iff(r2, otherwise)
        a.op(r3, ".make_closure", Func("plus"), one)
        a.go(done)
        a.bind(otherwise)
        a.op(r3, ".make_closure", Func("minus"), one)
        a.bind(done)
        a.op(r4, ".invoke_closure", VM, r3, r0)
        a.ret(r4)


@case(gives("main", [6], 720), gives("main", [0], 1))
def recursion_through_closure(a: Asm) -> None:
    """A function that takes itself as a value."""
    with a.func("fact", 2):
        deeper = a.label()
        a.op(r2, "is_zero", r0)
        a.iff(r2, deeper)
        a.op(r2, ".copy", 1)
        a.ret(r2)
        a.bind(deeper)
        a.op(r2, "sub", r0, 1)
        a.op(r3, ".invoke_closure", VM, r1, r2, r1)
        a.op(r3, "mul", r3, r0)
        a.ret(r3)
    with a.func("main", 1):
        a.op(r1, "fact", r0, Func("fact"))
        a.ret(r1)


@case(gives("main", [T((4,)), 3], lambda x, n: np.exp(np.exp(np.exp(x)))))
def loop_with_buffers(a: Asm) -> None:
    """Two buffers allocated per iteration, one of which is passed to the next."""
    with a.func("main", 2):
        head, done = a.label(), a.label()
        a.bind(head)
        a.op(r2, "is_zero", r1)
        a.op(r2, "not", r2)
        a.iff(r2, done)
        a.alloc(r4, r3, (4,))
        a.op(None, "exp_into", r0, r4)
        a.op(r0, ".copy", r4)
        a.op(r4, ".null_value")
        a.op(r1, "sub", r1, 1)
        a.go(head)
        a.bind(done)
        a.ret(r0)


@case(gives("main", [T((2, 3))], lambda x: (x, (2, 3), np.full((2, 3), 9, np.float32))))
def everything_at_once(a: Asm) -> None:
    """One call that goes through checks, heap, allocation, closure and tuple."""
    f32 = np.dtype("float32")
    with a.func("filler", 2):
        a.op(None, "fill", r0, r1)
        a.ret(r0)
    with a.func("main", 1):
        a.op(r1, ".alloc_shape_heap", VM, 3)
        a.op(None, ".check_tensor_info", r0, 2, f32, "x ")
        a.op(None, ".match_shape", r0, r1, 2, 1, 0, 1, 1, "x ")
        a.op(None, "nbytes_slot", r1)
        a.op(r2, ".make_shape", r1, 2, 1, 0, 1, 1)
        a.op(r3, ".make_shape", r1, 1, 1, 2)
        a.op(r4, ".alloc_storage", VM, r3, 0, np.dtype("uint8"), "global")
        a.op(r5, ".alloc_tensor", r4, 0, r2, f32, "global")
        a.op(r4, ".null_value")
        a.op(r6, ".make_closure", Func("filler"), 9)
        a.op(r7, ".invoke_closure", VM, r6, r5)
        a.op(r8, ".make_tuple", r0, r2, r7)
        a.ret(r8)
