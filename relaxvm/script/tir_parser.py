"""The parser of TIR functions.

Statements are parsed in order.  The head of a block (axes, regions, allocations) is collected while
its body is parsed; then the block is built.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from ..ir.expr import Call, Expr, IntImm, PrimType, Type, Var, prim_type
from ..ir.prim import as_scalar, cast
from ..tir.access import access_regions
from ..tir.buffer import Buffer, BufferLoad, BufferRegion, IterVar, Range
from ..tir.function import PrimFunc
from ..tir.intrinsics import ret
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
    Stmt,
    While,
    seq,
)
from . import tir_forms as forms
from .evaluate import Evaluator
from .markers import FunctionAttrs, MetaVar
from .scope import MISSING
from .signature import _declarations, type_parameters
from .source import Source
from .type_forms import DTypeMaker

__all__ = ["parse_prim_func"]

_OPTIONS: Final = ("private", "check_well_formed", "s_tir")


def parse_prim_func(node: ast.FunctionDef, source: Source, evaluator: Evaluator) -> PrimFunc:
    """Parse a decorated function as a PrimFunc.

    Raises:
        DiagnosticError: there is an error in the script.
    """
    token = forms.PLAIN_INT.set("int32")
    evaluator.scope.push()
    try:
        return _Parser(node, source, evaluator).function()
    finally:
        evaluator.scope.pop(f"in function {node.name!r}")
        forms.PLAIN_INT.reset(token)


class _Block:
    """A block under construction."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.axes: list[tuple[IterVar, Expr]] = []
        self.reads: list[BufferRegion] | None = None
        self.writes: list[BufferRegion] | None = None
        self.predicate: Expr = IntImm("bool", 1)
        self.annotations: dict[str, Any] = {}
        self.allocs: list[Buffer] = []
        self.matches: list[MatchBufferRegion] = []
        self.init: Stmt | None = None


