"""Hypothesis strategies for executables.

`executables()` draws executables with any function table, constants and control flow that the
verifier accepts, for round trips.  `programs()` draws runnable programs with loops, branches,
tuples, shapes, memory, closures and calls, some of which fail, and their inputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from relaxvm import isa
from relaxvm.errors import RelaxVMWarning
from relaxvm.executable import FunctionInfo, VMExecutable, shape_program
from relaxvm.isa import Arg, ArgKind, FuncKind, Instruction
from relaxvm.values import Shape

from .asm import VM, VOID, Asm, Func, Reg

# Constants

DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float16", "float32", "float64")  # fmt: skip


def tensors() -> st.SearchStrategy[np.ndarray]:
    """Small arrays of any TVM data type, of rank 0 to 3, with every bit pattern of floats."""
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    return st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, shapes))


def shapes() -> st.SearchStrategy[Shape]:
    return st.lists(st.integers(0, 2**40), max_size=4).map(Shape)


def texts(min_size: int = 0) -> st.SearchStrategy[str]:
    """Strings that UTF-8 can hold."""
    return st.text(st.characters(codec="utf-8"), min_size=min_size, max_size=12)


def names() -> st.SearchStrategy[str]:
    """Names of functions and parameters: any text but NUL, plain words more often."""
    plain = st.from_regex(r"[a-z_][a-z0-9_.]{0,8}", fullmatch=True)
    odd = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
    return plain | odd


def constants(savable: bool = True) -> st.SearchStrategy[Any]:
    """Constants of every kind; `savable` excludes those that TVM's stream cannot hold."""
    ints = st.integers(isa.WORD_MIN, isa.WORD_MAX)
    kinds = [tensors(), shapes(), texts(), ints, st.floats(), st.sampled_from(DTYPES).map(np.dtype)]
    if not savable:
        kinds += [st.none(), st.booleans()]
    return st.one_of(kinds)


# Executables of any structure


@st.composite
def executables(draw: st.DrawFn, savable: bool = True) -> VMExecutable:
    """Executables that the verifier accepts but that are not meant to run."""
    table_names = draw(st.lists(names(), min_size=1, max_size=6, unique=True))
    num_bodies = draw(st.integers(0, len(table_names)))
    pool = draw(st.lists(constants(savable), max_size=5))
    headers = [_header(draw, name) for name in table_names[:num_bodies]]
    packed = [FunctionInfo(FuncKind.PACKED, name) for name in table_names[num_bodies:]
              if not name.startswith("vm.builtin.")]  # fmt: skip
    order = draw(st.permutations(range(len(headers) + len(packed))))
    table = [(*headers, *packed)[i] for i in order]
    words: list[int] = []
    offsets: list[int] = []
    for header in headers:
        start = len(offsets)
        for instr in _body(draw, header, table, len(pool)):
            offsets.append(len(words))
            words += isa.encode(instr)
        table[table.index(header)] = FunctionInfo(
            FuncKind.BYTECODE, header.name, start, len(offsets), header.num_args,
            header.register_file_size, header.param_names,
        )  # fmt: skip
    tensors_at = [i for i, value in enumerate(pool) if isinstance(value, np.ndarray)]
    scoped = draw(st.lists(st.sampled_from(tensors_at), unique=True)) if tensors_at else []
    return VMExecutable(table, pool, offsets, words, dict.fromkeys(scoped, "global"))


def _header(draw: st.DrawFn, name: str) -> FunctionInfo:
    params = draw(st.lists(names(), max_size=3, unique=True))
    registers = len(params) + draw(st.integers(0, 4))
    return FunctionInfo(FuncKind.BYTECODE, name, 0, 0, len(params), registers, tuple(params))


