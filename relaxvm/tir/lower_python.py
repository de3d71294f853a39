"""Lowering of PrimFuncs to Python.  Innermost loops with independent iterations become numpy
operations on arrays, other loops Python loops.

Results are the same as in C, except in the last bits of functions such as sin and of all float64
arithmetic, which are computed by numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

import numpy as np

from ..core.checkpoints import checkpoint
from ..ir import prim
from ..ir.arith import substitute
from ..ir.expr import Call, Expr, FloatImm, IntImm, Var
from ..ir.node import Node
from ..ir.prim import is_float
from .buffer import Buffer, BufferLoad
from .c_prelude import bits_of
from .c_writer import Names
from .facts import Facts
from .intrinsics import CLZ, IF_THEN_ELSE, INTRINSICS, LIKELY, POPCOUNT, REINTERPRET, RET
from .lower_c import longest_of
from .normalize import (
    Dim,
    Kernel,
    interchange,
    is_affine_step,
    is_parallel,
    loads_of,
    nest_of,
    same_indices,
    uses,
)
from .stmt import (
    AssertStmt,
    Bind,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    SeqStmt,
    Stmt,
    While,
)
from .visitor import Visitor

__all__ = ["python_source", "unproved_in_python"]

NARROW: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
"""Integer data types that are computed exactly, as Python integers or int64 arrays."""


BLOCK: Final = 1 << 16
"""The most iterations of a loop that are one operation on arrays."""


class _Text(NamedTuple):
    """An expression as text.  `exact`: its value is a Python integer or an int64 array, not a value
    of its numpy data type; `vector`: it is an array."""

    code: str
    exact: bool
    vector: bool = False


class _Vector(NamedTuple):
    """The vectorized loop: its variable, first value and number of iterations, and the name of the
    array of its values."""

    var: Var
    first: str
    length: str
    array: str


def python_source(kernel: Kernel) -> str:
    """Return the Python text of a kernel.  It defines `function`, a `PythonFunction`, and is
    executed in the namespace of `python_runtime`.

    Raises:
        NotImplementedError: an expression cannot be expressed in Python.
    """
    return _Writer(kernel).text()


def unproved_in_python(kernel: Kernel) -> list[str]:
    """Return the buffers and dimensions of accesses that are not proved to be in bounds, and so are
    checked at run time.

    Raises:
        NotImplementedError: as `python_source`.
    """
    writer = _Writer(kernel)
    writer.text()
    return list(writer.unproved)


class _Writer:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._names = Names()
        self._facts = Facts()
        for var in (*(p.var for p in kernel.params), *kernel.dims):
            self._names.of(var)
        for dim in kernel.dims:
            self._facts.bind_dim(dim)
        self._lines: list[str] = []
        self._depth = 1
        self._constants: dict[tuple[str, str], str] = {}
        self._bound: dict[Var, _Text] = {}
        self._vector: _Vector | None = None
        self._nest: dict[Var, str] = {}
        """The variables of loops that are one operation, outermost first, and their slices."""
        self._slices = True
        self._used_array = False
        self.unproved: dict[str, None] = {}

    def text(self) -> str:
        kernel = self._kernel
        for i, p in enumerate(kernel.params):
            for d, dim in enumerate(p.dims or ()):
                if _dim_of(dim, kernel) == ("free", 0):
                    length = f"{self._names.of(p.var)}.shape[{d}]"
                    self._line(f"check_dim({kernel.name!r}, {i}, {p.name!r}, {d}, {length}, "
                               f"{self._index(dim.value)})")  # fmt: skip
        for buffer in kernel.allocs:
            dims = "".join(f"{self._index(dim)}, " for dim in buffer.ty.shape)
            self._line(f"{self._names.of(buffer)} = allocate({kernel.name!r}, {buffer.name!r}, "
                       f"({dims}), {self._dtype(buffer.ty.dtype)})")  # fmt: skip
        self.statement(interchange(kernel.body, always=True))
        names = [self._names.of(v) for v in (*(p.var for p in kernel.params), *kernel.dims)]
        params = tuple(
            (p.name, p.dtype, None if p.dims is None else tuple(_dim_of(d, kernel) for d in p.dims),
             p.written)
            for p in kernel.params
        )  # fmt: skip
        variables = tuple((dim.name, longest_of(dim)) for dim in kernel.dims)
        constants = [f"{name} = {text}" for (_, text), name in self._constants.items()]
        return "\n".join([
            *constants,
            "",
            f"def body({', '.join(names)}):",
            *(self._lines or ["    pass"]),
            "",
            f"function = PythonFunction({kernel.name!r}, {params!r}, {variables!r}, body)",
            "",
        ])  # fmt: skip

    # Statements

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def statement(self, stmt: Stmt) -> None:
        """Write a statement."""
        checkpoint()
        _STATEMENTS[type(stmt)](self, stmt)

    def _block(self, stmt: Stmt) -> None:
        self._depth += 1
        before = len(self._lines)
        self.statement(stmt)
        if len(self._lines) == before:
            self._line("pass")
        self._depth -= 1

    def _seq(self, stmt: SeqStmt) -> None:
        for part in stmt.seq:
            self.statement(part)

    def _for(self, loop: For) -> None:
        nest = _elementwise_nest(loop)
        if nest and self._is_in_bounds(nest):
            self._whole_nest(nest)
            return
        if is_parallel(loop):
            self._vectorized(loop)
            return
        least, extent = self._index(loop.min), self._index(loop.extent)
        first = f"{least}, " if least != "0" or loop.step is not None else ""
        stop = extent if least == "0" else f"{least} + {extent}"
        step = ""
        if loop.step is not None:
            step = f", {self._index(loop.step)}"
            if type(loop.step) is not IntImm:
                place = f"{self._kernel.name}: loop {loop.loop_var.name}"
                self._line(f"step = {self._index(loop.step)}")
                self._line(f"if step <= 0: raise ValueError({place!r} + f': the step is {{step}}')")
        self._line(f"for {self._names.of(loop.loop_var)} in range({first}{stop}{step}):")
        self._line("    check_time()")
        with self._facts.loop(loop.loop_var, loop.min, loop.extent):
            self._block(loop.body)

    def _is_in_bounds(self, nest: list[For]) -> bool:
        """Whether all accesses of a nest are proved to be in bounds."""
        with ExitStack() as facts:
            for loop in nest:
                facts.enter_context(self._facts.loop(loop.loop_var, loop.min, loop.extent))
            store = nest[-1].body
            assert isinstance(store, BufferStore)
            places = [(store.buffer, store.indices)]
            places += [(load.buffer, load.indices) for load in loads_of(store.value)]
            return all(
                self._facts.in_bounds(index, dim)
                for buffer, indices in places
                for index, dim in zip(indices, buffer.ty.shape, strict=True)
            )

    def _whole_nest(self, nest: list[For]) -> None:
        """Write loops over elements as operations on arrays of as many dimensions, in blocks of the
        outermost one."""
        outer, *inner = nest
        elements = math.prod(_length(loop) for loop in inner)
        name = self._names.of(outer.loop_var)
        first, count = f"{name}first", f"{name}count"
        rows = max(1, BLOCK // elements)
        self._line(f"{name}to = {self._index(outer.extent)}")
        self._line(f"for {first} in range(0, {name}to, {rows}):")
        self._depth += 1
        self._line("check_time()")
        self._line(f"{count} = min({rows}, {name}to - {first})")
        self._nest = {outer.loop_var: f"{first}:{first} + {count}"}
        self._nest |= {loop.loop_var: f":{_length(loop)}" for loop in inner}
        with ExitStack() as facts:
            for loop in nest:
                facts.enter_context(self._facts.loop(loop.loop_var, loop.min, loop.extent))
            self.statement(inner[-1].body)
        self._nest = {}
        self._depth -= 1

    def _of_nest(self, name: str, indices: tuple[Expr, ...]) -> _Text:
        """Elements in a nest: a slice for each variable, and an axis of length 1 for each that the
        indices do not have."""
        parts: list[str] = []
        left = list(self._nest)
        for index in indices:
            if index not in self._nest:
                parts.append(self.expression(index).code)
                continue
            while left[0] is not index:
                left.pop(0)
                parts.append("None")
            parts.append(self._nest[left.pop(0)])
        parts += ["None"] * len(left)
        return _Text(f"{name}[{', '.join(parts)}]", False, True)

    def _vectorized(self, loop: For) -> None:
        """Write a loop with independent iterations as operations on arrays.  Long loops are done in
        blocks, with a look at the clock before each."""
        name = self._names.of(loop.loop_var)
        first, count, array = f"{name}first", f"{name}count", f"{name}all"
        self._line(f"{name}from = {self._index(loop.min)}")
        self._line(f"{name}to = {name}from + {self._index(loop.extent)}")
        self._line(f"for {first} in range({name}from, {name}to, {BLOCK}):")
        self._depth += 1
        self._line("check_time()")
        self._line(f"{count} = min({BLOCK}, {name}to - {first})")
        self._vector, self._used_array = _Vector(loop.loop_var, first, count, array), False
        at = len(self._lines)
        with self._facts.loop(loop.loop_var, loop.min, loop.extent):
            self.statement(loop.body)
        if self._used_array:
            line = f"{'    ' * self._depth}{array} = np.arange({first}, {first} + {count})"
            self._lines.insert(at, line)
        self._vector = None
        self._depth -= 1

    def _while(self, stmt: While) -> None:
        self._line(f"while {self.expression(stmt.condition).code}:")
        self._line("    check_time()")
        self._block(stmt.body)

    def _if(self, stmt: IfThenElse) -> None:
        self._line(f"if {self.expression(stmt.condition).code}:")
        with self._facts.given(stmt.condition, True):
            self._block(stmt.then_case)
        if stmt.else_case is not None:
            self._line("else:")
            with self._facts.given(stmt.condition, False):
                self._block(stmt.else_case)

    def _bind(self, stmt: Bind) -> None:
        value, name = self.expression(stmt.value), self._names.of(stmt.var)
        self._facts.forget(stmt.var)
        self._bound[stmt.var] = value._replace(code=name)
        self._line(f"{name} = {value.code}")

    def _assert(self, stmt: AssertStmt) -> None:
        message = "".join(part.value for part in stmt.message_parts)
        self._line(f"if not {self.expression(stmt.condition).code}:")
        self._line(f"    raise error({stmt.kind.value!r}, {f'{self._kernel.name}: {message}'!r})")

    def _evaluate(self, stmt: Evaluate) -> None:
        value = stmt.value
        if isinstance(value, Call) and value.op is RET:
            dtype = value.args[0].dtype
            kind = "float" if is_float(dtype) else "bool" if dtype == "bool" else "int"
            self._line(f"return {kind}({self.expression(value.args[0]).code})")

    def _store(self, stmt: BufferStore) -> None:
        value = self.expression(stmt.value)
        element = self._element(stmt.buffer, stmt.indices)
        self._line(f"{element.code} = {value.code}")

    # Memory

    def _element(self, buffer: Buffer, indices: Iterable[Expr]) -> _Text:
        """Elements of a buffer; indices that are not provably in bounds are checked."""
        indices = tuple(indices)
        vector = self._vector
        name = self._names.of(buffer)
        if any(index in self._nest for index in indices):
            return self._of_nest(name, indices)
        depends = [] if vector is None else [i for i in indices if self._is_vector(i)]
        parts = []
        for d, (index, dim) in enumerate(zip(indices, buffer.ty.shape, strict=True)):
            where = f"{self._kernel.name}: buffer {buffer.name}, dimension {d}"
            place = repr(where)
            proven = self._facts.in_bounds(index, dim)
            if not proven:
                self.unproved[where] = None
            if vector is not None and index in depends and self._is_span(index, depends):
                start = self._start(index)
                if proven:
                    parts.append(f"{start}:{start} + {vector.length}")
                else:
                    parts.append(f"span({start}, {vector.length}, {self._index(dim)}, {place})")
                continue
            text = self.expression(index)
            parts.append(text.code if proven else f"at({text.code}, {self._index(dim)}, {place})")
        return _Text(f"{name}[{', '.join(parts) or '()'}]", False, bool(depends))

    def _is_vector(self, e: Expr) -> bool:
        """Whether the value of an expression is an array."""
        assert self._vector is not None
        return uses(e, self._vector.var)

    def _is_span(self, index: Expr, depends: list[Expr]) -> bool:
        assert self._vector is not None
        return (
            self._slices
            and len(depends) == 1
            and is_affine_step(index, self._vector.var)
            and self._facts.fits(index)
        )

    def _start(self, index: Expr) -> str:
        """An index at the first iteration."""
        assert self._vector is not None
        if index is self._vector.var:
            return self._vector.first
        var = self._vector.var
        first = Var(self._vector.first, var.ty)
        self._bound[first] = _Text(self._vector.first, True)
        self._facts.copy(first, var)
        return f"({self._index(substitute(index, {var: first}))})"

    # Expressions

    def _index(self, e: Expr) -> str:
        """An integer expression as an exact integer."""
        text = self.expression(e)
        return text.code if text.exact else f"exact({text.code})"

    def expression(self, e: Expr) -> _Text:
        """An expression as text that needs no parentheses around it."""
        kind = type(e)
        if isinstance(e, Buffer):
            raise NotImplementedError(f"{self._kernel.name}: buffer {e.name} is used as a value")
        if isinstance(e, Var):
            return self._var(e)
        if isinstance(e, IntImm):
            if e.dtype == "bool":
                return _Text(str(bool(e.value)), False)
            if e.dtype in NARROW:
                return _Text(f"({e.value})" if e.value < 0 else str(e.value), True)
            return _Text(self._constant(e.dtype, str(e.value)), False)
        if isinstance(e, FloatImm):
            return _Text(self._constant(e.dtype, _float_text(e.value)), False)
        if isinstance(e, BufferLoad):
            return self._element(e.buffer, e.indices)
        if isinstance(e, Call):
            return self._call(e)
        method = _EXPRESSIONS.get(kind)
        if method is None:
            raise NotImplementedError(
                f"{self._kernel.name}: expressions of class {kind.__name__} cannot be lowered"
            )
        return method(self, e)

    def _var(self, var: Var) -> _Text:
        vector = self._vector
        if vector is not None and var is vector.var:
            self._used_array = True
            return _Text(vector.array, True, True)
        bound = self._bound.get(var)
        if bound is not None:
            return bound
        return _Text(self._names.of(var), var.ty.dtype in NARROW)

    def _dtype(self, dtype: str) -> str:
        """A numpy data type, as the name of a constant."""
        key = (dtype, f"dtype({dtype!r})")
        return self._constants.setdefault(key, f"t_{dtype}")

    def _constant(self, dtype: str, text: str) -> str:
        kind = f"{self._dtype(dtype)}.type"
        key = (dtype, f"{kind}({text})")
        return self._constants.setdefault(key, f"c{len(self._constants)}")

    def _typed(self, text: _Text, dtype: str) -> str:
        """A value converted to its numpy data type."""
        return f"typed({text.code}, {self._dtype(dtype)})" if text.exact else text.code

    def _wrapped(self, code: str, e: Expr, vector: bool) -> _Text:
        fits = self._facts.fits(e)
        return _Text(f"({code})" if fits else f"wrap({code}, {e.dtype!r})", True, vector)

    def _operands(self, e: Any) -> tuple[str, str, bool, bool]:
        """Two operands, both exact or both numpy values; whether exact; whether one is an array."""
        a, b = self.expression(e.a), self.expression(e.b)
        vector = a.vector or b.vector
        if a.exact and b.exact:
            return a.code, b.code, True, vector
        dtype = e.a.dtype
        if dtype == "bool":
            return a.code, b.code, False, vector
        return self._typed(a, dtype), self._typed(b, dtype), False, vector

    def _arithmetic(self, e: Any) -> _Text:
        a, b, exact, vector = self._operands(e)
        code = f"{a} {e.SYMBOL} {b}"
        return self._wrapped(code, e, vector) if exact else _Text(f"({code})", False, vector)

    def _divide(self, e: Any) -> _Text:
        a, b, exact, vector = self._operands(e)
        kind = {prim.Div: "truncdiv", prim.Mod: "truncmod", prim.FloorDiv: "floordiv",
                prim.FloorMod: "floormod"}[type(e)]  # fmt: skip
        if is_float(e.dtype):
            code = {
                "truncdiv": f"({a} / {b})",
                "truncmod": f"np.fmod({a}, {b})",
                "floordiv": f"np.floor({a} / {b})",
                "floormod": f"float_mod({a}, {b})",
            }[kind]
            return _Text(code, False, vector)
        if exact and kind.startswith("floor") and self._facts.is_nonzero(e.b):
            return self._wrapped(f"{a} {'//' if kind == 'floordiv' else '%'} {b}", e, vector)
        code = f"divide({kind!r}, {a}, {b}, {self._kernel.name!r})"
        return self._wrapped(code, e, vector) if exact else _Text(code, False, vector)

    def _extreme(self, e: Any) -> _Text:
        a, b, exact, vector = self._operands(e)
        is_max = type(e) is prim.Max
        if exact:
            return _Text(f"{'greatest' if is_max else 'least'}({a}, {b})", True, vector)
        return _Text(f"{'maximum' if is_max else 'minimum'}({a}, {b})", False, vector)

    def _bitwise(self, e: Any) -> _Text:
        a, b, exact, vector = self._operands(e)
        return _Text(f"({a} {e.SYMBOL} {b})", exact, vector)

    def _shift(self, e: Any) -> _Text:
        a, b = self.expression(e.a), self.expression(e.b)
        name = "left_shift" if type(e) is prim.LShift else "right_shift"
        code = f"np.{name}({self._typed(a, e.dtype)}, {self._typed(b, e.dtype)})"
        return _Text(code, False, a.vector or b.vector)

    def _compare(self, e: Any) -> _Text:
        a, b, _, vector = self._operands(e)
        return _Text(f"({a} {e.SYMBOL} {b})", False, vector)

    def _logic(self, e: Any) -> _Text:
        is_and = type(e) is prim.And
        if self._vector is None or not (self._is_vector(e.a) or self._is_vector(e.b)):
            a = self.expression(e.a)
            with self._facts.given(e.a, is_and):
                b = self.expression(e.b)
            return _Text(f"({a.code} {'and' if is_and else 'or'} {b.code})", False)
        if is_and:
            return self._choose(e.a, e.b, IntImm("bool", 0))
        return self._choose(e.a, IntImm("bool", 1), e.b)

    def _not(self, e: Any) -> _Text:
        a = self.expression(e.a)
        return _Text(
            f"np.logical_not({a.code})" if a.vector else f"(not {a.code})", False, a.vector
        )

    def _invert(self, e: Any) -> _Text:
        a = self.expression(e.a)
        if a.exact:
            return _Text(f"wrap(~{a.code}, {e.dtype!r})", True, a.vector)
        return _Text(f"(~{a.code})", False, a.vector)

    def _select(self, e: Any) -> _Text:
        return self._choose(e.condition, e.true_value, e.false_value)

    def _choose(self, condition: Expr, true_value: Expr, false_value: Expr) -> _Text:
        test = self.expression(condition)
        dtype = true_value.dtype
        if not test.vector:
            with self._facts.given(condition, True):
                yes = self.expression(true_value)
            with self._facts.given(condition, False):
                no = self.expression(false_value)
            exact = yes.exact and no.exact
            texts = [
                t.code if exact or dtype == "bool" else self._typed(t, dtype) for t in (yes, no)
            ]
            return _Text(f"({texts[0]} if {test.code} else {texts[1]})", exact,
                         yes.vector or no.vector)  # fmt: skip
        # Each side is computed only for its own iterations: in the others, indices may be out of
        # bounds.
        assert self._vector is not None
        self._used_array = self._used_array or self._slices
        array = self._vector.array
        with self._by_index():
            with self._facts.given(condition, True):
                yes = self.expression(true_value)
            with self._facts.given(condition, False):
                no = self.expression(false_value)
        exact = yes.exact and no.exact
        texts = [t.code if exact or dtype == "bool" else self._typed(t, dtype) for t in (yes, no)]
        kind = "np.int64" if exact else self._dtype(dtype)
        code = (f"choose({test.code}, lambda {array}: {texts[0]}, lambda {array}: {texts[1]}, "
                f"{array}, {kind})")  # fmt: skip
        return _Text(code, exact, True)

    @contextmanager
    def _by_index(self) -> Iterator[None]:
        """Context manager: the vectorized variable is an array of arbitrary indices, not a slice.
        """
        before, self._slices = self._slices, False
        used = self._used_array
        yield
        self._slices, self._used_array = before, used

    def _let(self, e: Any) -> _Text:
        value, name = self.expression(e.value), self._names.of(e.var)
        self._facts.forget(e.var)
        self._bound[e.var] = value._replace(code=name)
        body = self.expression(e.body)
        return _Text(f"(lambda {name}: {body.code})({value.code})", body.exact,
                     value.vector or body.vector)  # fmt: skip

    def _cast(self, e: Any) -> _Text:
        source, dtype, value = e.value.dtype, e.dtype, self.expression(e.value)
        if dtype == "bool":
            return _Text(f"({value.code} != 0)", False, value.vector)
        if is_float(dtype) or dtype not in NARROW:
            if dtype == "uint64" and is_float(source):
                return _Text(f"to_int({value.code}, {dtype!r})", False, value.vector)
            code = f"typed({value.code}, {self._dtype(dtype)})"
            return _Text(code, False, value.vector)
        if is_float(source):
            return _Text(f"to_int({value.code}, {dtype!r})", False, value.vector)
        if value.exact:
            low, high = prim._range(dtype)
            interval = self._facts.interval(e.value)
            if low <= interval[0] and interval[1] <= high:
                return value
            return _Text(f"wrap({value.code}, {dtype!r})", True, value.vector)
        return _Text(f"typed({value.code}, {self._dtype(dtype)})", False, value.vector)

    def _call(self, call: Call) -> _Text:
        op, args = call.op, call.args
        if op is IF_THEN_ELSE:
            return self._choose(args[0], args[1], args[2])
        if op is LIKELY:
            return self.expression(args[0])
        row = INTRINSICS.get(getattr(op, "name", ""))
        if row is not None:
            values = [self.expression(a) for a in args]
            name = row.numpy if row.numpy.startswith("_") else f"np.{row.numpy}"
            code = f"{name}({', '.join(v.code for v in values)})"
            return _Text(code, False, any(v.vector for v in values))
        if op is POPCOUNT or op is CLZ:
            name = "popcount" if op is POPCOUNT else "clz"
            value = self.expression(args[0])
            code = f"{name}({value.code}, {bits_of(args[0].dtype)})"
            exact = call.dtype in NARROW
            return _Text(code if exact else f"typed({code}, {self._dtype(call.dtype)})", exact,
                         value.vector)  # fmt: skip
        if op is REINTERPRET:
            value = self.expression(args[0])
            typed = self._typed(value, args[0].dtype)
            return _Text(f"reinterpret({typed}, {self._dtype(call.dtype)})", False, value.vector)
        raise NotImplementedError(
            f"{self._kernel.name}: {getattr(op, 'name', op)} cannot be lowered"
        )


def _float_text(value: float) -> str:
    return repr(value) if np.isfinite(value) else f"float({str(value)!r})"


def _dim_of(dim: Dim, kernel: Kernel) -> Any:
    value = dim.value
    if type(value) is IntImm:
        return value.value
    if isinstance(value, Var) and value in kernel.dims:
        return ("binds" if dim.binds else "same", kernel.dims.index(value))
    return ("free", 0)


def _length(loop: For) -> int:
    assert type(loop.extent) is IntImm
    return loop.extent.value


def _elementwise_nest(loop: For) -> list[For]:
    """The loops of a nest whose body stores one element from arithmetic of elements, each with the
    variables of the loops as indices, in their order; empty for other loops."""
    nest, store = nest_of(loop)
    variables: list[Expr] = [each.loop_var for each in nest]
    if len(nest) < 2 or not isinstance(store, BufferStore):
        return []
    if any(each.step is not None or not _is_zero(each.min) for each in nest):
        return []
    lengths = [each.extent.value for each in nest[1:] if type(each.extent) is IntImm]
    if len(lengths) < len(nest) - 1 or not 0 < math.prod(lengths) <= BLOCK or loads_of(loop.extent):
        return []
    if [index for index in store.indices if index in variables] != variables:
        return []
    accesses = [store.indices, *(load.indices for load in loads_of(store.value))]
    for load in loads_of(store.value):
        if load.buffer is store.buffer and not same_indices(load.indices, store.indices):
            return []
    for indices in accesses:
        places = [variables.index(index) for index in indices if index in variables]
        if places != sorted(set(places)):
            return []
        others = [index for index in indices if index not in variables]
        if any(loads_of(index) or any(uses(index, each.loop_var) for each in nest)
               for index in others):  # fmt: skip
            return []
    check = _Arithmetic(variables)
    check.visit(store.value)
    return nest if check.is_plain else []


def _is_zero(e: Expr) -> bool:
    return type(e) is IntImm and e.value == 0


class _Arithmetic(Visitor):
    """Whether an expression has only operations whose operands may be arrays of any shape."""

    def __init__(self, variables: list[Expr]) -> None:
        self.is_plain = True
        self._variables = variables

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        """Not visited: its indices are looked at by themselves."""

    def visit_Var(self, var: Var) -> None:
        if var in self._variables:
            self.is_plain = False

    def visit(self, node: Node) -> None:
        if isinstance(node, (prim.Select, prim.Let, prim.And, prim.Or)) or (
            isinstance(node, Call) and node.op in (IF_THEN_ELSE, LIKELY)
        ):
            self.is_plain = False
        super().visit(node)


_STATEMENTS: Final[dict[type, Callable[[_Writer, Any], None]]] = {
    SeqStmt: _Writer._seq,
    For: _Writer._for,
    While: _Writer._while,
    IfThenElse: _Writer._if,
    Bind: _Writer._bind,
    AssertStmt: _Writer._assert,
    Evaluate: _Writer._evaluate,
    BufferStore: _Writer._store,
}

_EXPRESSIONS: Final[dict[type, Callable[[_Writer, Any], _Text]]] = {
    **dict.fromkeys((prim.Add, prim.Sub, prim.Mul), _Writer._arithmetic),
    **dict.fromkeys((prim.Div, prim.Mod, prim.FloorDiv, prim.FloorMod), _Writer._divide),
    **dict.fromkeys((prim.Max, prim.Min), _Writer._extreme),
    **dict.fromkeys((prim.BitwiseAnd, prim.BitwiseOr, prim.BitwiseXor), _Writer._bitwise),
    **dict.fromkeys((prim.LShift, prim.RShift), _Writer._shift),
    **dict.fromkeys((prim.EQ, prim.NE, prim.LT, prim.LE, prim.GT, prim.GE), _Writer._compare),
    **dict.fromkeys((prim.And, prim.Or), _Writer._logic),
    prim.Not: _Writer._not,
    prim.BitwiseNot: _Writer._invert,
    prim.Select: _Writer._select,
    prim.Let: _Writer._let,
    prim.Cast: _Writer._cast,
}