class _Parser:
    """Parses one function."""

    def __init__(self, node: ast.FunctionDef, source: Source, evaluator: Evaluator) -> None:
        self._node = node
        self._source = source
        self._evaluator = evaluator
        self._scope = evaluator.scope
        self._attrs: dict[str, Any] = {}
        self._handles: dict[Var, Buffer] = {}
        self._loops: dict[Var, Range] = {}
        self._root = _Block("root")
        self._blocks: list[_Block] = []
        self._declared: dict[str, Var] = {}
        self._cells: dict[str, BufferLoad] = {}

    def error(self, node: Any, message: str) -> NoReturn:
        """Refuse the script."""
        self._source.error(node, message)

    # The function

    def function(self) -> PrimFunc:
        """The function."""
        node = self._node
        options = self._options()
        self._define("range", self._range)
        declared = _declarations(self._evaluator, node)
        for name, _ in type_parameters(self._evaluator, node):
            declared.setdefault(name, "int64")
        for name, dtype in declared.items():
            self._declare(name, dtype)
        params = self._params()
        body = self._body(node.body)
        result = None if node.returns is None else self._ret_type(node.returns)
        attrs = {} if options["private"] else {"global_symbol": node.name}
        attrs.update(self._attrs)
        final = [self._handles.get(param, param) for param in params]
        unmatched = {p: b for p, b in self._handles.items() if p not in params}
        if unmatched:
            name = next(iter(unmatched)).name
            self.error(node, f"T.match_buffer: {name!r} is not a parameter")
        return PrimFunc(final, self._with_root(body), result, attrs, self._source.span(node))

    def _options(self) -> dict[str, bool]:
        options = {"private": False}
        for decorator in self._node.decorator_list:
            if not isinstance(decorator, ast.Call):
                continue
            for argument in decorator.args:
                self.error(argument, "T.prim_func: expected options by keyword, as private=True")
            for keyword in decorator.keywords:
                if keyword.arg not in _OPTIONS:
                    self.error(
                        keyword.value,
                        f"T.prim_func: unknown option {keyword.arg!r}; there are "
                        f"{', '.join(_OPTIONS)}",
                    )
                options[keyword.arg] = bool(self._evaluator.eval(keyword.value))
        return options

    def _arguments(self) -> list[ast.arg]:
        args = self._node.args
        for other in (args.vararg, args.kwarg, *args.kwonlyargs):
            if other is not None:
                self.error(other, "a PrimFunc has only positional parameters")
        for default in args.defaults:
            self.error(default, "a parameter of a PrimFunc cannot have a default")
        return [*args.posonlyargs, *args.args]

    def _params(self) -> list[Var]:
        """Parse the parameters; scalars first, since shapes may mention later parameters."""
        args = self._arguments()
        found: dict[str, Var] = {}
        for is_call in (False, True):
            for arg in args:
                if isinstance(arg.annotation, ast.Call) == is_call:
                    found[arg.arg] = self._param(arg)
        return [found[arg.arg] for arg in args]

    def _declare(self, name: str, dtype: str) -> Var:
        var = self._declared[name] = Var(name, dtype)
        self._define(name, var)
        return var

    def _param(self, arg: ast.arg) -> Var:
        if arg.annotation is None:
            self.error(
                arg,
                f"parameter {arg.arg!r} has no type; expected as in "
                f'{arg.arg}: T.Buffer((16, 16), "float32"), {arg.arg}: T.int64 or '
                f"{arg.arg}: T.handle",
            )
        self._declare_dims(arg.annotation)
        value = self._evaluator.eval(arg.annotation)
        span = self._source.span(arg)
        param: Var
        if isinstance(value, DTypeMaker):
            value = prim_type(value.dtype)
        if callable(value) and not isinstance(value, (Expr, Type)):
            try:
                value = value()
            except TypeError:
                self.error(arg.annotation, f"parameter {arg.arg!r}: expected a type")
        if isinstance(value, Buffer):
            param = value
            param.name, param.span = arg.arg, span
        elif isinstance(value, PrimType):
            param = Var(arg.arg, value, span)
        elif isinstance(value, Var) and not value.name:  # T.int64()
            param = Var(arg.arg, value.ty, span)
        else:
            self.error(
                arg.annotation,
                f"parameter {arg.arg!r}: expected T.Buffer(...), T.handle or a data type such as "
                "T.int64",
            )
        self._define(arg.arg, param)
        return param

    def _declare_dims(self, annotation: ast.expr) -> None:
        """Declare names in quotes in a shape as int64 variables, unless the body declares them."""
        for inner in ast.walk(annotation):
            if isinstance(inner, ast.Tuple):
                for item in inner.elts:
                    if isinstance(item, ast.Constant) and isinstance(item.value, str):
                        name = item.value
                        if name.isidentifier() and self._scope.get(name) is MISSING:
                            self._declare(name, "int64")

    def _ret_type(self, node: ast.expr) -> Type | None:
        value = self._evaluator.eval(node)
        if value is None:
            return None
        if isinstance(value, DTypeMaker):
            return prim_type(value.dtype)
        if isinstance(value, Type):
            return value
        self.error(node, "expected the data type of the result, such as T.int32, or None")

    def _with_root(self, body: Stmt) -> Stmt:
        """Put statements for blocks that are outside of all blocks into a root block."""
        root = self._root
        if not (root.allocs or root.annotations or root.reads or root.writes):
            return body
        block = SBlock((), root.reads or (), root.writes or (), "root", body, None, root.allocs,
                       (), root.annotations)  # fmt: skip
        return SBlockRealize((), True, block)

    # Names

    def _define(self, name: str, value: Any) -> None:
        self._scope.define(name, value)

    def _range(self, start: Any, stop: Any = None, step: Any = None) -> Any:
        """The function ``range`` of a script."""
        from .tir import serial

        return serial(start, stop, step=step)

    # Statements

    def _body(self, statements: Sequence[ast.stmt]) -> Stmt:
        out: list[Stmt] = []
        for statement in statements:
            method = _STATEMENTS.get(type(statement))
            if method is None:
                self.error(
                    statement,
                    f"{type(statement).__name__.lower()}: not a statement of TIR; expected a loop, "
                    "a block, an assignment, if, while, assert or a call of T",
                )
            found = method(self, statement)
            if isinstance(found, Stmt):
                if found.span is None:
                    found.span = self._source.span(statement)
                out.append(found)
            elif found is not None:
                out += found
        return seq(out)

    def _scoped(self, statements: Sequence[ast.stmt], what: str) -> Stmt:
        cells = dict(self._cells)
        self._scope.push()
        try:
            return self._body(statements)
        finally:
            self._scope.pop(what)
            self._cells = cells

    def _pass(self, node: ast.Pass) -> None:
        return None

    def _if(self, node: ast.If) -> Stmt | None:
        condition = self._evaluator.eval(node.test)
        if not isinstance(condition, Expr):
            chosen = node.body if condition else node.orelse
            return self._body(chosen) if chosen else None
        then = self._scoped(node.body, "in a branch")
        orelse = self._scoped(node.orelse, "in a branch") if node.orelse else None
        return self._make(node, lambda: IfThenElse(condition, then, orelse))

    def _while(self, node: ast.While) -> Stmt:
        condition = self._evaluator.eval(node.test)
        body = self._scoped(node.body, "in a loop")
        return self._make(node, lambda: While(condition, body))

    def _make(self, node: Any, make: Callable[[], Stmt]) -> Stmt:
        try:
            return make()
        except (TypeError, ValueError, OverflowError) as error:
            self._evaluator.failed(node, error)
            raise

    def _assert(self, node: ast.Assert) -> Stmt:
        condition = self._evaluator.eval(node.test)
        message = "" if node.msg is None else self._evaluator.eval(node.msg)
        kind = "RuntimeError"
        if isinstance(message, tuple):
            kind, message = message
        parts = [message] if isinstance(message, str) else list(message)
        return self._make(node, lambda: AssertStmt(kind, condition, parts if parts != [""] else []))

    def _return(self, node: ast.Return) -> Stmt | None:
        if node.value is None:
            return None
        value = self._evaluator.eval(node.value)
        return self._make(node, lambda: Evaluate(ret(value)))

    def _for(self, node: ast.For) -> Stmt:
        frame = self._evaluator.eval(node.iter)
        if not isinstance(frame, forms.LoopFrame):
            self.error(
                node.iter,
                "expected range(...), T.serial, T.parallel, T.vectorized, T.unroll, T.grid or "
                "T.thread_binding",
            )
        self._scope.push()
        cells = dict(self._cells)
        variables = self._loop_variables(node.target, frame)
        body = self._body(node.body)
        self._scope.pop("in a loop")
        self._cells = cells
        thread = (
            IterVar(None, Var("", "int32"), IterVar.THREAD, frame.thread)
            if frame.kind == ForKind.THREAD_BINDING
            else None
        )
        try:
            for var, span in reversed(list(zip(variables, frame.ranges, strict=True))):
                body = For(var, span.min, span.extent, frame.kind, body, thread,
                           frame.annotations, frame.step, self._source.span(node))  # fmt: skip
        except (TypeError, ValueError) as error:
            self._evaluator.failed(node.iter, error)
        return body

    def _loop_variables(self, node: ast.expr, frame: forms.LoopFrame) -> list[Var]:
        """The variables of loops.  A single name for several loops, as in ``for iters in
        T.grid(n, m)``, and a starred one stand for the tuple of their variables."""
        count = len(frame.ranges)
        targets = node.elts if isinstance(node, ast.Tuple) else [node]
        if not isinstance(node, ast.Tuple) and count != 1:
            targets = [ast.copy_location(ast.Starred(node, ast.Store()), node)]
        stars = sum(isinstance(target, ast.Starred) for target in targets)
        if stars > 1 or (len(targets) > count + 1 if stars else len(targets) != count):
            self.error(node, f"expected {count} loop variables, got {len(targets)}")
        variables: list[Var] = []
        for target in targets:
            name = target.value if isinstance(target, ast.Starred) else target
            if not isinstance(name, ast.Name):
                self.error(target, "expected the name of a loop variable")
            taken = count - len(targets) + 1 if isinstance(target, ast.Starred) else 1
            made = [
                Var(
                    name.id if name is target else f"{name.id}_{k}",
                    span.extent.dtype,
                    self._source.span(target),
                )
                for k, span in enumerate(frame.ranges[len(variables) :][:taken])
            ]
            self._define(name.id, made[0] if name is target else tuple(made))
            variables += made
        self._loops.update(zip(variables, frame.ranges, strict=True))
        return variables

    def _with(self, node: ast.With) -> Stmt | None:
        if len(node.items) != 1:
            self.error(
                node,
                "expected one context in a with statement; a block over axes is written as for "
                "i, j in T.grid(n, m): with T.sblock(): vi, vj = T.axis.remap('SS', [i, j])",
            )
        (item,) = node.items
        frame = self._evaluator.eval(item.context_expr)
        if isinstance(frame, forms.BlockFrame):
            return self._block(node, frame)
        if isinstance(frame, forms.InitFrame):
            block = self._head(node, "T.init()")
            block.init = self._scoped(node.body, "in T.init()")
            return None
        if isinstance(frame, forms.Attribute):
            body = self._scoped(node.body, "in T.attr")
            return self._make(node, lambda: AttrStmt(frame.node, frame.key, frame.value, body))
        self.error(item.context_expr, "expected T.sblock(name), T.init() or T.attr(...)")

    def _block(self, node: ast.With, frame: forms.BlockFrame) -> Stmt:
        block = _Block(frame.name)
        self._blocks.append(block)
        body = self._scoped(node.body, "in a block")
        self._blocks.pop()
        reads, writes = block.reads, block.writes
        if reads is None or writes is None:
            found = access_regions(body, block.init, block.allocs, block.matches)
            reads = found[0] if reads is None else reads
            writes = found[1] if writes is None else writes
        iter_vars = [iv for iv, _ in block.axes]
        values = [value for _, value in block.axes]
        span = self._source.span(node)
        made = SBlock(iter_vars, reads, writes, block.name, body, block.init, block.allocs,
                      block.matches, block.annotations, span)  # fmt: skip
        return SBlockRealize(values, block.predicate, made, span)

    def _head(self, node: Any, what: str) -> _Block:
        if not self._blocks:
            self.error(node, f"{what} is for blocks: inside of `with T.sblock(...)`")
        return self._blocks[-1]

    def _expr(self, node: ast.Expr) -> Stmt | None:
        value = self._evaluator.eval(node.value)
        if isinstance(value, str):
            return None  # a docstring
        if isinstance(value, forms.EvaluateForm):
            return self._make(node, lambda: Evaluate(value.value))
        if isinstance(value, FunctionAttrs):
            self._attrs.update(value.attrs)
            return None
        if isinstance(value, forms.Regions):
            block = self._blocks[-1] if self._blocks else self._root
            if value.is_read:
                block.reads = value.regions
            else:
                block.writes = value.regions
            return None
        if isinstance(value, forms.Where):
            self._head(node, "T.where").predicate = value.condition
            return None
        if isinstance(value, forms.BlockAttrs):
            block = self._blocks[-1] if self._blocks else self._root
            block.annotations.update(value.attrs)
            return None
        if isinstance(value, Call):
            return Evaluate(value)
        self.error(node, "expected a statement: a call of T, or an assignment")

    # Assignments

    def _assign(self, node: ast.Assign) -> Any:
        if len(node.targets) != 1:
            self.error(node, "expected one target of an assignment")
        target = node.targets[0]
        if isinstance(target, ast.Subscript):
            return self._store(node, target, self._evaluator.eval(node.value))
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(
            node.value, (ast.Tuple, ast.List)
        ):
            if len(target.elts) != len(node.value.elts):
                self.error(node, f"expected {len(target.elts)} values")
            values = [self._evaluator.eval(v) for v in node.value.elts]
            return self._assign_all(node, target.elts, values)
        value = self._evaluator.eval(node.value)
        if isinstance(target, (ast.Tuple, ast.List)):
            values = value.axes if isinstance(value, forms.Axes) else list(value)
            if len(values) != len(target.elts):
                self.error(target, f"expected {len(values)} names, got {len(target.elts)}")
            return self._assign_all(node, target.elts, values)
        if isinstance(value, forms.Axes) and len(value.axes) == 1:
            value = value.axes[0]
        return self._assign_one(node, target, value)

    def _assign_all(
        self, node: Any, targets: Sequence[ast.expr], values: Sequence[Any]
    ) -> list[Stmt]:
        out: list[Stmt] = []
        for target, value in zip(targets, values, strict=True):
            found = self._assign_one(node, target, value)
            if found is not None:
                out += found if isinstance(found, list) else [found]
        return out

    def _assign_one(self, node: Any, target: ast.expr, value: Any) -> Any:
        if isinstance(target, ast.Subscript):
            return self._store(node, target, value)
        if not isinstance(target, ast.Name):
            self.error(target, "expected a name or an element of a buffer")
        name, span = target.id, self._source.span(target)
        if isinstance(value, forms.Axis):
            return self._axis(node, name, value)
        if isinstance(value, (forms.BlockAlloc, forms.Alloc, forms.Match)):
            value.buffer.name, value.buffer.span = name, span
            self._define(name, value.buffer)
            return self._buffer(node, value)
        if isinstance(value, forms.Let):
            var = Var(name, value.value.ty, span)
            self._define(name, var)
            return Bind(var, value.value)
        if isinstance(value, MetaVar):
            self._define(name, value.value)
            return None
        if isinstance(value, Var) and not isinstance(value, Buffer) and not value.name:
            if name not in self._declared or self._scope.get(name) is not self._declared[name]:
                value.name, value.span = name, span
                self._define(name, value)
            return None
        if isinstance(value, Buffer) and not value.name:
            self.error(node, f"buffer {name!r} has no memory: expected T.alloc_buffer, "
                             "T.sblock_alloc_buffer or T.match_buffer")  # fmt: skip
        if isinstance(value, Expr) and type(value.ty) is PrimType:
            return self._store_scalar(node, name, value)
        cell = self._cells.get(name)
        if cell is not None and self._scope.get(name) is cell:
            return self._store_scalar(node, name, as_scalar(value, cell.dtype))
        self._define(name, value)
        return None

    def _axis(self, node: Any, name: str, axis: forms.Axis) -> None:
        block = self._head(node, "T.axis")
        dom = axis.dom
        if dom is None:
            dom = self._loops.get(axis.value) if isinstance(axis.value, Var) else None
            if dom is None:
                self.error(node, "T.axis.remap: expected variables of loops")
        var = Var(name, dom.extent.dtype, self._source.span(node))
        self._define(name, var)
        block.axes.append((IterVar(dom, var, axis.kind), axis.value))

    def _buffer(self, node: Any, value: Any) -> Stmt | None:
        if isinstance(value, forms.Alloc):
            return AllocBuffer(value.buffer, value.annotations)
        block = self._blocks[-1] if self._blocks else self._root
        if isinstance(value, forms.BlockAlloc):
            block.allocs.append(value.buffer)
            return None
        source = value.source
        if isinstance(source, BufferRegion):
            self._head(node, "T.match_buffer of a region")
            block.matches.append(MatchBufferRegion(value.buffer, source))
            return None
        if not isinstance(source, Var) or source.dtype != "handle":
            self.error(
                node,
                "T.match_buffer: expected a parameter of type T.handle, or a region of a buffer",
            )
        if source in self._handles:
            self.error(node, f"T.match_buffer: {source.name!r} is already matched")
        self._handles[source] = value.buffer
        return None

    def _store_scalar(self, node: Any, name: str, value: Expr) -> list[Stmt]:
        """``x = value`` of a scalar: a store to a buffer, allocated by the first assignment."""
        cell = self._cells.get(name)
        out: list[Stmt] = []
        if cell is None or self._scope.get(name) is not cell:
            ty = forms.make_buffer((1,), value.dtype, scope="local")
            buffer = Buffer(name, ty.ty, self._source.span(node))
            cell = self._cells[name] = BufferLoad(buffer, [0])
            self._define(name, cell)
            out.append(AllocBuffer(buffer, span=self._source.span(node)))
        out.append(BufferStore(cell.buffer, cast(value, cell.dtype), [0], self._source.span(node)))
        return out

    def _ann_assign(self, node: ast.AnnAssign) -> Any:
        if not isinstance(node.target, ast.Name):
            self.error(node.target, "expected a name")
        ty = self._evaluator.eval(node.annotation)
        if node.value is None:
            self.error(node, "expected a value")
        value = self._evaluator.eval(node.value)
        dtype = getattr(ty, "dtype", None)
        try:
            scalar = as_scalar(value, None if isinstance(value, Expr) else dtype)
            scalar = scalar if dtype is None else cast(scalar, dtype)
        except (TypeError, ValueError, OverflowError) as error:
            self._evaluator.failed(node.value, error)
            raise
        if isinstance(ty, forms.LetType):
            var = Var(node.target.id, scalar.ty, self._source.span(node.target))
            self._define(node.target.id, var)
            return Bind(var, scalar)
        return self._store_scalar(node, node.target.id, scalar)

    def _aug_assign(self, node: ast.AugAssign) -> Any:
        load = ast.copy_location(_as_load(node.target), node.target)
        operation = ast.copy_location(ast.BinOp(load, node.op, node.value), node)
        value = self._evaluator.eval(operation)
        if isinstance(node.target, ast.Subscript):
            return self._store(node, node.target, value)
        return self._assign_one(node, node.target, value)

    def _store(self, node: Any, target: ast.Subscript, value: Any) -> Stmt:
        buffer = self._evaluator.eval(target.value)
        if not isinstance(buffer, Buffer):
            self.error(target.value, "only elements of buffers can be assigned")
        index = self._evaluator.eval(target.slice)
        indices = index if isinstance(index, tuple) else (index,)

        def make() -> Stmt:
            scalar = as_scalar(value, None if isinstance(value, Expr) else buffer.dtype)
            return BufferStore(buffer, cast(scalar, buffer.dtype), indices)

        return self._make(node, make)


def _as_load(target: Any) -> ast.expr:
    if isinstance(target, ast.Subscript):
        return ast.Subscript(target.value, target.slice, ast.Load())
    return ast.Name(target.id, ast.Load())


_STATEMENTS: Final[dict[type, Callable[[_Parser, Any], Any]]] = {
    ast.Pass: _Parser._pass,
    ast.If: _Parser._if,
    ast.While: _Parser._while,
    ast.Assert: _Parser._assert,
    ast.Return: _Parser._return,
    ast.For: _Parser._for,
    ast.With: _Parser._with,
    ast.Expr: _Parser._expr,
    ast.Assign: _Parser._assign,
    ast.AnnAssign: _Parser._ann_assign,
    ast.AugAssign: _Parser._aug_assign,
}
