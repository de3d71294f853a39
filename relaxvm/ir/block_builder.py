"""BlockBuilder: builds a program binding by binding, normalizing and typing each one.

Normal form (ANF): arguments of calls, tuple elements, conditions and results are leaves: variables,
constants, scalars, shapes and functions; arguments may also be tuples of these.  Everything else is
bound to a variable.

Source: ``relax.BlockBuilder`` of apache-tvm 0.27.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final

from ..core.checkpoints import checkpoint
from ..executable.debug_info import Span
from .adt import Clause, Constructor, Match, pattern_vars
from .expr import (
    BaseFunc,
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    If,
    MatchCast,
    PrimType,
    SeqExpr,
    ShapeExpr,
    ShapeType,
    StringImm,
    Tuple,
    TupleGetItem,
    Type,
    TypeVar,
    Var,
    VarBinding,
    convert_to_expr,
    is_scalar,
    joined_blocks,
)
from .infer import base_check, bind_pattern, function_ret_type, infer_type, type_free_vars
from .module import IRModule
from .nesting import with_headroom
from .node import KINDS, Attrs, class_table
from .op import CONTEXT, Op
from .sharing import check_sharing

__all__ = ["BlockBuilder", "is_leaf"]

_LEAVES: Final = class_table(dict.fromkeys(
    (Var, DataflowVar, Constant, ShapeExpr, GlobalVar, ExternFunc, Op, StringImm, DataTypeImm,
     Constructor)
))  # fmt: skip

_SCOPES: Final = class_table(dict.fromkeys((If, Match, SeqExpr, Function)))


def is_leaf(expr: Expr) -> bool:
    """Check whether an expression may be an argument without being bound to a variable.  A scalar
    may, unless it is a call that the VM has to make."""
    if type(expr) in _LEAVES:
        return True
    return is_scalar(expr) and not isinstance(expr, (Call, If, Match, TupleGetItem, SeqExpr))


_CURRENT: Final[ContextVar[tuple[BlockBuilder, ...]]] = ContextVar("builders", default=())
"""The builders whose functions are being defined, the innermost last."""


class _Names:
    """Unique names: the first request for a name gets it unchanged, later ones get a number
    appended."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def unique(self, hint: str) -> str:
        number = self._next.get(hint)
        if number is None:
            self._next[hint] = 1
            return hint
        name = f"{hint}{number}"
        while name in self._next:
            number += 1
            name = f"{hint}{number}"
        self._next[hint] = number + 1
        self._next[name] = 1
        return name


class _Block:
    """A block under construction.

    Attributes:
        operands: id of an expression that was an operand -> the expression and the variable bound
            to it; so an expression object that is used several times is computed once.
    """

    __slots__ = ("bindings", "is_dataflow", "operands")

    def __init__(self, is_dataflow: bool) -> None:
        self.is_dataflow = is_dataflow
        self.bindings: list[Binding] = []
        self.operands: dict[int, tuple[Expr, Var]] = {}

    def finish(self) -> BindingBlock:
        return (DataflowBlock if self.is_dataflow else BindingBlock)(self.bindings)


class _Scope:
    """A function or branch under construction: its blocks and the symbolic variables in scope."""

    __slots__ = ("blocks", "func_name", "open", "params", "symbolic")

    def __init__(self, symbolic: Iterable[Var], params: Sequence[Var] = ()) -> None:
        self.params = params
        self.symbolic = set(symbolic)
        self.blocks: list[BindingBlock] = []
        self.open: _Block | None = None
        self.func_name: str | None = None

    def know(self, ty: Any) -> None:
        if type(ty) is not PrimType:
            self.symbolic.update(type_free_vars(ty))


class _FunctionScope:
    """The context manager of `BlockBuilder.function`."""

    def __init__(
        self,
        builder: BlockBuilder,
        name: str,
        params: Sequence[Var] | None,
        attrs: Mapping[str, Any] | None,
        private: bool,
        pure: bool,
        type_params: tuple[TypeVar, ...],
    ) -> None:
        self._builder = builder
        self._arguments = (name, params, attrs, private, pure, type_params)

    def __enter__(self) -> BlockBuilder:
        self._builder._begin_function(*self._arguments)
        return self._builder

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._builder._end_function(failed=exc_type is not None)