def _body(
    draw: st.DrawFn, header: FunctionInfo, table: Sequence[FunctionInfo], num_constants: int
) -> list[Instruction]:
    size = draw(st.integers(1, 8))
    body = []
    for pc in range(size):
        last = pc == size - 1
        kinds = ["ret"]
        if table and not last:
            kinds += ["call"] * 4
        if pc > 0 or not last:
            kinds.append("goto")
        if pc + 2 < size and header.register_file_size:
            kinds.append("if")
        name = draw(st.sampled_from(kinds))
        fields: tuple[int, ...]
        args: tuple[Arg, ...] = ()
        if name == "call":
            index = draw(st.integers(0, len(table) - 1))
            fields = (draw(_registers(header, isa.VOID_REGISTER)), index)
            known = table[index].num_args if table[index].kind == FuncKind.BYTECODE else None
            count = draw(st.integers(0, 5)) if known is None else known
            args = tuple(_argument(draw, header, len(table), num_constants) for _ in range(count))
        elif name == "ret":
            fields = (draw(_registers(header, isa.VOID_REGISTER)),)
        elif name == "goto":
            targets = [t for t in range(size) if t != pc]
            fields = (draw(st.sampled_from(targets)) - pc,)
        else:
            cond = draw(st.integers(0, header.register_file_size - 1))
            fields = (cond, draw(st.integers(pc + 2, size - 1)) - pc)
        body.append(Instruction(isa.OP_BY_NAME[name], fields, args))
    return body


def _registers(header: FunctionInfo, special: int) -> st.SearchStrategy[int]:
    plain = st.integers(0, header.register_file_size - 1) if header.register_file_size else None
    return st.just(special) if plain is None else plain | st.just(special)


def _argument(draw: st.DrawFn, header: FunctionInfo, num_funcs: int, num_constants: int) -> Arg:
    kinds = [ArgKind.REGISTER, ArgKind.IMMEDIATE, ArgKind.FUNCTION]
    if num_constants:
        kinds.append(ArgKind.CONSTANT)
    kind = draw(st.sampled_from(kinds))
    if kind == ArgKind.REGISTER:
        special = draw(st.sampled_from([isa.VOID_REGISTER, isa.VM_REGISTER]))
        return Arg(kind, draw(_registers(header, special)))
    if kind == ArgKind.IMMEDIATE:
        return Arg(kind, draw(st.integers(isa.VALUE_MIN, isa.VALUE_MAX)))
    count = num_funcs if kind == ArgKind.FUNCTION else num_constants
    return Arg(kind, draw(st.integers(0, count - 1)))


# Runnable programs

KINDS = ("tensor", "tensor", "int", "bool", "shape", "tuple", "float", "str")

LITERALS: dict[str, tuple[Any, ...]] = {
    "int": (0, 1, 2, -1, 3),
    "bool": (True, False),
    "float": (0.5, -0.0),
    "str": ("s",),
    "shape": (Shape((2, 2)), Shape((4,)), Shape(())),
    "tensor": (np.ones((2, 2), np.float32), np.asarray(1, np.int32)),
}


SHAPE_PROGRAMS = (
    shape_program.encode([("load", 0), ("load", 1), "mul", ("store", 2)]),
    shape_program.encode([("load", 0), ("const", 1), "add", ("store", 0),
                          ("load", 1), ("load", 0), "floordiv", ("store", 1)]),
    shape_program.encode([("load", 2), ("load", 2), "mul", ("store", 2)]),
)  # fmt: skip
"""Some divide by zero, or overflow when they run again and again."""


