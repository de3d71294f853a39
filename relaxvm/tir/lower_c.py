"""Lowering of PrimFuncs to C, using ``relaxvm/kernel.h``.

A kernel checks its arguments and runs the body.  In the body no two buffers overlap: pointers are
``restrict``, and the loops of reductions are interchanged so that inner loops run along memory.  An
argument that is only read and overlaps a written one is copied first.

Checked at run time are the arguments of the kernel, indices that are not provably in bounds, and
divisors that are not provably nonzero.  Integers wrap; floats are rounded after every operation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from ..ir import prim
from ..ir.expr import Call, Expr, IntImm, Var
from ..ir.node import Node
from ..ir.prim import BinaryOpExpr, Select
from ..native.c_support import HEAD, c_string, symbol_of
from ..native.elementary import elementary
from .buffer import Buffer, BufferLoad
from .c_prelude import (
    STORED,
    Helpers,
    bits_of,
    c_comment,
    int_text,
    scalar_type,
)
from .c_writer import Names, Writer
from .facts import MAX_DIM
from .intrinsics import INTRINSICS
from .normalize import Kernel, interchange, loads_of, uses
from .products import Product, product_of
from .stmt import BufferStore, For, Stmt
from .visitor import Visitor

__all__ = ["c_source", "longest_of", "static_size", "unproved_in_c"]

CLONED_FROM: Final = 4
"""A function with a statement of this many operations is also compiled for wider vector units."""

STACK_BYTES: Final = 4096
"""Local buffers are on the stack if their total size is at most this."""

_CODES: Final = {"int": "RVM_SIGNED", "uint": "RVM_UNSIGNED", "float": "RVM_FLOAT",
                 "bfloat": "RVM_BFLOAT", "bool": "RVM_BOOLEAN"}  # fmt: skip


def c_source(kernels: Sequence[Kernel]) -> str:
    """Return the C text of a library with a kernel for each function.

    Raises:
        NotImplementedError: an expression or data type cannot be expressed in C.
    """
    return "".join([HEAD, "\n", *(_KernelText(kernel, Helpers()).text() for kernel in kernels)])


def unproved_in_c(kernel: Kernel) -> list[str]:
    """Return the buffers and dimensions of accesses that are not proved to be in bounds, and so are
    checked at run time.

    Raises:
        NotImplementedError: as `c_source`.
    """
    text = _KernelText(kernel, Helpers())
    text.text()
    return [place for place, is_index in text.sites if is_index]


class _KernelText:
    """The text of one kernel: its body, and the function that checks arguments and calls it."""

    def __init__(self, kernel: Kernel, helpers: Helpers) -> None:
        for dtype in [p.dtype for p in kernel.params] + [b.ty.dtype for b in kernel.allocs]:
            if dtype not in STORED:
                raise NotImplementedError(f"{kernel.name}: C cannot express data type {dtype}")
        self.kernel = kernel
        self.helpers = helpers
        self.symbol = symbol_of(kernel.name)
        self.names = Names()
        self.products: dict[For, Product] = {}
        self.sites: list[tuple[str, bool]] = []
        for var in (*(p.var for p in kernel.params), *kernel.dims, *kernel.allocs):
            self.names.of(var)
        stack = 0
        self.on_stack: list[tuple[Buffer, int]] = []
        self.on_heap: list[Buffer] = []
        for buffer in kernel.allocs:
            size = static_size(buffer)
            if size is not None and stack + size * bits_of(buffer.ty.dtype) // 8 <= STACK_BYTES:
                stack += size * bits_of(buffer.ty.dtype) // 8
                self.on_stack.append((buffer, size))
            else:
                self.on_heap.append(buffer)

    def text(self) -> str:
        body = self._body()
        entry = self._entry()  # first, since it may add sites
        sites = ""
        if self.sites:
            rows = ",\n".join(f"  {{{c_string(text)}, {int(i)}}}" for text, i in self.sites)
            sites = f"static const Site {self.symbol}_sites[] = {{\n{rows}}};\n"
        comment = f"/* ---- {c_comment(self.kernel.name)} ---- */\n"
        return "\n".join([comment, *self.helpers.guarded(), sites, body, entry, ""])

    def _writer(self) -> Writer:
        return Writer(
            self.kernel, self.symbol, self.names, self.helpers, self.sites, self.products
        )

    def _is_product(self, loop: For) -> bool:
        """Whether a loop is a product; if so, keep it for the writer."""
        product = product_of(loop) if self.kernel.tiles else None
        if product is not None:
            self.products[loop] = product
        return product is not None

    def _body(self) -> str:
        writer = self._writer()
        lines = [
            f"{STORED[b.ty.dtype]} {self.names.of(b)}[{max(size, 1)}] = {{0}};"
            for b, size in self.on_stack
        ]
        statement = interchange(self.kernel.body, always=False, leave=self._is_product)
        writer.statement(statement)
        if writer.faults:
            lines.append("Fault fault = {0, 0, 0};")
        if writer.checks_interrupt:
            lines.append("uint64_t iterations = 0;")
        lines += [*writer.lines, "return RVM_OK;"]
        inner = "\n".join(f"  {line}" for line in lines)
        is_worth_clones = bool(self.products) or _is_worth_clones(statement)
        clones = "RVM_CLONES " if writer.has_loops and is_worth_clones else ""
        return f"{clones}{self._signature()} {{\n{inner}\n}}\n"

    def _signature(self) -> str:
        parts = [
            f"{scalar_type(p.dtype)} {self.names.of(p.var)}"
            if p.dims is None
            else self._pointer(p.var, p.written)
            for p in self.kernel.params
        ]
        parts += [self._pointer(b, True) for b in self.on_heap]
        parts += [f"int64_t {self.names.of(dim)}" for dim in self.kernel.dims]
        if self.kernel.returns:
            parts.append("RvmAny *ret")
        listed = ", ".join(f"{part} UNUSED" for part in parts) or "void"
        return f"static int {self.symbol}_body({listed})"

    def _pointer(self, buffer: Any, written: bool) -> str:
        const = "" if written else "const "
        return f"{const}{STORED[buffer.ty.dtype]} *restrict {self.names.of(buffer)}"

    # The entry

    def _entry(self) -> str:
        """The function that unpacks the arguments and calls the body."""
        kernel, names, symbol = self.kernel, self.names, self.symbol
        lines = [
            f"int64_t {names.of(dim)} UNUSED = variables[{i}];" for i, dim in enumerate(kernel.dims)
        ]
        lines += [
            f"{scalar_type(p.dtype)} {names.of(p.var)} UNUSED = "
            f"values[{i}].{'f' if prim.is_float(p.dtype) else 'i'};"
            for i, p in enumerate(kernel.params)
            if p.dims is None
        ]
        for i, p in enumerate(kernel.params):
            for d, dim in enumerate(p.dims or ()):
                if _dim_kind(dim, kernel) == "DIM_FREE":
                    text = self._plain(dim.value, f"parameter {p.name}")
                    lines.append(f"if (check_dim(&{symbol}_function, args, {i}, {d}, {text})) "
                                 "return RVM_FAILED;")  # fmt: skip
        call = f"{symbol}_body({', '.join(self._arguments())})"
        if self.on_heap:
            lines.append("int status = RVM_OK;")
            for buffer in self.on_heap:
                lines += self._allocation(buffer)
            lines.append(f"if (!status) status = {call};")
            lines += [f"__builtin_free({names.of(buffer)});" for buffer in self.on_heap]
            call = "status"
        body = "".join(f"  {line}\n" for line in (*lines, f"return {call};"))
        return (
            f"static const Function {symbol}_function;\n"
            f"static int {symbol}_run(const RvmAny *args UNUSED, const Value *values UNUSED,\n"
            f"    const int64_t *variables UNUSED, RvmAny *ret UNUSED) {{\n{body}}}\n"
            f"{self._table()}RVM_KERNEL({symbol}) {{ return call(&{symbol}_function, args, "
            "num_args, ret); }\n"
        )

    def _plain(self, e: Expr, what: str) -> str:
        """An expression of variables and numbers that needs no checks."""
        writer = self._writer()
        text = writer.expression(e)
        if writer.faults:
            raise NotImplementedError(f"{self.kernel.name}: {what}: a dimension may divide by zero")
        return text

    def _allocation(self, buffer: Buffer) -> list[str]:
        name, dtype = self.names.of(buffer), buffer.ty.dtype
        dims = [self._plain(dim, f"buffer {buffer.name}") for dim in buffer.ty.shape]
        shape = f"(const int64_t[]){{{', '.join(dims)}}}" if dims else "NULL"
        return [
            f"{STORED[dtype]} *{name} = NULL;",
            f"if (!status && !({name} = allocate(&{self.symbol}_function, "
            f"{c_string(buffer.name)}, {len(dims)}, {shape}, {bits_of(dtype) // 8})))",
            "  status = RVM_FAILED;",
        ]

    def _arguments(self) -> list[str]:
        names, kernel = self.names, self.kernel
        arguments = [
            names.of(p.var) if p.dims is None else f"values[{i}].data"
            for i, p in enumerate(kernel.params)
        ]
        arguments += [names.of(var) for var in (*self.on_heap, *kernel.dims)]
        return [*arguments, "ret"] if kernel.returns else arguments

    def _table(self) -> str:
        """The table that describes the parameters."""
        kernel, symbol = self.kernel, self.symbol
        slots = {dim: i for i, dim in enumerate(kernel.dims)}
        lines, rows = [], []
        for i, p in enumerate(kernel.params):
            dims = []
            for dim in p.dims or ():
                kind = _dim_kind(dim, kernel)
                value = (
                    dim.value.value  # type: ignore[attr-defined]
                    if kind == "DIM_IS"
                    else 0
                    if kind == "DIM_FREE"
                    else slots[dim.value]  # type: ignore[index]
                )
                dims.append(f"{{{kind}, {int_text(value, 'int64')}}}")
            if dims:
                lines.append(f"static const Dim {symbol}_dims{i}[] = {{{', '.join(dims)}}};")
            ndim = -1 if p.dims is None else len(p.dims)
            rows.append(
                f"  {{{c_string(p.name)}, {c_string(p.dtype)}, {_code(p.dtype)}, "
                f"{bits_of(p.dtype)}, {ndim}, {int(p.written)}, "
                f"{f'{symbol}_dims{i}' if dims else 'NULL'}}}"
            )
        params = variables = longest = "NULL"
        if rows:
            params = f"{symbol}_params"
            lines.append(f"static const Param {params}[] = {{\n" + ",\n".join(rows) + "};")
        if slots:
            variables, longest = f"{symbol}_variables", f"{symbol}_longest"
            listed = ", ".join(c_string(dim.name) for dim in slots)
            lines.append(f"static const char *const {variables}[] = {{{listed}}};")
            listed = ", ".join(int_text(longest_of(dim), "int64") for dim in slots)
            lines.append(f"static const int64_t {longest}[] = {{{listed}}};")
        listed = ", ".join(p.name for p in kernel.params)
        lines.append(f"static const Function {symbol}_function = {{{symbol}_run, "
                     f"{c_string(kernel.name)}, {c_string(listed)}, {len(kernel.params)}, "
                     f"{params}, {len(slots)}, {variables}, {longest}}};\n")  # fmt: skip
        return "\n".join(lines)


class _Arithmetic(Visitor):
    """The greatest number of operations on elements in a statement."""

    def __init__(self) -> None:
        self.most = 0
        self._count = 0

    def visit_BufferStore(self, stmt: BufferStore) -> None:
        self._count = 0
        self.visit(stmt.value)
        self.most = max(self.most, self._count)

    def visit(self, node: Node) -> None:
        self._count += isinstance(node, (BinaryOpExpr, Select))
        if isinstance(node, Call):
            name = getattr(node.op, "name", "")
            if name in INTRINSICS and elementary(name, node.args[0].dtype):
                self._count += CLONED_FROM  # elementary functions are many operations
        super().visit(node)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        """Not visited: arithmetic of indices does not count."""


def _is_worth_clones(body: Stmt) -> bool:
    """Whether wide vector units may help: loops of one or two operations are bound by memory.  A
    function with clones takes three times as long to compile."""
    arithmetic = _Arithmetic()
    arithmetic.visit(body)
    return arithmetic.most >= CLONED_FROM or _has_inner_sum(body)


def _has_inner_sum(body: Stmt) -> bool:
    """Whether an innermost loop adds to elements of a buffer, as an interchanged reduction does."""
    found = False

    class Sums(Visitor):
        def visit_For(self, loop: For) -> None:
            nonlocal found
            inner = loop.body
            if isinstance(inner, BufferStore):
                found = found or (
                    uses(inner, loop.loop_var)
                    and any(load.buffer is inner.buffer for load in loads_of(inner.value))
                )
            self.visit(inner)

    Sums().visit(body)
    return found


def _dim_kind(dim: Any, kernel: Kernel) -> str:
    if type(dim.value) is IntImm:
        return "DIM_IS"
    if dim.binds:
        return "DIM_BINDS"
    return "DIM_SAME" if isinstance(dim.value, Var) and dim.value in kernel.dims else "DIM_FREE"


def _code(dtype: str) -> str:
    return _CODES[re.sub(r"\d", "", dtype)]


def longest_of(dim: Var) -> int:
    """Return the greatest allowed length of a dimension."""
    return min(MAX_DIM, int(prim._range(dim.ty.dtype)[1]))


def static_size(buffer: Buffer) -> int | None:
    """Return the number of elements of a buffer, None if it is not known in advance."""
    size = 1
    for dim in buffer.ty.shape:
        if type(dim) is not IntImm or dim.value < 0:
            return None
        size *= dim.value
    return size