class _DataflowScope:
    """The context manager of `BlockBuilder.dataflow`."""

    def __init__(self, builder: BlockBuilder) -> None:
        self._builder = builder

    def __enter__(self) -> None:
        self._builder._begin_block(is_dataflow=True)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._builder._end_block()


class BlockBuilder:
    """Builds the functions of a module::

        bb = BlockBuilder()
        n = Var("n", "int64")
        x = Var("x", TensorType((n, 4), "float32"))
        with bb.function("main", [x]):
            with bb.dataflow():
                y = bb.emit(op.add(x, x))
                out = bb.emit_output(y)
            bb.emit_func_output(out)
        mod = bb.get()

    Every emitted expression is normalized and its type is inferred.

    Args:
        mod: the module that functions are added to; a copy of it is changed.
        applies_normalizers: whether `normalize` applies the normal forms that operators have of
            their own; see `Op`.

    Attributes:
        place: where bindings come from that have no place of their own; None if nothing is known.
            A frontend sets it.
    """

    def __init__(self, mod: IRModule | None = None, *, applies_normalizers: bool = True) -> None:
        self._module = IRModule() if mod is None else mod.copy()
        self._is_given = False
        self._names = _Names()
        self._scopes: list[_Scope] = []
        self._bound: dict[Var, Expr] = {}
        self._function: tuple[Any, ...] | None = None
        self._finished = False
        self._applies_normalizers = applies_normalizers
        self.place: Span | None = None

    @staticmethod
    def current() -> BlockBuilder | None:
        """Return the builder whose function is being defined, the innermost if there are several;
        None if there is none."""
        builders = _CURRENT.get()
        return builders[-1] if builders else None

    def current_block_is_dataflow(self) -> bool:
        """Whether bindings are emitted into a dataflow block now."""
        return self._current("current_block_is_dataflow").is_dataflow

    # The module

    def get(self) -> IRModule:
        """Return the module.  What the builder does later does not change it; what is changed in
        it, such as its global infos, is part of what the builder goes on with."""
        self._is_given = True
        return self._module

    finalize = get

    def _own_module(self) -> IRModule:
        """The module, to be changed: a copy if `get` has returned it."""
        if self._is_given:
            self._module, self._is_given = self._module.copy(), False
        return self._module

    def add_func(self, func: BaseFunc, func_name: str) -> GlobalVar:
        """Add a function; `func_name` is made unique, and other than that of the open function."""
        name = self._module.unique_name(func_name)
        if self._function is not None and name == self._function[0]:
            number = 1
            while (name := f"{func_name}{number}") in self._module:
                number += 1
        self._own_module()[name] = func
        return self._module.get_global_var(name)

    def update_func(self, gv: GlobalVar, updated_func: BaseFunc) -> None:
        """Replace a function."""
        self._own_module()[gv] = updated_func

    def get_unique_name(self, name_prefix: str) -> str:
        """Return a variable name that this builder has not used yet."""
        return self._names.unique(name_prefix)

    # Functions

    def function(
        self,
        name: str,
        params: Var | Sequence[Var] | None = None,
        attrs: Mapping[str, Any] | None = None,
        pure: bool = True,
        private: bool = False,
        *,
        type_params: Iterable[TypeVar] = (),
    ) -> _FunctionScope:
        """Return a context manager that defines a function of the module.

        Args:
            params: the parameters; may be passed to `emit_func_output` instead.
            private: if true, the function gets no "global_symbol": only the module can call it.
            type_params: the type parameters.
        """
        if isinstance(params, Var):
            params = [params]
        return _FunctionScope(self, name, params, attrs, private, pure, tuple(type_params))

    @with_headroom("function")
    def _begin_function(
        self,
        name: str,
        params: Sequence[Var] | None,
        attrs: Mapping[str, Any] | None,
        private: bool,
        pure: bool,
        type_params: tuple[TypeVar, ...],
    ) -> None:
        if self._function is not None:
            raise RuntimeError(
                f"function {name!r} is begun inside of {self._function[0]!r}; local functions are "
                "emitted as values"
            )
        if attrs and "global_symbol" in attrs and not private and attrs["global_symbol"] != name:
            raise ValueError(
                f"function {name!r}: attribute global_symbol is {attrs['global_symbol']!r}"
            )
        self._function = (name, params, dict(attrs or {}), private, pure, type_params)
        self._finished = False
        _CURRENT.set((*_CURRENT.get(), self))
        self.begin_scope(params or ())

    def _end_function(self, failed: bool) -> None:
        assert self._function is not None
        name = self._function[0]
        self._function = None
        _CURRENT.set(tuple(builder for builder in _CURRENT.get() if builder is not self))
        if failed or not self._finished:
            self._scopes.clear()
        if not failed and not self._finished:
            raise RuntimeError(f"function {name!r} ended without emit_func_output")

    @with_headroom("emit_func_output")
    def emit_func_output(self, output: Any, params: Var | Sequence[Var] | None = None) -> GlobalVar:
        """End the function with its result, and its parameters if `function` did not get them.

        Raises:
            RuntimeError: not inside `function`; called twice; the parameters are given twice or
                not at all.
            ValueError: the module already has a function of this name.
        """
        if self._function is None or self._finished:
            raise RuntimeError("emit_func_output: not within `function`, or called twice")
        name, own_params, attrs, private, pure, type_params = self._function
        if params is not None and own_params is not None:
            raise RuntimeError(f"function {name!r}: parameters are given twice")
        if params is None and own_params is None:
            raise RuntimeError(f"function {name!r}: no parameters are given")
        chosen = own_params if params is None else params
        chosen = [chosen] if isinstance(chosen, Var) else list(chosen or ())
        if isinstance(output, (list, tuple)):
            output = Tuple(output)
        for param in chosen:
            self._scopes[-1].know(param.ty)
        body = self.end_scope(convert_to_expr(output))
        if not private:
            attrs = {"global_symbol": name, **attrs}
        ret_ty = function_ret_type(chosen, body)
        func = Function(chosen, body, ret_ty, pure, Attrs(attrs), type_params=type_params)
        if name in self._module:
            raise ValueError(f"the module already has a function {name!r}")
        self._own_module()[name] = func
        self._finished = True
        return self._module.get_global_var(name)

    # Scopes and blocks

    def begin_scope(self, params: Sequence[Var] | None = None) -> None:
        """Begin a function body or branch; later bindings are emitted into it."""
        params = params or ()
        scope = _Scope(self._scopes[-1].symbolic if self._scopes else (), params)
        for param in params:
            scope.know(param.ty)
            if type(param.ty) in (PrimType, ShapeType):
                scope.symbolic.add(param)
        self._scopes.append(scope)
        scope.open = _Block(is_dataflow=False)

    def end_scope(self, result: Expr) -> SeqExpr:
        """End the innermost function body or branch; `result` is its value."""
        value = self._result(result)
        scope = self._scopes.pop()
        self._close(scope)
        return SeqExpr(scope.blocks, value)

    @property
    def in_scope(self) -> bool:
        """Whether bindings can be emitted now."""
        return bool(self._scopes)

    @property
    def depth(self) -> int:
        """The number of scopes that are open."""
        return len(self._scopes)

    def leave_scope(self) -> list[BindingBlock]:
        """End the innermost function body or branch without a value; returns its blocks."""
        scope = self._scopes.pop()
        self._close(scope)
        if self._scopes:
            for block in scope.blocks:
                for binding in block.bindings:
                    if isinstance(binding, MatchCast):
                        self._scopes[-1].know(binding.ty)
        return scope.blocks

    def _result(self, result: Expr) -> Expr:
        """Normalize the value of a body to a leaf or a tuple of leaves."""
        normalized = self.normalize(result)
        if isinstance(normalized, Tuple) or is_leaf(normalized):
            return normalized
        return self.emit(normalized, "gv")

    @staticmethod
    def _close(scope: _Scope) -> None:
        if scope.open is not None and scope.open.bindings:
            scope.blocks = joined_blocks([*scope.blocks, scope.open.finish()])
        scope.open = None

    def dataflow(self) -> _DataflowScope:
        """Return a context manager that collects the emitted bindings in a `DataflowBlock`."""
        return _DataflowScope(self)

    def _scope(self, doing: str) -> _Scope:
        if not self._scopes:
            raise RuntimeError(f"{doing}: not within a function")
        return self._scopes[-1]

    def _begin_block(self, is_dataflow: bool) -> None:
        scope = self._scope("dataflow")
        if scope.open is not None and scope.open.is_dataflow:
            raise RuntimeError("dataflow: a dataflow block cannot be inside another")
        self._close(scope)
        scope.open = _Block(is_dataflow)

    def _end_block(self) -> None:
        if not self._scopes:
            return
        self._close(self._scopes[-1])
        self._scopes[-1].open = _Block(is_dataflow=False)

    def _current(self, doing: str) -> _Block:
        block = self._scope(doing).open
        assert block is not None
        return block

    # Bindings

    def emit(self, expr: Any, name_hint: str = "", span: Any = None) -> Var:
        """Bind an expression to a new variable and return the variable."""
        block = self._current("emit")
        value = convert_to_expr(expr)
        if type(value) in _SCOPES:
            check_sharing(value, "emit")
        value = self.normalize(value)
        if block.is_dataflow:
            var: Var = DataflowVar(self._names.unique(name_hint or "lv"), value.ty)
        else:
            var = Var(self._names.unique(name_hint or "gv"), value.ty)
        self.emit_normalized(VarBinding(var, value, span if span is not None else expr_span(expr)))
        return var

    def emit_output(self, output: Any, name_hint: str = "") -> Var:
        """Bind an expression to a variable that is visible outside of the dataflow block."""
        block = self._current("emit_output")
        if not block.is_dataflow:
            raise RuntimeError("emit_output: not within a dataflow block; use emit")
        if isinstance(output, (list, tuple)):
            output = Tuple(output)
        value = self.normalize(convert_to_expr(output))
        var = Var(self._names.unique(name_hint or "gv"), value.ty)
        self.emit_normalized(VarBinding(var, value, expr_span(output)))
        return var

    @with_headroom("match_cast")
    def match_cast(self, value: Any, ty: Type, name_hint: str = "", span: Any = None) -> Var:
        """Bind a value to a variable of type `ty`; the type is checked at run time.

        Raises:
            TypeError: no value has both types.
        """
        block = self._current("match_cast")
        expr = self._argument(convert_to_expr(value))
        if base_check(ty, expr.ty) == 0 and base_check(expr.ty, ty) == 0:
            raise TypeError(f"match_cast: {expr} is of type {expr.ty}, which is never {ty}")
        cls = DataflowVar if block.is_dataflow else Var
        var = cls(self._names.unique(name_hint or ("lv" if block.is_dataflow else "gv")), ty)
        self.emit_normalized(MatchCast(var, expr, ty, span))
        return var

    def emit_normalized(self, binding: Binding) -> None:
        """Append a binding whose value is in normal form and has a type."""
        scope = self._scope("emit")
        if binding.span is None and self.place is not None:
            binding = _at(binding, self.place)
        if isinstance(binding, MatchCast):
            scope.know(binding.ty)
        var = binding.var
        if type(var.ty) in (PrimType, ShapeType):
            scope.symbolic.add(var)
        self._bound[var] = binding.value
        assert scope.open is not None
        scope.open.bindings.append(binding)

    def lookup_binding(self, var: Var) -> Expr | None:
        """Return the value that this builder bound to a variable, or None."""
        return self._bound.get(var)

    def know_binding(self, binding: Binding) -> None:
        """Let `lookup_binding` find the value of a binding that is not emitted here."""
        self._bound[binding.var] = binding.value

    # Calls of PrimFuncs made from tensor expressions

    def call_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Call:
        """Make a PrimFunc from a tensor expression, add it to the module, and return a call of it.
        Tensor arguments are passed to `func` as te tensors, and it returns te tensors; see
        `relaxvm.te`."""
        from ..te import call_of_te

        return call_of_te(self, func, *args, **kwargs)

    def emit_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Var:
        """Bind the result of `call_te` to a variable."""
        name_hint = kwargs.pop("name_hint", "")
        return self.emit(self.call_te(func, *args, **kwargs), name_hint)

    # Normal form

    def normalize(self, expr: Expr) -> Expr:
        """Return the expression in normal form with its type; nested operands are emitted as
        bindings."""
        checkpoint()
        kind = KINDS[type(expr)]
        if kind is Call:
            return self._call(expr)
        if kind in _LEAVES:
            return expr
        if isinstance(expr, Tuple):
            fields = self._arguments(expr.fields)
            if fields is not expr.fields:
                expr = Tuple(fields, expr.span)
        elif isinstance(expr, TupleGetItem):
            value = self._argument(expr.tuple_value)
            if value is not expr.tuple_value:
                expr = TupleGetItem(value, expr.index, expr.span)
        elif kind is If or kind is Match:
            if self._scopes and self._current(kind.__name__).is_dataflow:
                article = "an If" if kind is If else "a Match"
                raise TypeError(f"{article} cannot be in a dataflow block")
            return self._if(expr) if kind is If else self._match(expr)
        elif kind is SeqExpr:
            return self._seq(expr)
        elif kind is Function:
            return self._local_function(expr)
        return self.infer(expr)

    def infer(self, expr: Expr) -> Expr:
        """Infer the type of an expression in normal form, in the current scope."""
        if expr.ty is None:
            infer_type(expr, self._scopes[-1].symbolic if self._scopes else ())
        return expr

    def _argument(self, expr: Expr) -> Expr:
        """Return the operand for an expression: itself, or a variable bound to it.  Its own
        operands are handled first; a stack instead of recursion, since nesting is often deep."""
        if type(expr) in _LEAVES:
            return expr
        if not _operands(expr):
            return self._operand(expr, {})
        found: dict[int, Expr] = {}
        work = [expr]
        while work:
            inner = work[-1]
            missing = [e for e in _operands(inner) if id(e) not in found]
            if missing:
                work += reversed(missing)
                continue
            work.pop()
            if id(inner) not in found:
                found[id(inner)] = self._operand(inner, found)
        return found[id(expr)]

    def _operand(self, expr: Expr, found: Mapping[int, Expr]) -> Expr:
        """Return the operand for an expression; `found` maps ids of its own operands to theirs."""
        if isinstance(expr, Tuple):
            return self.infer(_with_operands(expr, found))
        if is_leaf(expr):
            return expr
        known = self._current("emit").operands.get(id(expr))
        if known is not None:
            return known[1]
        var = self.emit(_with_operands(expr, found), span=expr.span)
        self._current("emit").operands[id(expr)] = expr, var
        return var

    def _arguments(self, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        for expr in exprs:
            if type(expr) not in _LEAVES:
                break
        else:
            return exprs
        new = [self._argument(expr) for expr in exprs]
        if all(a is b for a, b in zip(new, exprs, strict=True)):
            return exprs
        return tuple(new)

    def _call(self, call: Any) -> Expr:
        op = call.op if type(call.op) in _LEAVES else self._argument(call.op)
        args = self._arguments(call.args)
        if op is not call.op or args is not call.args:
            call = Call(op, args, call.attrs, call.ty_args, span=call.span)
        if call.ty is None:
            self.infer(call)
        if type(op) is Op and op.normalizer is not None and self._applies_normalizers:
            return self._own_form(call, op)
        new: Expr = call
        return new

    def _own_form(self, call: Call, op: Op) -> Expr:
        """Apply an operator's own normalizer.  Once: one that never settles must not hang."""
        new = op.normalized(self, call)
        if new is call:
            return call
        if isinstance(new, Call) and new.op is call.op:
            args = self._arguments(new.args)
            if args is not new.args:
                new = Call(new.op, args, new.attrs, new.ty_args, span=new.span)
            return self.infer(new)
        return self.normalize(new)

    def _if(self, expr: Any) -> Expr:
        cond = self._argument(expr.cond)
        then = self._branch(expr.true_branch)
        orelse = self._branch(expr.false_branch)
        if cond is not expr.cond or then is not expr.true_branch or orelse is not expr.false_branch:
            expr = If(cond, then, orelse, span=expr.span)
        return self.infer(expr)

    def _match(self, expr: Any) -> Expr:
        data = self._argument(expr.data)
        self.infer(data)
        clauses = []
        for clause in expr.clauses:
            bind_pattern(clause.lhs, data.ty)
            rhs = self._branch(clause.rhs, pattern_vars(clause.lhs))
            if rhs is not clause.rhs:
                clause = Clause(clause.lhs, rhs, clause.guard, clause.span)
            clauses.append(clause)
        if data is not expr.data or any(
            a is not b for a, b in zip(clauses, expr.clauses, strict=True)
        ):
            expr = Match(data, clauses, expr.complete, span=expr.span)
        return self.infer(expr)

    def _branch(self, seq: SeqExpr, bound: Sequence[Var] = ()) -> SeqExpr:
        self.begin_scope(bound)
        depth = len(self._scopes)
        try:
            new = self.end_scope(self._seq(seq))
        except BaseException:
            del self._scopes[depth - 1 :]
            raise
        return seq if _same_seq(new, seq) else new

    def _seq(self, seq: Any) -> Expr:
        """Emit the blocks of a sequence into the current scope and return its value."""
        for block in seq.blocks:
            outer = self._current("blocks")
            if isinstance(block, DataflowBlock) and not outer.is_dataflow:
                self._begin_block(is_dataflow=True)
                for binding in block.bindings:
                    self._binding(binding)
                self._end_block()
            else:
                for binding in block.bindings:
                    self._binding(binding)
        return self.normalize(seq.body)

    def _binding(self, binding: Binding) -> None:
        if isinstance(binding, MatchCast):
            value = self._argument(binding.value)
            if value is not binding.value:
                binding = MatchCast(binding.var, value, binding.ty, binding.span)
        else:
            value = self._bound_value(binding.value)
            if value is not binding.value:
                binding = VarBinding(binding.var, value, binding.span)
        if binding.var.ty is None:
            binding.var.ty = binding.ty if isinstance(binding, MatchCast) else binding.value.ty
        self.emit_normalized(binding)

    def _bound_value(self, value: Expr) -> Expr:
        # An If in a dataflow block is reported by `relaxvm.analysis.well_formed`.
        kind = KINDS[type(value)]
        if kind is If:
            return self._if(value)
        return self._match(value) if kind is Match else self.normalize(value)

    def _local_function(self, func: Any) -> Expr:
        self.begin_scope(func.params)
        depth = len(self._scopes)
        try:
            body = self.end_scope(self._seq(func.body))
        except BaseException:
            del self._scopes[depth - 1 :]
            raise
        return self.infer(_same_or_new(func, body))


CONTEXT["builder"] = lambda: BlockBuilder.current() or BlockBuilder()


def _operands(expr: Any) -> tuple[Expr, ...]:
    """The operands of an expression; not the expressions inside branches and functions."""
    kind = KINDS[type(expr)]
    if kind is Call:
        operands = (expr.op, *expr.args)
    elif kind is Tuple:
        operands = expr.fields
    elif kind is TupleGetItem:
        operands = (expr.tuple_value,)
    else:
        return ()
    return tuple([e for e in operands if type(e) not in _LEAVES])


def _with_operands(expr: Any, found: Mapping[int, Expr]) -> Expr:
    """Replace the operands of an expression; `found` maps their ids to the new ones."""
    replaced = [(e, found[id(e)]) for e in _operands(expr)]
    if all(a is b for a, b in replaced):
        return expr  # type: ignore[no-any-return]
    new = {id(a): b for a, b in replaced}
    if isinstance(expr, Call):
        args = [new.get(id(e), e) for e in expr.args]
        op = new.get(id(expr.op), expr.op)
        # A variable has the type of its value: so has the call.
        ty = expr.ty if all(a.ty is b.ty for a, b in replaced) else None
        return Call(op, args, expr.attrs, expr.ty_args, expr.span, ty)
    if isinstance(expr, Tuple):
        return Tuple([new.get(id(e), e) for e in expr.fields], expr.span)
    return TupleGetItem(new[id(expr.tuple_value)], expr.index, expr.span)


def _same_or_new(func: Function, body: SeqExpr) -> Function:
    if _same_seq(body, func.body):
        return func
    return func.replace(body=body)


def _same_seq(a: SeqExpr, b: SeqExpr) -> bool:
    return (
        a.body is b.body
        and len(a.blocks) == len(b.blocks)
        and all(
            KINDS[type(x)] is KINDS[type(y)] and len(x.bindings) == len(y.bindings)
            and all(p is q for p, q in zip(x.bindings, y.bindings, strict=True))
            for x, y in zip(a.blocks, b.blocks, strict=True)
        )
    )  # fmt: skip


def _at(binding: Binding, place: Span) -> Binding:
    """A binding that comes from a place of the source."""
    if isinstance(binding, MatchCast):
        return MatchCast(binding.var, binding.value, binding.ty, place)
    return VarBinding(binding.var, binding.value, place)


def expr_span(expr: Any) -> Any:
    """The source location of an expression, if known."""
    return getattr(expr, "span", None)