@dataclass(frozen=True)
class Program:
    """A program and its inputs.

    Attributes:
        executable: the program; the entry function is ``main``.
        inputs: a description of the arguments, from which `args` makes new ones.
    """

    executable: VMExecutable
    inputs: tuple[Any, ...]

    def args(self) -> tuple[Any, ...]:
        return tuple(x.copy() if isinstance(x, np.ndarray) else x for x in self.inputs)

    def __repr__(self) -> str:
        return f"Program of\n{self.executable.as_text()}with {self.inputs!r}"


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Programs that terminate: loops count down, the first argument bounds recursion.

    ``main`` calls functions that come later; a function may call itself.  Some paths end in
    errors, of builtins, kernels or conditions.  Tensors are written before they are read, so that
    results do not depend on what memory held before.
    """
    asm = Asm()
    kinds = st.lists(st.sampled_from(KINDS), min_size=1, max_size=3)
    params = draw(st.lists(kinds, min_size=1, max_size=3))
    functions = [("main" if i == 0 else f"f{i}", p) for i, p in enumerate(params)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RelaxVMWarning)
        asm.forward(*[name for name, _ in functions])
        for i, (name, p) in enumerate(functions):
            with asm.func(name, len(p)):
                _Writer(draw, asm, name, p, functions[i + 1 :]).write()
        executable = asm.get()
    return Program(executable, tuple(draw(inputs_of_kind(kind)) for kind in params[0]))


def inputs_of_kind(kind: str) -> st.SearchStrategy[Any]:
    """Arguments for a program: small values, tensors of a few shapes."""
    tensor = st.builds(
        _small_tensor,
        st.sampled_from([(), (1,), (2,), (2, 2)]),
        st.sampled_from(["float32", "int32", "int64", "bool"]),
        st.integers(-2, 3),
    )
    return {
        "tensor": tensor,
        "int": st.integers(-1, 4),
        "bool": st.booleans(),
        "shape": st.sampled_from([Shape(()), Shape((2,)), Shape((2, 2)), Shape((1, 0))]),
        "tuple": st.tuples(tensor, st.integers(0, 2)),
        "float": st.sampled_from([0.0, 1.5, -2.0]),
        "str": st.sampled_from(["", "x"]),
    }[kind]


def _small_tensor(shape: tuple[int, ...], dtype: str, start: int) -> np.ndarray:
    size = int(np.prod(shape, dtype=int))
    return (np.arange(size).reshape(shape) + start).astype(dtype)


class _Writer:
    """Writes the body of one function.

    It records for each register the kind of value that was stored last in listing order, and
    prefers registers of the kind that a call expects.  After jumps the guess may be wrong, which is
    welcome.  Registers that control loops and recursion are not in `kinds`, so that nothing
    overwrites them.
    """

    MAX_REGISTERS = 14

    def __init__(
        self, draw: st.DrawFn, asm: Asm, name: str, params: list[str],
        later: list[tuple[str, list[str]]],
    ) -> None:  # fmt: skip
        self.draw = draw
        self.asm = asm
        self.name = name
        self.params = params
        self.later = later
        self.kinds: dict[int, str] = dict(enumerate(params))
        self.next_register = len(params)
        self.next_private = 100

    # Choices

    def chance(self, one_in: int) -> bool:
        return self.draw(st.integers(0, one_in - 1)) == one_in - 1

    def choose(self, options: Sequence[Any]) -> Any:
        return options[self.draw(st.integers(0, len(options) - 1))]

    def any_register(self) -> Reg:
        return Reg(self.choose(sorted(self.kinds)))

    def register(self, *kinds: str) -> Reg:
        """A register that probably holds one of the kinds; sometimes, any register."""
        fitting = sorted(r for r, kind in self.kinds.items() if kind in kinds)
        if self.kinds and self.chance(40):
            return self.any_register()
        if fitting:
            return Reg(self.choose(fitting))
        literals = self.literals(*kinds)
        if not literals:
            return self.any_register()
        dst = self.destination(kinds[0])
        self.asm.op(dst, ".copy", self.choose(literals))
        return dst

    def operand(self, *kinds: str) -> Any:
        """A register or a constant of one of the kinds."""
        literals = self.literals(*kinds)
        if literals and self.chance(3):
            return self.choose(literals)
        return self.register(*kinds)

    @staticmethod
    def literals(*kinds: str) -> list[Any]:
        return [value for kind in kinds for value in LITERALS.get(kind, ())]

    def destination(self, kind: str) -> Reg:
        """A destination for a result: a new register, or one to be overwritten."""
        if self.kinds and (self.next_register >= self.MAX_REGISTERS or self.chance(3)):
            index = self.choose(sorted(self.kinds))
        else:
            index = self.next_register
            self.next_register += 1
        self.kinds[index] = kind
        return Reg(index)

    def private(self) -> Reg:
        self.next_private += 1
        return Reg(self.next_private)

    def emit(self, kind: str, name: str, *args: Any) -> None:
        """Emit a call whose result is of `kind`; sometimes the result is discarded."""
        dst = None if self.chance(12) else self.destination(kind)
        self.asm.op(dst, name, *args)

    # Statements

    def write(self) -> None:
        if self.params[0] == "int" and self.chance(2):
            self.recurse()
        self.block(self.draw(st.integers(1, 9)), depth=0)
        if self.chance(2):
            values = [self.any_register() for _ in range(self.draw(st.integers(0, 4)))]
            dst = self.destination("tuple")
            self.asm.op(dst, ".make_tuple", *values)
            self.asm.ret(dst)
        else:
            self.asm.ret(VOID if self.chance(12) else self.any_register())

    def block(self, size: int, depth: int) -> None:
        for _ in range(size):
            options: list[Callable[[], None]] = [
                self.arithmetic, self.arithmetic, self.tuples, self.shapes, self.checks,
                self.allocate, self.move, self.call, self.closure, self.heap, self.data,
            ]  # fmt: skip
            if depth < 2:
                options += [lambda: self.branch(depth), lambda: self.loop(depth), self.skip_into]
            self.choose(options)()

    def arithmetic(self) -> None:
        kind = self.choose(("int", "tensor"))
        choice = self.draw(st.integers(0, 7))
        if choice < 3:
            name = self.choose(("add", "sub"))
            self.emit(kind, name, self.operand(kind), self.operand(kind))
        elif choice == 3:
            self.emit(kind, self.choose(("neg", "identity")), self.register(kind))
        elif choice == 4:
            self.emit("bool", "less", self.operand("int"), self.operand("int"))
        elif choice == 5:
            self.emit("tensor", self.choose(("sum", "clone", "bump")), self.register("tensor"))
        elif choice == 6:
            self.emit("bool", self.choose(("is_none", "not")), self.any_register())
        else:
            self.emit("bool", "same", self.any_register(), self.any_register())

    def tuples(self) -> None:
        choice = self.draw(st.integers(0, 3))
        if choice == 0:
            values = [self.operand(self.choose(KINDS)) for _ in range(self.draw(st.integers(0, 3)))]
            self.emit("tuple", ".make_tuple", *values)
        elif choice == 1:
            index = self.operand("int") if self.chance(4) else self.draw(st.integers(0, 2))
            self.emit(self.choose(KINDS), ".tuple_getitem", self.register("tuple"), index)
        elif choice == 2:
            self.emit("tuple", "extend", self.register("tuple"), self.register("tuple"))
        else:
            name = self.choose(("pack", "count", "last"))
            self.emit("tuple", name, self.any_register(), self.operand("int"), self.any_register())

    def shapes(self) -> None:
        choice = self.draw(st.integers(0, 4))
        if choice == 0:
            self.emit("shape", ".shape_of", self.register("tensor"))
        elif choice == 1:
            self.emit("tensor", ".reshape", self.register("tensor"), self.operand("shape"))
        elif choice == 2:
            self.emit("shape", ".tensor_to_shape", self.register("tensor"))
        elif choice == 3:
            dims = [(0, self.draw(st.integers(0, 3))) for _ in range(self.draw(st.integers(0, 3)))]
            self.emit("shape", ".make_shape", VOID, len(dims), *[w for dim in dims for w in dim])
        else:
            self.emit("int", "dim", self.operand("shape"), self.draw(st.integers(0, 1)))

    def heap(self) -> None:
        """Use the shape heap; make one the first time."""
        if "heap" not in self.kinds.values():
            self.asm.op(self.destination("heap"), ".alloc_shape_heap", VM, 3)
            return
        heap = self.register("heap")
        choice = self.draw(st.integers(0, 4))
        if choice == 0:
            codes = [self.match_code() for _ in range(self.draw(st.integers(0, 2)))]
            x = self.register("tensor", "shape")
            flat = [w for code in codes for w in code]
            self.asm.op(None, ".match_shape", x, heap, len(codes), *flat, "match ")
        elif choice == 1:
            slots = [self.draw(st.integers(0, 2)) for _ in range(self.draw(st.integers(1, 2)))]
            flat = [w for slot in slots for w in (1, slot)]
            self.emit("shape", ".make_shape", heap, len(slots), *flat)
        elif choice == 2:
            code = self.match_code()
            self.asm.op(None, ".match_prim_value", self.register("int"), heap, *code, "prim ")
        elif choice == 3:
            self.emit("int", ".make_prim_value", heap, 1, self.draw(st.integers(0, 2)))
        elif self.chance(2):
            self.asm.op(None, "double_slot", heap, 0, 1)
        else:
            program = self.choose(SHAPE_PROGRAMS)
            self.asm.op(None, "relaxvm.builtin.compute_shape", heap, program)

    def match_code(self) -> tuple[int, int]:
        """Equal to an immediate, store, ignore, equal to a slot."""
        code = self.draw(st.integers(0, 3))
        return code, self.draw(st.integers(0, 2))

    def checks(self) -> None:
        choice = self.draw(st.integers(0, 5))
        if choice <= 1:
            rank = self.draw(st.integers(-1, 2))
            dtype = np.dtype(self.choose(("float32", "int32")))
            x = self.register("tensor")
            self.asm.op(None, ".check_tensor_info", x, rank, dtype, "check ")
            if choice == 1 and "heap" in self.kinds.values():
                heap = self.register("heap")
                self.asm.op(None, ".match_shape", x, heap, 2, 1, 0, *self.match_code(), "match ")
        elif choice == 2:
            self.asm.op(None, ".check_shape_info", self.register("shape"),
                        self.draw(st.integers(-1, 2)), "check ")  # fmt: skip
        elif choice == 3:
            self.asm.op(None, ".check_tuple_info", self.register("tuple"),
                        self.draw(st.integers(0, 3)), "check ")  # fmt: skip
        elif choice == 4:
            self.asm.op(None, ".check_func_info", self.register("closure"), "check ")
        else:
            dtype = np.dtype(self.choose(("int64", "float32", "bool")))
            x = self.register("int", "float", "bool")
            self.asm.op(None, ".check_prim_value_info", x, dtype, "check ")

    def data(self) -> None:
        """A value of a data type, its tag, and perhaps a field."""
        own = "relaxvm.builtin."
        value = self.private()
        fields = [self.operand(self.choose(KINDS)) for _ in range(self.draw(st.integers(0, 3)))]
        self.asm.op(value, f"{own}make_adt", "T.C", self.draw(st.integers(0, 2)), *fields)
        self.emit("int", f"{own}adt_tag", value)
        if self.chance(3):
            count = self.draw(st.integers(0, 3)) if self.chance(8) else len(fields)
            self.emit("int", f"{own}match_tag", value, *("T.C", count) * 3)
        if not fields and not self.chance(12):
            return
        index = self.draw(st.integers(0, max(0, len(fields) - (not self.chance(12)))))
        self.emit("any", f"{own}adt_field", value, index)
        self.emit("bool", f"{own}tag_is", self.operand("int"), self.draw(st.integers(0, 2)))

    def allocate(self) -> None:
        """A tensor in its own memory, filled immediately; sometimes made in another way."""
        shape = self.choose((Shape((2, 2)), Shape((3,)), Shape(())))
        dtype = np.dtype(self.choose(("float32", "int32")))
        storage, uint8 = self.private(), np.dtype("uint8")
        dst = self.destination("tensor")
        size = 64 if self.chance(3) else int(np.prod(shape, dtype=int)) * 4
        self.asm.op(storage, ".alloc_storage", VM, Shape((size,)), 0, uint8, "global")
        if self.chance(4):
            self.asm.op(storage, ".copy", storage)
        offset = 8 * self.draw(st.integers(0, 1)) if self.chance(3) else 0
        self.asm.op(dst, ".alloc_tensor", storage, offset, shape, dtype, "global")
        if not self.chance(4):
            self.asm.op(storage, ".null_value")
        self.asm.op(None, "fill", dst, self.operand("int") if self.chance(3) else 1)

    def move(self) -> None:
        source = self.any_register()
        kind = self.kinds[source.index]
        choice = self.draw(st.integers(0, 5))
        if choice <= 2:
            self.asm.op(self.destination(kind), ".copy", source)
        elif choice == 3:
            self.asm.op(self.destination("none"), ".null_value")
        elif choice == 4:
            self.emit("bool", ".read_if_cond", self.register("bool", "int", "tensor"))
        else:
            literal = self.choose((1, 2.5, "s", Shape((2,)), np.dtype("int32"), 2**60, None, True))
            self.asm.op(self.destination("any"), ".copy", literal)

    def call(self) -> None:
        """A call of a later function, a kernel as a value, or a kernel that fails."""
        if self.later and not self.chance(6):
            name, params = self.choose(self.later)
            args = [self.operand(kind) for kind in params]
            if self.chance(12):
                args[-1] = VOID
            self.emit(self.choose(KINDS), name, *args)
        elif self.chance(3):
            self.asm.op(None, "fail", "failed on purpose")
        else:
            self.emit("tensor", "apply", Func("test.add"), self.operand("int"), self.operand("int"))

    def closure(self) -> None:
        """Make a closure, or call one directly or through a kernel."""
        if "closure" not in self.kinds.values() or self.chance(2):
            target: Any = self.register("closure")
            if not self.chance(3) or "closure" not in self.kinds.values():
                later = [Func(name) for name, _ in self.later]
                target = self.choose([Func("test.pack"), Func("test.add"), *later])
            captured = [self.any_register() for _ in range(self.draw(st.integers(0, 2)))]
            self.asm.op(self.destination("closure"), ".make_closure", target, *captured)
            return
        args = [self.operand(self.choose(KINDS)) for _ in range(self.draw(st.integers(0, 2)))]
        closure = self.register("closure")
        if self.chance(4):
            self.emit(self.choose(KINDS), "apply", closure, *args)
        else:
            self.emit(self.choose(KINDS), ".invoke_closure", VM, closure, *args)

    # Control flow

    def condition(self) -> Reg:
        """A register for If: a fused candidate, a plain int or bool, or something wrong."""
        if self.chance(2):
            x = self.operand("bool", "int", "tensor")
            dst = self.destination("bool")
            self.asm.op(dst, ".read_if_cond", x)
            return dst
        return self.register("bool", "int")

    def branch(self, depth: int) -> None:
        orelse, done = self.asm.label(), self.asm.label()
        self.asm.iff(self.condition(), orelse)
        self.block(self.draw(st.integers(1, 3)), depth + 1)
        if self.chance(6):
            self.asm.ret(self.any_register())
        else:
            self.asm.go(done)
        self.asm.bind(orelse)
        self.block(self.draw(st.integers(1, 3)), depth + 1)
        self.asm.bind(done)
        self.asm.op(self.private(), ".null_value")

    def loop(self, depth: int) -> None:
        count, at_end = self.private(), self.private()
        head, body, done = self.asm.label(), self.asm.label(), self.asm.label()
        self.asm.op(count, ".copy", self.draw(st.integers(0, 3)))
        self.asm.bind(head)
        self.asm.op(at_end, "is_zero", count)
        self.asm.iff(at_end, body)
        self.asm.go(done)
        self.asm.bind(body)
        self.block(self.draw(st.integers(1, 3)), depth + 1)
        self.asm.op(count, "sub", count, 1)
        self.asm.go(head)
        self.asm.bind(done)
        self.asm.op(self.private(), ".null_value")

    def skip_into(self) -> None:
        """Jump into the middle of a group that the core may fuse."""
        enter, middle = self.asm.label(), self.asm.label()
        x = self.register("tensor", "int", "bool")
        first = self.operand("bool", "int")
        flag = self.destination("bool")
        self.asm.op(flag, ".copy", first)
        self.asm.iff(self.condition(), enter)
        self.asm.go(middle)
        self.asm.bind(enter)
        if self.chance(2):
            self.asm.op(None, ".check_tensor_info", x, -1, np.dtype("float32"), "check ")
            self.asm.bind(middle)
            self.asm.op(None, ".match_shape", x, VOID, 1, 2, 0, "match ")
        else:
            done = self.asm.label()
            self.asm.op(flag, ".read_if_cond", x)
            self.asm.bind(middle)
            self.asm.iff(flag, done)
            self.asm.op(self.destination("bool"), ".copy", flag)
            self.asm.bind(done)
            self.asm.op(self.private(), ".null_value")

    def recurse(self) -> None:
        """``if p0 < 1: return p0; r = self(p0 - 1, ...)``, where nothing else writes p0."""
        deeper, small, less = self.asm.label(), self.private(), self.private()
        del self.kinds[0]
        self.asm.op(small, "less", Reg(0), 1)
        self.asm.iff(small, deeper)
        self.asm.ret(Reg(0))
        self.asm.bind(deeper)
        self.asm.op(less, "sub", Reg(0), 1)
        rest = [Reg(i) for i in range(1, len(self.params))]
        self.asm.op(self.destination("any"), self.name, less, *rest)
