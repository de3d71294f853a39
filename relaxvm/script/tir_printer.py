"""The printer of TIR functions; `parse_prim_func` parses its text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ..core.checkpoints import checkpoint
from ..ir.arith import simplify
from ..ir.equality import structural_equal
from ..ir.expr import BaseFunc, Call, Expr, IntImm, PrimType, StringImm, Var
from ..ir.prim import Let, cast
from ..tir.buffer import (
    DEFAULT_ALIGNMENT,
    Buffer,
    BufferLoad,
    BufferRegion,
    IterVar,
    Range,
)
from ..tir.function import PrimFunc
from ..tir.intrinsics import (
    ANYLIST_RESETITEM,
    ANYLIST_SETITEM_CALL_CPACKED,
    ANYLIST_SETITEM_CALL_PACKED,
    CALL_CPACKED,
    CALL_EXTERN,
    CALL_PACKED,
    REINTERPRET,
    RET,
)
from ..tir.stmt import (
    AllocBuffer,
    AssertStmt,
    AttrStmt,
    Bind,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    MatchBufferRegion,
    SBlock,
    SBlockRealize,
    SeqStmt,
    Stmt,
    While,
)
from ..tir.visitor import Visitor
from .names import Names, identifier, quoted
from .scalars import ScalarText

__all__ = ["prim_func_lines", "tir_text"]

_FOR_EFFECT: Final = (
    CALL_PACKED,
    CALL_CPACKED,
    ANYLIST_RESETITEM,
    ANYLIST_SETITEM_CALL_PACKED,
    ANYLIST_SETITEM_CALL_CPACKED,
)
"""Operators whose calls are written as statements, without T.evaluate."""

_LOOPS: Final = {
    ForKind.SERIAL: "T.serial",
    ForKind.PARALLEL: "T.parallel",
    ForKind.VECTORIZED: "T.vectorized",
    ForKind.UNROLLED: "T.unroll",
    ForKind.THREAD_BINDING: "T.thread_binding",
}

_AXES: Final = {
    IterVar.DATA_PAR: "spatial",
    IterVar.COMM_REDUCE: "reduce",
    IterVar.ORDERED: "scan",
    IterVar.OPAQUE: "opaque",
}


def prim_func_lines(func: BaseFunc, names: Names, name: str | None = None) -> list[str]:
    """Return the lines of a PrimFunc, without indentation.

    Args:
        func: a `PrimFunc`.
        names: names of an outer scope.
        name: the name of the function; its "global_symbol" by default.
    """
    assert isinstance(func, PrimFunc)
    if name is None:
        name = identifier(str(func.attrs.get("global_symbol", "main")))
    names.push()
    try:
        return _Printer(names).function(func, name)
    finally:
        names.pop()


def tir_text(node: Any, names: Names) -> str:
    """Return the text of a single statement or a part of one."""
    printer = _Printer(names)
    if isinstance(node, Stmt):
        printer.statement(node)
        return "\n".join([*printer.prelude, *printer.lines])
    if isinstance(node, Buffer):
        return printer.use(node)
    if isinstance(node, BufferRegion):
        return printer.region(node)
    if isinstance(node, Range):
        return f"T.Range({printer.scalar(node.min)}, {printer.scalar(node.extent)})"
    if isinstance(node, Expr):
        return printer.scalar(node)
    return f"<{type(node).__name__}>"


class _Printer:
    """Writes the lines of one function."""

    def __init__(self, names: Names) -> None:
        self.lines: list[str] = []
        self.prelude: list[str] = []
        """Declarations of variables that no statement defines."""
        self.scalar = ScalarText(self.use, self._other, "int32")
        self._names = names
        self._indent = ""
        self._in_signature = False
        self._loops: dict[Var, For] = {}

    # The function

    def function(self, func: PrimFunc, name: str) -> list[str]:
        options = [] if func.attrs.get("global_symbol") == name else ["private=True"]
        options.append("s_tir=True")
        for param in func.params:
            self._names.define(param, param.name)
        self._in_signature = True
        params = [f"{self._names.get(p)}: {self._param_type(p)}" for p in func.params]
        self._in_signature = False
        head = [f"@T.prim_func({', '.join(options)})", *self._signature(name, params, func)]
        self._indent = "    "
        attrs = {k: v for k, v in func.attrs.items() if k != "global_symbol" or v != name}
        if attrs:
            self._line(f"T.func_attr({self.value(attrs)})")
        at = len(self.lines)
        self._root(func.body)
        self.lines[at:at] = [f"    {line}" for line in self.prelude]
        return [*head, *self.lines]

    def _signature(self, name: str, params: list[str], func: PrimFunc) -> list[str]:
        result = "" if func.ret_type is None else (
            f" -> T.{func.ret_type.dtype}" if type(func.ret_type) is PrimType else "")  # fmt: skip
        line = f"def {name}({', '.join(params)}){result}:"
        if len(line) <= 96 or not params:
            return [line]
        return [f"def {name}(", *[f"    {param}," for param in params], f"){result}:"]

    def _param_type(self, param: Var) -> str:
        if isinstance(param, Buffer):
            return f"T.Buffer({self._layout(param)})"
        return f"T.{param.ty.dtype}"

    def _layout(self, buffer: Buffer) -> str:
        """The arguments that create a buffer: shape, data type, layout."""
        ty = buffer.ty
        parts = [self._dims(ty.shape), f'"{ty.dtype}"']
        if ty.strides:
            parts.append(f"strides={self._dims(ty.strides)}")
        own_offset = isinstance(ty.elem_offset, Var) and self._names.get(ty.elem_offset) is None
        if ty.elem_offset is not None and not own_offset:
            parts.append(f"elem_offset={self._dim(ty.elem_offset)}")
        if ty.storage_scope != "global":
            parts.append(f"scope={quoted(ty.storage_scope)}")
        if ty.data_alignment != DEFAULT_ALIGNMENT:
            parts.append(f"align={ty.data_alignment}")
        if ty.offset_factor != 1 or own_offset:
            parts.append(f"offset_factor={ty.offset_factor}")
        return ", ".join(parts)

    def _dims(self, dims: Iterable[Expr]) -> str:
        texts = [self._dim(dim) for dim in dims]
        return f"({', '.join(texts)}{',' * (len(texts) == 1)})"

    def _dim(self, dim: Expr) -> str:
        text = self.scalar(dim)
        return text if type(dim) is IntImm or not self._in_signature else quoted(text)

    def _root(self, body: Stmt) -> None:
        """Print the body; a root block that only allocates is not printed."""
        if not _is_plain_root(body):
            self.statement(body)
            return
        assert isinstance(body, SBlockRealize)
        for buffer in body.block.alloc_buffers:
            self._line(f"{self._define(buffer)} = T.sblock_alloc_buffer({self._layout(buffer)})")
        self.statement(body.block.body)

    # Names

    def use(self, var: Var) -> str:
        """Return the name of a variable; an undefined one is declared in the prelude."""
        name = self._names.get(var)
        if name is None:
            name = self._names.define(var, var.name)
            if isinstance(var, Buffer):
                self.prelude.append(f"{name} = T.Buffer({self._layout(var)})")
            elif type(var.ty) is PrimType:
                self.prelude.append(f"{name} = T.{var.ty.dtype}()")
        return name

    def _define(self, var: Var) -> str:
        return self._names.define(var, var.name)

    # Statements

    def _line(self, text: str) -> None:
        self.lines.append(self._indent + text)

    def statement(self, stmt: Stmt) -> None:
        """Write a statement."""
        checkpoint()
        method = _STATEMENTS.get(type(stmt))
        if method is None:
            self._line(f"<{type(stmt).__name__}>")
        else:
            method(self, stmt)

    def _inside(self, stmt: Stmt) -> None:
        self._names.push()
        self._indented(stmt)
        self._names.pop()

    def _indented(self, stmt: Stmt) -> None:
        indent = self._indent
        self._indent += "    "
        self.statement(stmt)
        self._indent = indent

    def _seq(self, stmt: SeqStmt) -> None:
        for part in stmt.seq:
            self.statement(part)
        if len(stmt.seq) == 1:
            return
        if not stmt.seq:
            self._line("pass")

    def _for(self, loop: For) -> None:
        nest = _grid(loop)
        self._loops.update((n.loop_var, n) for n in nest)
        self._names.push()
        if len(nest) > 1:
            extents = ", ".join(self.scalar(n.extent) for n in nest)
            variables = ", ".join(self._define(n.loop_var) for n in nest)
            self._line(f"for {variables} in T.grid({extents}):")
        else:
            bounds = self._loop(loop)
            self._line(f"for {self._define(loop.loop_var)} in {bounds}:")
        self._indented(nest[-1].body)
        self._names.pop()

    def _loop(self, loop: For) -> str:
        parts = self._bounds(loop.min, loop.extent)
        plain = (
            loop.kind == ForKind.SERIAL
            and not loop.annotations
            and not any("=" in part for part in parts)
        )
        if loop.step is not None:
            if len(parts) == 1:
                parts = [self.scalar(loop.min), *parts]
            step = self.scalar(loop.step)
            parts.append(step if plain else f"step={step}")
        if plain:
            return f"range({', '.join(parts)})"
        if loop.kind == ForKind.THREAD_BINDING:
            tag = "" if loop.thread_binding is None else loop.thread_binding.thread_tag
            parts.append(f"thread={quoted(tag)}")
        if loop.annotations:
            parts.append(f"annotations={self.value(loop.annotations)}")
        return f"{_LOOPS[loop.kind]}({', '.join(parts)})"

    def _bounds(self, least: Expr, extent: Expr) -> list[str]:
        """A range as the arguments of a loop: stop, or start and stop; or start and ``extent=`` if
        the parser would not compute the same extent from start and stop."""
        if type(least) is IntImm and least.value == 0:
            return [self.scalar(extent)]
        stop = simplify(least + extent)
        if structural_equal(simplify(cast(stop, least.dtype) - least), extent):
            return [self.scalar(least), self.scalar(stop)]
        return [self.scalar(least), f"extent={self.scalar(extent)}"]

    def _while(self, stmt: While) -> None:
        self._line(f"while {self.scalar(stmt.condition)}:")
        self._inside(stmt.body)

    def _if(self, stmt: IfThenElse) -> None:
        word = "if"
        while True:
            self._line(f"{word} {self._condition(stmt.condition)}:")
            self._inside(stmt.then_case)
            if stmt.else_case is None:
                return
            self._line("else:")
            self._inside(stmt.else_case)
            return

    def _condition(self, condition: Expr) -> str:
        text = self.scalar(condition)
        # A plain True would be decided at parse time.
        return f"T.bool({text})" if type(condition) is IntImm else text

    def _store(self, stmt: BufferStore) -> None:
        self._line(f"{self._element(stmt.buffer, stmt.indices)} = {self.scalar(stmt.value)}")

    def _element(self, buffer: Buffer, indices: Iterable[Expr]) -> str:
        return f"{self.use(buffer)}[{', '.join(map(self.scalar, indices)) or '()'}]"

    def _bind(self, stmt: Bind) -> None:
        value = self.scalar(stmt.value)
        self._line(f"{self._define(stmt.var)}: T.let[T.{stmt.var.ty.dtype}] = {value}")

    def _alloc(self, stmt: AllocBuffer) -> None:
        layout = self._layout(stmt.buffer)
        if stmt.annotations:
            layout += f", annotations={self.value(stmt.annotations)}"
        self._line(f"{self._define(stmt.buffer)} = T.alloc_buffer({layout})")

    def _assert(self, stmt: AssertStmt) -> None:
        parts = ", ".join(quoted(part.value) for part in stmt.message_parts)
        self._line(
            f"assert {self._condition(stmt.condition)}, ({quoted(stmt.kind.value)}, [{parts}])"
        )

    def _attr(self, stmt: AttrStmt) -> None:
        value = stmt.value
        text = quoted(value.value) if isinstance(value, StringImm) else self.scalar(value)
        self._line(f"with T.attr({self.value(stmt.node)}, {quoted(stmt.attr_key)}, {text}):")
        self._inside(stmt.body)

    def _evaluate(self, stmt: Evaluate) -> None:
        value = stmt.value
        if isinstance(value, Call) and value.op is RET:
            self._line(f"return {self._scalar_value(value.args[0])}")
        elif isinstance(value, Call) and value.op in _FOR_EFFECT and value.dtype == "int32":
            self._line(self._call(value))
        else:
            self._line(f"T.evaluate({self._scalar_value(value)})")

    def _scalar_value(self, value: Expr) -> str:
        return quoted(value.value) if isinstance(value, StringImm) else self.scalar(value)

    # Blocks

    def _realize(self, stmt: SBlockRealize) -> None:
        block = stmt.block
        self._line(f"with T.sblock({quoted(block.name_hint)}):")
        self._names.push()
        indent = self._indent
        self._indent += "    "
        self._axes(stmt)
        if not (type(stmt.predicate) is IntImm and stmt.predicate.value):
            self._line(f"T.where({self._condition(stmt.predicate)})")
        self._head(block)
        if block.init is not None:
            self._line("with T.init():")
            self._inside(block.init)
        self.statement(block.body)
        self._indent = indent
        self._names.pop()

    def _axes(self, stmt: SBlockRealize) -> None:
        if len(stmt.iter_values) > 1 and all(map(self._is_of_loop, stmt.block.iter_vars,
                                                 stmt.iter_values)):  # fmt: skip
            kinds = "".join("SR"[iv.iter_type // 2] for iv in stmt.block.iter_vars)
            values = ", ".join(map(self.scalar, stmt.iter_values))
            names = ", ".join([self._define(iv.var) for iv in stmt.block.iter_vars])
            self._line(f"{names} = T.axis.remap({quoted(kinds)}, [{values}])")
            return
        for iv, value in zip(stmt.block.iter_vars, stmt.iter_values, strict=True):
            bound = self.scalar(value)
            assert iv.dom is not None
            parts = self._bounds(iv.dom.min, iv.dom.extent)
            if len(parts) == 1:
                dom = parts[0]
            else:
                stop = simplify(iv.dom.min + iv.dom.extent)
                dom = f"({parts[0]}, {self.scalar(stop)})"
            name = self._define(iv.var)
            self._line(f"{name} = T.axis.{_AXES[iv.iter_type]}({dom}, {bound})")

    def _is_of_loop(self, iv: IterVar, value: Expr) -> bool:
        """Whether an axis has exactly the range of the loop that it is bound to."""
        loop = self._loops.get(value) if isinstance(value, Var) else None
        return (
            loop is not None
            and iv.iter_type in (IterVar.DATA_PAR, IterVar.COMM_REDUCE)
            and iv.dom is not None
            and structural_equal(iv.dom.min, loop.min)
            and structural_equal(iv.dom.extent, loop.extent)
        )

    def _head(self, block: SBlock) -> None:
        # As in TVM, a region may be of a buffer that is defined further below.
        local = set(block.alloc_buffers) | {m.buffer for m in block.match_buffers}
        own = [r for r in (*block.reads, *block.writes) if r.buffer in local]
        regions = [
            f"T.reads({', '.join(map(self.region, block.reads))})",
            f"T.writes({', '.join(map(self.region, block.writes))})",
        ] if not own else []  # fmt: skip
        for line in regions:
            self._line(line)
        if block.annotations:
            self._line(f"T.sblock_attr({self.value(block.annotations)})")
        for buffer in block.alloc_buffers:
            self._line(f"{self._define(buffer)} = T.sblock_alloc_buffer({self._layout(buffer)})")
        for match in block.match_buffers:
            self._match(match)
        if own:
            self._line(f"T.reads({', '.join(map(self.region, block.reads))})")
            self._line(f"T.writes({', '.join(map(self.region, block.writes))})")

    def _match(self, match: MatchBufferRegion) -> None:
        source = self.region(match.source)
        layout = self._layout(match.buffer)
        self._line(f"{self._define(match.buffer)} = T.match_buffer({source}, {layout})")

    def region(self, region: BufferRegion) -> str:
        """A region as an indexed buffer."""
        parts = []
        for r in region.region:
            if r.is_point:
                parts.append(self.scalar(r.min))
                continue
            stop = simplify(r.min + r.extent)
            parts.append(f"{self.scalar(r.min)}:{self.scalar(stop)}")
        return f"{self.use(region.buffer)}[{', '.join(parts) or '()'}]"

    # Expressions

    def _other(self, expr: Expr) -> str:
        if isinstance(expr, BufferLoad):
            return self._element(expr.buffer, expr.indices)
        if isinstance(expr, Call):
            return self._call(expr)
        if isinstance(expr, Let):
            value = self.scalar(expr.value)
            name = self.use(expr.var)
            return f"T.Let({self.scalar(expr.body)}, where={{{name}: {value}}})"
        if isinstance(expr, StringImm):
            return quoted(expr.value)
        return f"<{type(expr).__name__}>"

    def _call(self, call: Call) -> str:
        op = call.op
        name = getattr(op, "name", "")
        args = [self._scalar_value(arg) for arg in call.args]
        if op is CALL_EXTERN:
            return f'T.call_extern("{call.dtype}", {", ".join(args)})'
        if op is CALL_PACKED and call.dtype == "int32":
            return f"T.call_packed({', '.join(args)})"
        if op is REINTERPRET:
            return f'T.reinterpret("{call.dtype}", {", ".join(args)})'
        if op is RET or op is CALL_PACKED:
            return f'T.Call("{call.dtype}", {quoted(name)}, [{", ".join(args)}])'
        short = name.partition(".")[2].removeprefix("tvm_")
        if not short:
            return f"<Call {op}>"
        return f"T.{short}({', '.join(args)})"

    # Values of attributes

    def value(self, value: Any) -> str:
        """An attribute: numbers, strings, lists, dictionaries and expressions."""
        if isinstance(value, str):
            return quoted(value)
        if isinstance(value, dict):
            return f"{{{', '.join(f'{self.value(k)}: {self.value(v)}' for k, v in value.items())}}}"
        if isinstance(value, (list, tuple)):
            inner = ", ".join(map(self.value, value))
            if isinstance(value, list):
                return f"[{inner}]"
            return f"({inner}{',' * (len(value) == 1)})"
        if isinstance(value, StringImm):
            return f"T.StringImm({quoted(value.value)})"
        if isinstance(value, IntImm) and value.ty.dtype == "int32":
            return f"T.int32({value.value})"
        if isinstance(value, Expr):
            return self.scalar(value)
        return repr(value)


def _is_plain_root(body: Stmt) -> bool:
    """Whether the block is the one that the parser would add around the body."""
    if not isinstance(body, SBlockRealize):
        return False
    block = body.block
    return bool(block.alloc_buffers) and not (
        block.name_hint != "root"
        or block.iter_vars
        or block.reads
        or block.writes
        or block.match_buffers
        or block.annotations
        or block.init is not None
        or not (type(body.predicate) is IntImm and body.predicate.value)
    )


def _grid(loop: For) -> list[For]:
    """The nested loops that ``T.grid`` can express: plain loops, independent of each other."""
    nest = [loop]
    seen = {loop.loop_var}
    while _is_plain(nest[-1]):
        inner = nest[-1].body
        if not isinstance(inner, For) or not _is_plain(inner) or _uses(inner.extent, seen):
            break
        nest.append(inner)
        seen.add(inner.loop_var)
    return nest


def _is_plain(loop: For) -> bool:
    return (
        loop.kind == ForKind.SERIAL
        and type(loop.min) is IntImm
        and loop.min.value == 0
        and loop.step is None
        and not loop.annotations
    )


def _uses(e: Expr, variables: set[Var]) -> bool:
    found = False

    class Uses(Visitor):
        def visit_Var(self, var: Var) -> None:
            nonlocal found
            found = found or var in variables

    Uses().visit(e)
    return found


_STATEMENTS: Final[dict[type, Callable[[_Printer, Any], None]]] = {
    SeqStmt: _Printer._seq,
    For: _Printer._for,
    While: _Printer._while,
    IfThenElse: _Printer._if,
    BufferStore: _Printer._store,
    Bind: _Printer._bind,
    AllocBuffer: _Printer._alloc,
    AssertStmt: _Printer._assert,
    AttrStmt: _Printer._attr,
    Evaluate: _Printer._evaluate,
    SBlockRealize: _Printer._realize,
}
