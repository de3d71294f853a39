"""Programs built by Python code in the order of a script, with TVM's names::

    with IRBuilder() as builder:
        with function():
            func_name("main")
            x = arg("x", TensorType((2,), "float32"))
            with R.dataflow() as block:
                R.output(emit(R.add(x, x)))
            func_ret_value(block.output_vars[0])
    func = builder.get()

`relaxvm.BlockBuilder` does the same with fewer names; this is for programs that are written for
``tvm.script.ir_builder``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final

from ..ir.block_builder import BlockBuilder
from ..ir.expr import (
    Call,
    DataflowVar,
    Expr,
    Function,
    GlobalVar,
    SeqExpr,
    Tuple,
    Type,
    Var,
    VarBinding,
    convert_to_expr,
)
from ..ir.expr import If as IfExpr
from ..ir.infer import declared_ret_type, function_ret_type, is_base_of
from ..ir.module import IRModule
from ..ir.node import Attrs
from ..ir.substitution import redefine
from .type_forms import type_of

__all__ = [
    "BlockFrame",
    "Else",
    "FunctionFrame",
    "IRBuilder",
    "If",
    "IfFrame",
    "ModuleFrame",
    "Then",
    "arg",
    "dataflow",
    "decl_function",
    "def_function",
    "emit",
    "emit_match_cast",
    "emit_te",
    "emit_var_binding",
    "func_attr",
    "func_name",
    "func_ret_ty",
    "func_ret_type",
    "func_ret_value",
    "function",
    "ir_module",
    "module_attrs",
    "module_global_infos",
    "output",
]

_CURRENT: Final[ContextVar[IRBuilder | None]] = ContextVar("ir_builder", default=None)


class IRBuilder:
    """What the functions of this module build: a context manager.

    Attributes:
        frames: the frames that are open, the innermost last.
    """

    def __init__(self) -> None:
        self.frames: list[_Frame] = []
        self._outer: IRBuilder | None = None
        self._result: Any = None

    def __enter__(self) -> IRBuilder:
        self._outer = _CURRENT.get()
        _CURRENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.set(self._outer)
        self.frames.clear()

    @staticmethod
    def current() -> IRBuilder:
        """Return the innermost builder.

        Raises:
            ValueError: there is none.
        """
        builder = _CURRENT.get()
        if builder is None:
            raise ValueError("no IRBuilder is active: write `with IRBuilder():` around this")
        return builder

    @staticmethod
    def is_in_scope() -> bool:
        """Whether there is a builder around this."""
        return _CURRENT.get() is not None

    def get(self) -> Any:
        """Return the function or the module that is built.

        Raises:
            ValueError: no frame has ended yet.
        """
        if self._result is None:
            raise ValueError("IRBuilder.get: nothing is built: write `with function():` in it")
        return self._result

    @staticmethod
    def name(name: str, value: Any) -> Any:
        """Name a variable that is under construction, and return it."""
        value.name = name
        return value

    @staticmethod
    def name_many(names: Sequence[str], values: Sequence[Any]) -> list[Any]:
        """Name variables that are under construction, and return them."""
        return [IRBuilder.name(*each) for each in zip(names, values, strict=True)]

    def innermost(self, kind: type[Any], doing: str) -> Any:
        """Return the innermost frame of a class.

        Raises:
            ValueError: there is none.
        """
        for frame in reversed(self.frames):
            if isinstance(frame, kind):
                return frame
        raise ValueError(f"{doing}: expected to be in a {kind.what}")


class _Frame:
    """A context manager that is on the stack of its builder while it is open."""

    what = "frame"

    def __enter__(self) -> Any:
        builder = IRBuilder.current()
        self._open(builder)
        builder.frames.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        builder = IRBuilder.current()
        builder.frames.pop()
        if kind is None:
            self._close(builder)

    def _open(self, builder: IRBuilder) -> None:
        """Check and note what is around the frame."""

    def _close(self, builder: IRBuilder) -> None:
        """Build what the frame is for."""


class ModuleFrame(_Frame):
    """``with ir_module():``; the functions in it become a module."""

    what = "with ir_module()"

    def __init__(self) -> None:
        self.module = IRModule()

    def _close(self, builder: IRBuilder) -> None:
        builder._result = self.module


class FunctionFrame(_Frame):
    """``with function():``; see `function`."""

    what = "with function()"

    def __init__(self, is_pure: bool, is_private: bool) -> None:
        self.is_pure = is_pure
        self.is_private = is_private
        self.name = ""
        self.attrs: dict[str, Any] = {}
        self.params: list[Var] = []
        self.ret_ty: Type | None = None
        self.value: Expr | None = None
        self.last: Var | None = None
        self.outputs: dict[Var, Var] = {}
        self._began = False
        self._builder = BlockBuilder()

    @property
    def builder(self) -> BlockBuilder:
        """The builder of its body, which begins with the first use."""
        if not self._began:
            self._began = True
            self._builder.begin_scope(self.params)
        return self._builder

    def add_param(self, param: Var) -> Var:
        """Add a parameter."""
        if self._began:
            raise ValueError(f"arg: parameter {param.name!r} comes after the first binding")
        self.params.append(param)
        return param

    def _open(self, builder: IRBuilder) -> None:
        if any(isinstance(frame, FunctionFrame) for frame in builder.frames):
            raise ValueError("function: a function is inside of another; emit it as a value")
        for frame in builder.frames:
            if isinstance(frame, ModuleFrame):
                self._builder = BlockBuilder(frame.module)

    def _close(self, builder: IRBuilder) -> None:
        if self.value is None:
            raise ValueError(f"function {self.name!r} has no result: call func_ret_value")
        body = self.builder.end_scope(self.value)
        body = redefine(body, self.outputs)
        if self.ret_ty is None:
            ret = function_ret_type(self.params, body)
        else:
            ret = declared_ret_type(self.ret_ty, self.params, body)
        attrs = {"global_symbol": self.name} if self.name and not self.is_private else {}
        func = Function(self.params, body, ret, self.is_pure, Attrs({**attrs, **self.attrs}))
        outer = builder.frames[-1] if builder.frames else None
        if not isinstance(outer, ModuleFrame):
            builder._result = func
            return
        if not self.name:
            raise ValueError("function: a function of a module needs a name: call func_name")
        for var, made in self._builder.get().items():
            outer.module[var] = made
        outer.module[self.name] = func


class BlockFrame(_Frame):
    """``with R.dataflow() as frame:``

    Attributes:
        output_vars: the variables that `output` has made visible after the block.
    """

    what = "with R.dataflow()"

    def __init__(self) -> None:
        self.output_vars: list[Var] = []

    def _open(self, builder: IRBuilder) -> None:
        self._block = builder.innermost(FunctionFrame, "R.dataflow").builder.dataflow()
        self._block.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        self._block.__exit__(kind, error, traceback)
        super().__exit__(kind, error, traceback)


class IfFrame(_Frame):
    """``with If(condition) as frame:``, which has a `Then` and an `Else`.

    Attributes:
        var: the variable of the result, after the end of the frame.
    """

    what = "with If(...)"

    def __init__(self, condition: Any) -> None:
        self.condition = convert_to_expr(condition)
        self.branches: dict[str, tuple[SeqExpr, str]] = {}
        self.var: Var | None = None

    def _close(self, builder: IRBuilder) -> None:
        if len(self.branches) < 2:
            raise ValueError("If: expected a Then() and an Else() in it")
        frame = builder.innermost(FunctionFrame, "If")
        (then, name), (orelse, _) = self.branches["Then"], self.branches["Else"]
        frame.last = self.var = frame.builder.emit(IfExpr(self.condition, then, orelse), name)


class _BranchFrame(_Frame):
    what = "with Then() or with Else()"

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def _open(self, builder: IRBuilder) -> None:
        outer = builder.frames[-1] if builder.frames else None
        if not isinstance(outer, IfFrame) or self._kind in outer.branches:
            raise ValueError(f"{self._kind}: expected to be in a with If(...), once")
        self._outer = outer
        frame = builder.innermost(FunctionFrame, self._kind)
        frame.builder.begin_scope()
        frame.last = None

    def _close(self, builder: IRBuilder) -> None:
        frame = builder.innermost(FunctionFrame, self._kind)
        if frame.last is None:
            raise ValueError(f"{self._kind}: it emits no value")
        name = frame.last.name
        self._outer.branches[self._kind] = frame.builder.end_scope(frame.last), name


def _function(doing: str) -> FunctionFrame:
    frame: FunctionFrame = IRBuilder.current().innermost(FunctionFrame, doing)
    return frame


# Modules


def ir_module() -> ModuleFrame:
    """``with ir_module():`` builds a module of the functions in it."""
    return ModuleFrame()


def _module(doing: str) -> IRModule:
    frame: ModuleFrame = IRBuilder.current().innermost(ModuleFrame, doing)
    return frame.module


def decl_function(func_name: str, func_signature: Any) -> GlobalVar:
    """Add a function, which `def_function` may replace, to the module, and return its variable."""
    mod = _module("decl_function")
    mod[func_name] = func_signature
    return mod.get_global_var(func_name)


def def_function(func_name: str, func: Any) -> None:
    """Add a function to the module, or replace it."""
    _module("def_function")[func_name] = func


def module_attrs(attrs: Mapping[str, Any]) -> None:
    """Set the attributes of the module."""
    _module("module_attrs").attrs = Attrs(attrs)


def module_global_infos(infos: Mapping[str, Sequence[Any]]) -> None:
    """Set the global infos of the module, by kind."""
    mod = _module("module_global_infos")
    for kind, values in infos.items():
        mod.update_global_info(kind, values)


# Functions


def function(is_pure: bool = True, is_private: bool = False) -> FunctionFrame:
    """``with function():`` builds a function.

    Args:
        is_pure: whether a call has no side effects.
        is_private: if true, it gets no attribute "global_symbol".
    """
    return FunctionFrame(is_pure, is_private)


def func_name(name: str) -> None:
    """Name the function."""
    _function("func_name").name = name


def func_attr(attrs: Mapping[str, Any]) -> None:
    """Set attributes of the function."""
    _function("func_attr").attrs.update(attrs)


def arg(name: str, ty: Any) -> Var:
    """Add a parameter and return it.

    Raises:
        ValueError: there are bindings already.
    """
    return _function("arg").add_param(Var(name, type_of(ty)))


def func_ret_type(ret_ty: Any) -> None:
    """Declare the type of the result."""
    _function("func_ret_type").ret_ty = type_of(ret_ty)


func_ret_ty = func_ret_type


def func_ret_value(value: Any) -> None:
    """Set the result of the function."""
    _function("func_ret_value").value = _expr(value)


def _expr(value: Any) -> Expr:
    return Tuple(value) if isinstance(value, (list, tuple)) else convert_to_expr(value)


# Bindings


def emit(value: Any, annotate_ty: Any = None) -> Var:
    """Bind a value to a new variable and return that.

    Args:
        annotate_ty: its type; one narrower than the inferred type is checked at run time.
    """
    frame = _function("emit")
    builder = frame.builder
    if annotate_ty is None:
        frame.last = builder.emit(_expr(value))
        return frame.last
    ty = type_of(annotate_ty)
    normal = builder.normalize(_expr(value))
    if not is_base_of(ty, normal.ty):
        return emit_match_cast(normal, ty)
    cls, hint = (DataflowVar, "lv") if builder.current_block_is_dataflow() else (Var, "gv")
    var = cls(builder.get_unique_name(hint), ty)
    return emit_var_binding(VarBinding(var, normal))


def emit_match_cast(value: Any, ty: Any) -> Var:
    """Bind a value to a new variable of a type, which is checked at run time."""
    frame = _function("emit_match_cast")
    frame.last = frame.builder.match_cast(value, type_of(ty))
    return frame.last


def emit_var_binding(value: VarBinding) -> Var:
    """Append a binding and return its variable."""
    frame = _function("emit_var_binding")
    normal = frame.builder.normalize(value.value)
    frame.builder.emit_normalized(VarBinding(value.var, normal, value.span))
    frame.last = value.var
    return frame.last


def emit_te(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Call:
    """Return a call of a PrimFunc made from a tensor expression, which is added to the module; see
    `relaxvm.BlockBuilder.call_te`."""
    _module("emit_te")
    return _function("emit_te").builder.call_te(func, *args, **kwargs)


def dataflow() -> BlockFrame:
    """``with dataflow() as frame:`` begins a block of bindings without side effects."""
    return BlockFrame()


def output(*variables: Var) -> None:
    """Make variables of the dataflow block visible after it, as ``frame.output_vars``."""
    builder = IRBuilder.current()
    block = builder.innermost(BlockFrame, "output")
    frame = builder.innermost(FunctionFrame, "output")
    for var in variables:
        if not isinstance(var, DataflowVar):
            raise TypeError(f"output: expected variables of the dataflow block, got {var!r}")
        visible = frame.outputs.setdefault(var, Var(var.name, var.ty, var.span))
        block.output_vars.append(visible)


# Branches


def If(condition: Any) -> IfFrame:
    """``with If(condition) as frame:`` contains a `Then` and an `Else`, each with bindings; the
    last ones are the value ``frame.var``."""
    return IfFrame(condition)


def Then() -> _BranchFrame:
    """The bindings for a condition that is true."""
    return _BranchFrame("Then")


def Else() -> _BranchFrame:
    """The bindings for a condition that is false."""
    return _BranchFrame("Else")
