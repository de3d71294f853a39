"""VMShapeLower: compute symbolic shapes on the shape heap, and check the types of arguments.

Each function gets a heap of int64 slots, one for each scalar expression in its types and shapes.
Slots of variables are set when the shapes of arguments are matched.  Other slots are computed from
them by a private PrimFunc `shape_func` on the heap, as soon as possible.

Source: the pass of the same name in apache-tvm 0.27.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ..executable.shape_codes import MakeShapeCode, MatchShapeCode
from ..ir import (
    ANY,
    Analyzer,
    AnyType,
    Attrs,
    Binding,
    BindingBlock,
    Call,
    DataTypeImm,
    Expr,
    ExprMutator,
    ExprVisitor,
    ExternFunc,
    Function,
    FuncType,
    GlobalVar,
    If,
    IntImm,
    IRModule,
    MatchCast,
    Op,
    PrimType,
    SeqExpr,
    ShapeExpr,
    ShapeType,
    StringImm,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    VarBinding,
    expr_key,
    free_vars,
    int_imm,
    is_base_of,
    note_binding,
    substitute,
    substitute_type,
    type_free_vars,
)
from ..ir.infer import type_of_call
from ..ir.prim import Cast, Div, FloorDiv, FloorMod, Mod
from ..op import base
from ..script.printer import as_script
from ..tir import Buffer, BufferLoad, BufferStore, BufferType, PrimFunc, SeqStmt
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["VMShapeLower"]

_VOID: Final = TupleType(())
_DIVISIONS: Final = (Div, FloorDiv, FloorMod, Mod)


class _Slot:
    """A slot of the heap: whether its value is set yet, and where it is needed first."""

    __slots__ = ("computed", "expr", "index", "span", "variables")

    def __init__(self, index: int, expr: Expr, span: Any) -> None:
        self.index = index
        self.expr = expr
        self.span = span
        self.computed = False
        self.variables: tuple[Var, ...] = () if isinstance(expr, Var) else tuple(free_vars(expr))

    @property
    def divides(self) -> bool:
        """Whether its value is a division that may be by zero, so that computing it may fail."""
        return any(
            isinstance(part, _DIVISIONS) and type(part.b) is not IntImm
            for part in _parts(self.expr)
        )


def _parts(scalar: Expr) -> Iterator[Expr]:
    """A scalar expression and its subexpressions."""
    yield scalar
    for field in scalar.FIELDS:
        part = getattr(scalar, field)
        if isinstance(part, Expr):
            yield from _parts(part)


class _Slots(ExprVisitor):
    """The heap of a function: slots in order of first appearance.  Provably equal expressions share
    a slot."""

    def __init__(self, func: Function) -> None:
        self.all: list[_Slot] = []
        self.by_key: dict[Any, _Slot] = {}
        self._by_form: dict[Any, _Slot] = {}
        self._analyzer = Analyzer()
        self._locals: set[Var] = set(func.params)
        self._span = func.span
        for param in func.params:
            self._span = param.span or func.span
            self.visit_type(param.ty)
        self._span = func.span
        self.visit(func.body)
        self._span = func.body.body.span or func.span
        self.visit_type(func.ret_ty)

    def __len__(self) -> int:
        return len(self.all)

    def get(self, expr: Expr) -> _Slot:
        return self.by_key[expr_key(expr)]

    def _add(self, expr: Expr) -> None:
        if type(expr) is IntImm:
            return
        key = expr_key(expr)
        if key in self.by_key:
            return
        slot = made = _Slot(len(self.all), expr, self._span)
        if made.variables and expr.ty.dtype == "int64":
            form = frozenset(self._analyzer.normal_form(expr).items())
            slot = self._by_form.setdefault(form, made)
        self.by_key[key] = slot
        if slot is made:
            self.all.append(made)
        for var in made.variables:
            self._add(var)

    def visit_type(self, ty: Any) -> None:
        if type(ty) is TensorType:
            if isinstance(ty.shape, ShapeExpr):
                self.visit_shape(ty.shape)
        elif type(ty) is ShapeType:
            for value in ty.values or ():
                self._add(value)
        elif type(ty) is TupleType:
            for field in ty.fields:
                self.visit_type(field)

    def visit_call(self, call: Call) -> None:
        # Types of results are guaranteed by the callee and need no slots here.
        for arg in call.args:
            if not isinstance(arg, Var):
                self.visit(arg)
            elif type(arg.ty) is PrimType:
                self.visit_var(arg)

    def visit_binding(self, binding: Binding) -> None:
        self._locals.add(binding.var)
        self._span = binding.span or self._span
        super().visit_binding(binding)

    def visit_var(self, var: Var) -> None:
        # A scalar that is a parameter or bound has a register; other variables are symbolic.
        if type(var.ty) is PrimType and var not in self._locals:
            self._add(var)

    def visit_shape(self, expr: ShapeExpr) -> None:
        for value in expr.values:
            self._add(value)

    def visit_scalar(self, scalar: Expr) -> None:
        if type(scalar.ty) is PrimType and scalar.ty.dtype in ("int64", "bool"):
            self._add(scalar)


class _Match(NamedTuple):
    """A value whose dimensions are compared with slots, or stored in them."""

    value: Expr
    pattern: tuple[Expr, ...]
    context: str
    is_scalar: bool = False


class _FunctionLowerer(ExprMutator):
    """Lowers one function.  `self._out` collects the bindings to insert before the current one."""

    def __init__(self, name: str, func: Function, module: _ModuleLowerer) -> None:
        super().__init__()
        self._name = name
        self._func = func
        self._module = module
        self._slots = _Slots(func)
        has_heap = len(self._slots) > 0
        self._heap = Var("shape_heap", TensorType(None, "int64", ndim=1) if has_heap else ANY)
        self._out: list[Binding] = []
        self._rechecks: list[_Match] = []
        self._registers: set[Var] = set(func.params)
        self._shapes: dict[Var, Expr] = {}
        """Variables that types may mention as whole shapes -> their replacements."""
        self._span = func.span
        """The source location of emitted bindings."""

    def lower(self) -> Function:
        func = self._func
        self._bind_heap()
        num_input = func.attrs.get("num_input")
        matches: list[_Match] = []
        for position, param in enumerate(func.params):
            context = (
                f"ErrorContext(fn={self._name}, loc=param[{position}], param={param.name}, "
                f"annotation={as_script(param.ty)}) "
                if self._module.emit_err_ctx
                else ""
            )
            is_weight = num_input is not None and position >= int(num_input)
            self._span = param.span or func.span
            self._check(param, param.ty, context, matches, dynamic_only=is_weight)
        self._span = func.span
        self._match(matches)
        self._check_upper_bounds()
        body = self._body(func.body)
        return Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)

    def _check_upper_bounds(self) -> None:
        """Emit checks of the bounds that the function declares, since memory planning relies on
        them."""
        bounds = self._func.attrs.get("tir_var_upper_bound") or {}
        context = f"ErrorContext(fn={self._name}) " if self._module.emit_err_ctx else ""
        types = [param.ty for param in self._func.params] if bounds else ()
        for var in dict.fromkeys(v for ty in types for v in type_free_vars(ty)):
            slot = self._slots.get(var)
            if var.name in bounds and slot.computed:
                self._call(
                    "relaxvm.builtin.check_upper_bound", self._heap, int_imm(slot.index),
                    int_imm(int(bounds[var.name])), StringImm(var.name), StringImm(context),
                )  # fmt: skip

    def _bind_heap(self) -> None:
        if len(self._slots):
            heap: Expr = base.call_builtin_with_ctx(
                "vm.builtin.alloc_shape_heap",
                Tuple([int_imm(len(self._slots))]),
                ty_args=[self._heap.ty],
            )
        else:
            heap = base.null_value()
        self._out.append(VarBinding(self._heap, heap, self._func.span))

    def _body(self, seq: SeqExpr) -> SeqExpr:
        """Lower the body of the function, and emit the check of the result."""
        self._sequence(seq)
        self._span = seq.body.span or self._func.span
        body = self.visit(seq.body)
        self._check_result(seq.body, body)
        return SeqExpr([BindingBlock(self._out)], body, span=seq.span)

    def _sequence(self, seq: SeqExpr) -> None:
        for block in seq.blocks:
            for binding in block.bindings:
                try:
                    new = self.visit_binding(binding)
                except Exception as error:
                    note_binding(error, binding)
                    raise
                if isinstance(new, Binding):
                    self._out.append(new)
                else:
                    self._out += new

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        outer, self._out = self._out, []
        known = [slot for slot in self._slots.all if slot.computed]
        self._sequence(seq)
        body = self.visit(seq.body)
        bindings, self._out = self._out, outer
        # Slots that only one branch has computed are not set after it.
        for slot in self._slots.all:
            slot.computed = False
        for slot in known:
            slot.computed = True
        return SeqExpr([BindingBlock(bindings)] if bindings else [], body, span=seq.span)

    def visit_function(self, func: Function) -> Expr:
        raise TypeError(
            f"VMShapeLower: function {self._name!r} has a local function; run LambdaLift first"
        )

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        self._registers.add(binding.var)
        self._span = binding.span
        if isinstance(binding, VarBinding):
            new = super().visit_binding(binding)
            if isinstance(binding.value, ShapeExpr) and isinstance(new, VarBinding):
                new = self._bind_directly(new)
            if type(binding.var.ty) is ShapeType and binding.var in self.var_map:
                self._shapes[binding.var] = self.var_map[binding.var]
            if type(binding.var.ty) is PrimType and expr_key(binding.var) in self._slots.by_key:
                assert isinstance(new, Binding)
                self._out.append(new)
                self._match([_Match(new.var, (binding.var,), "", is_scalar=True)])
                return []
            return new
        assert isinstance(binding, MatchCast)
        value = self.visit(binding.value)
        context = (
            f"ErrorContext(match_cast, ty={as_script(binding.ty)}) "
            if self._module.emit_err_ctx
            else ""
        )
        matches: list[_Match] = []
        if not isinstance(value, Var):
            value = self._emit("gv", value)
        self._check(value, binding.ty, context, matches, known=binding.value.ty)
        self._match(matches)
        ty = self.visit_type(binding.ty)
        if value is binding.value and ty is binding.ty:
            return binding
        return MatchCast(self._var_of_cast(binding, ty), value, ty, binding.span)

    def _bind_directly(self, binding: VarBinding) -> VarBinding:
        """If a binding renames the variable that was just emitted and has no other use, bind the
        value directly."""
        if not self._out or self._out[-1].var is not binding.value:
            return binding
        return VarBinding(binding.var, self._out.pop().value, binding.span)

    # Uses of symbolic scalars

    def visit_var(self, var: Var) -> Expr:
        if type(var.ty) is PrimType and var not in self._registers and var not in self.var_map:
            return self._load_scalar(var)
        return self.var_map.get(var, var)

    def visit_scalar(self, scalar: Expr) -> Expr:
        if type(scalar) is IntImm or not free_vars(scalar):
            return scalar
        if expr_key(scalar) not in self._slots.by_key:
            raise TypeError(
                f"function {self._name!r}: {scalar} is a computation of type {scalar.ty}; run "
                "ComputePrimValue first"
            )
        return self._load_scalar(scalar)

    def visit_shape(self, expr: ShapeExpr) -> Expr:
        if all(type(v) is IntImm for v in expr.values):
            return expr
        args: list[Any] = [self._heap, int_imm(len(expr.values))]
        for value in expr.values:
            if type(value) is IntImm:
                args += (int_imm(MakeShapeCode.USE_IMM), value)
            else:
                args += (int_imm(MakeShapeCode.LOAD_SHAPE), int_imm(self._slot(value).index))
        ty = ShapeType(ndim=len(expr.values))
        return self._emit("gv", _packed("vm.builtin.make_shape", args, ty))

    def visit_call(self, call: Call) -> Expr:
        op = call.op
        if not isinstance(op, Op):
            op = self.visit(op)
        args = self.visit_all(call.args)
        if op is call.op and args is call.args:
            return call
        ty_args = call.ty_args
        if self._shapes:
            ty_args = tuple([self.visit_type(ty) for ty in ty_args])
        new = Call(op, args, call.attrs, ty_args, ret_ty=self.visit_type(call.ty), span=call.span)
        if isinstance(op, Op):
            new.ty = op.infer(new)  # of a shape that is a variable now, only the rank is known
        elif not isinstance(op, ExternFunc):
            new.ty = type_of_call(new)
        return new

    def visit_type(self, ty: Any) -> Any:
        return substitute_type(ty, self._shapes)

    def visit_if(self, expr: If) -> Expr:
        cond = self.visit(expr.cond)
        then = self.visit(expr.true_branch)
        orelse = self.visit(expr.false_branch)
        return self.infer(If(cond, then, orelse, span=expr.span), self.visit_type(expr.ty))

    def _load_scalar(self, scalar: Expr) -> Expr:
        slot = self._slot(scalar)
        args = (self._heap, int_imm(MakeShapeCode.LOAD_SHAPE), int_imm(slot.index))
        return self._emit("gv", _packed("vm.builtin.make_prim_value", args, scalar.ty))

    def _slot(self, expr: Expr) -> _Slot:
        slot = self._slots.get(expr)
        if not slot.computed:
            missing = [str(v) for v in free_vars(expr) if not self._slots.get(v).computed]
            if not missing:
                raise OverflowError(
                    f"function {self._name!r}: {expr} has no value: it does not fit 64 bits, or "
                    "divides by zero"
                )
            raise TypeError(
                f"function {self._name!r}: symbolic variable {', '.join(missing)} has no value "
                "here: it is not defined by a parameter's type or an earlier match_cast"
            )
        return slot

    def _emit(self, name: str, value: Expr) -> Var:
        var = Var(name, value.ty)
        self._out.append(VarBinding(var, value, self._span))
        self._registers.add(var)
        return var

    # Checks

    def _call(self, name: str, *args: Any) -> None:
        call = _packed(name, args, _VOID)
        self._out.append(VarBinding(Var("_", _VOID), call, self._span))

    def _check(
        self,
        value: Expr,
        ty: Any,
        context: str,
        matches: list[_Match] | None,
        *,
        known: Any = None,
        dynamic_only: bool = False,
    ) -> None:
        """Emit the checks of a value that do not concern its dimensions.  Add these to `matches`,
        or check them immediately if that is None.  Checks that the type `known` implies are left
        out."""
        if type(ty) is AnyType:
            return
        ctx = StringImm(context)
        if type(ty) is TensorType:
            unshaped = TensorType(None, ty.dtype, ndim=ty.ndim)
            is_wanted = not dynamic_only or _is_dynamic(ty)
            if is_wanted and (known is None or not is_base_of(unshaped, known)):
                self._check_tensor(value, ty, ctx)
            shape = ty.shape
            if isinstance(shape, ShapeExpr):
                same = known is not None and is_base_of(ty, known)
                self._add_match(value, shape.values, context, matches, dynamic_only, same)
            elif isinstance(shape, Var) and shape in self._registers and known is None:
                raise TypeError(
                    f"function {self._name!r}: a parameter's shape is the variable {shape}; "
                    "expected dimensions"
                )
        elif type(ty) is ShapeType:
            if known is None or not is_base_of(ShapeType(ndim=ty.ndim), known):
                self._call("vm.builtin.check_shape_info", value, int_imm(ty.ndim), ctx)
            if ty.values is not None:
                same = known is not None and is_base_of(ty, known)
                self._add_match(value, ty.values, context, matches, dynamic_only, same)
        elif type(ty) is PrimType:
            if known is None or not is_base_of(ty, known):
                self._call("vm.builtin.check_prim_value_info", value, DataTypeImm(ty.dtype), ctx)
            if matches is not None and expr_key(value) in self._slots.by_key:
                matches.append(_Match(value, (value,), context, is_scalar=True))
        elif type(ty) is TupleType:
            self._check_tuple(value, ty, context, matches, known, dynamic_only)
        elif type(ty) is FuncType:
            if known is None or type(known) is not FuncType:
                self._call("vm.builtin.check_func_info", value, ctx)
        else:
            raise TypeError(f"VMShapeLower: no check of type {ty}")

    def _check_tensor(self, value: Expr, ty: TensorType, ctx: Expr) -> None:
        dtype: Expr
        if ty.dtype is None:
            dtype = self._emit("gv", base.null_value())
        else:
            dtype = DataTypeImm(ty.dtype)
        self._call("vm.builtin.check_tensor_info", value, int_imm(ty.ndim), dtype, ctx)

    def _check_tuple(
        self,
        value: Expr,
        ty: TupleType,
        context: str,
        matches: list[_Match] | None,
        known: Any,
        dynamic_only: bool,
    ) -> None:
        is_known = type(known) is TupleType and len(known.fields) == len(ty.fields)
        if not is_known:
            count = int_imm(len(ty.fields))
            self._call("vm.builtin.check_tuple_info", value, count, StringImm(context))
        for index, field in enumerate(ty.fields):
            inner = known.fields[index] if is_known else None
            if inner is not None and is_base_of(field, inner):
                continue
            if dynamic_only and not _is_dynamic(field):
                continue
            self._check(
                self._element(value, index),
                field,
                context,
                matches,
                known=inner,
                dynamic_only=dynamic_only,
            )

    def _element(self, value: Expr, index: int) -> Expr:
        """An element of a value that is a tuple, or was checked to be one."""
        if isinstance(value, Tuple):
            return value.fields[index]
        if type(value.ty) is TupleType:
            return self._emit("gv", TupleGetItem(value, index))
        args = [value, int_imm(index)]
        return self._emit("gv", _packed("vm.builtin.tuple_getitem", args, ANY))

    def _add_match(
        self,
        value: Expr,
        dims: tuple[Expr, ...],
        context: str,
        matches: list[_Match] | None,
        dynamic_only: bool,
        same: bool,
    ) -> None:
        if same or not dims or (dynamic_only and all(type(d) is IntImm for d in dims)):
            return
        match = _Match(value, dims, context)
        if matches is None:
            self._match([match])
        else:
            matches.append(match)

    def _match(self, matches: list[_Match]) -> None:
        """Emit the matches, then compute the slots that can be computed, then emit the remaining
        checks."""
        rechecks: list[_Match] = []
        for match in matches:
            if self._emit_match(match):
                rechecks.append(match)
        self._compute()
        for match in [*self._rechecks, *rechecks]:
            if all(type(d) is IntImm or self._slots.get(d).computed for d in match.pattern):
                self._emit_match(match)
                rechecks = [m for m in rechecks if m is not match]
                self._rechecks = [m for m in self._rechecks if m is not match]
        self._rechecks += rechecks

    def _emit_match(self, match: _Match) -> bool:
        """Emit a match; returns whether some dimensions must be checked later.  If all must be,
        nothing is emitted."""
        codes: list[Expr] = []
        later = is_known = False
        for dim in match.pattern:
            if type(dim) is IntImm:
                code, operand = MatchShapeCode.ASSERT_EQUAL_TO_IMM, dim.value
            else:
                slot = self._slots.get(dim)
                operand = slot.index
                if slot.computed:
                    code = MatchShapeCode.ASSERT_EQUAL_TO_LOAD
                elif isinstance(dim, Var):
                    code = MatchShapeCode.STORE_TO_HEAP
                    slot.computed = True
                else:
                    code, operand, later = MatchShapeCode.NO_OP, 0, True
            is_known = is_known or code != MatchShapeCode.NO_OP
            codes += (int_imm(code), int_imm(operand))
        if not is_known:
            return True
        if match.is_scalar:
            self._call("vm.builtin.match_prim_value", match.value, self._heap, *codes,
                       StringImm(match.context))  # fmt: skip
        else:
            count = int_imm(len(match.pattern))
            self._call("vm.builtin.match_shape", match.value, self._heap, count, *codes,
                       StringImm(match.context))  # fmt: skip
        return later

    def _compute(self) -> None:
        ready = []
        for slot in self._slots.all:
            if slot.computed or not (slot.variables or _has_value(slot.expr)):
                continue
            if all(self._slots.get(v).computed for v in slot.variables):
                ready.append(slot)
        if not ready:
            return
        for slot in ready:
            slot.computed = True
        gv = self._module.add_shape_func(len(self._slots), ready, self._slots)
        call = Call(gv, [self._heap], ret_ty=_VOID)
        first = next((slot for slot in ready if slot.divides), ready[0])
        self._out.append(VarBinding(Var("_", _VOID), call, first.span or self._span))

    def _check_result(self, result: Expr, lowered: Expr) -> None:
        ret_ty = self._func.ret_ty
        if is_base_of(ret_ty, result.ty):
            return
        context = (
            f"ErrorContext(fn={self._name}, loc=return, annotation={as_script(ret_ty)}) "
            if self._module.emit_err_ctx
            else ""
        )
        self._check(lowered, ret_ty, context, None, known=result.ty)


def _has_value(expr: Expr) -> bool:
    """Check whether an expression without variables has a value: constants are folded as they are
    made, but a file may have others."""
    return type(Analyzer().simplify(expr)) is IntImm


def _is_dynamic(ty: Any) -> bool:
    dims = ty.dims if type(ty) is TensorType else ty.values if type(ty) is ShapeType else None
    if dims is not None:
        return any(type(d) is not IntImm for d in dims)
    return type(ty) is TupleType and any(map(_is_dynamic, ty.fields))


def _packed(name: str, args: Any, ty: Any) -> Call:
    return Call(_extern(name), args, None, (ty,), ret_ty=ty)


_EXTERNS: Final[dict[str, ExternFunc]] = {}


def _extern(name: str) -> ExternFunc:
    found = _EXTERNS.get(name)
    if found is None:
        found = _EXTERNS[name] = ExternFunc(name)
    return found


class _ModuleLowerer:
    """Lowers the functions of a module; shape functions are added to it."""

    def __init__(self, mod: IRModule, emit_err_ctx: bool) -> None:
        self.emit_err_ctx = emit_err_ctx
        self.module = mod.copy()

    def add_shape_func(self, size: int, ready: list[_Slot], slots: _Slots) -> GlobalVar:
        heap = Buffer("H", BufferType((int_imm(size),), "int64"))
        loads = {
            v: BufferLoad(heap, [int_imm(slots.get(v).index)])
            for slot in ready
            for v in slot.variables
        }
        stores = [
            BufferStore(heap, _as_int64(substitute(slot.expr, loads)), [int_imm(slot.index)])
            for slot in ready
        ]
        body = stores[0] if len(stores) == 1 else SeqStmt(stores)
        func = PrimFunc([heap], body, attrs=Attrs({"tirx.is_host_func": True}))
        name = self.module.unique_name("shape_func")
        self.module[name] = func
        gv: GlobalVar = self.module.get_global_var(name)
        return gv

    def run(self) -> IRModule:
        for var, func in self._functions():
            try:
                name = func.attrs.get("global_symbol", var.name_hint)
                self.module[var] = _FunctionLowerer(str(name), func, self).lower()
            except Exception as error:
                error.add_note(f"in function {var.name_hint!r}")
                raise
        return self.module

    def _functions(self) -> Iterator[tuple[GlobalVar, Function]]:
        for var, func in list(self.module.functions.items()):
            if isinstance(func, Function):
                yield var, func


def _as_int64(scalar: Expr) -> Expr:
    return Cast("int64", scalar) if scalar.dtype == "bool" else scalar


def VMShapeLower(*, emit_err_ctx: bool = True) -> Pass:
    """Replace symbolic shapes and scalars by slots of the shape heap, and insert checks of the
    types of parameters, match_casts and results.

    All static checks (kind, rank, data type, length of tuples) come first, then the dimensions: the
    first appearance of a variable stores it, later ones compare.  Computed dimensions are compared
    once their variables are known.  After its checks, a match_cast remains as a renaming.

    Bounds that a function declares by "tir_var_upper_bound" are checked on entry.

    Args:
        emit_err_ctx: whether checks include the text with which their error messages begin.

    Requires: ANF, no local functions; scalar computations lowered (ComputePrimValue), except int64
    arithmetic and conditions on it.
    """

    @module_pass(name="VMShapeLower")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        return _ModuleLowerer(mod, emit_err_ctx).run()

    return run
