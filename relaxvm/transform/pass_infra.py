"""Passes: IRModule -> IRModule, composed by `Sequential`, run under a `PassContext`.

Source: ``tvm.transform`` and ``relax.transform`` of apache-tvm 0.27.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Protocol, TypeVar, overload

from ..ir import (
    BindingBlock,
    DataflowBlock,
    Expr,
    ExprMutator,
    Function,
    GlobalVar,
    IRModule,
)
from ..ir.nesting import room
from .config import check_config_keys
from .instruments import DumpIR, PassInstrument

__all__ = [
    "DataflowBlockPass",
    "FunctionPass",
    "ModulePass",
    "Pass",
    "PassContext",
    "Sequential",
    "dataflowblock_pass",
    "function_pass",
    "module_pass",
]

DUMP_VARIABLE = "RELAXVM_DUMP_IR"
"""Environment variable: a folder to which the module is written after each pass."""


class PassContext:
    """What holds for the passes that run inside of ``with PassContext(...)``.

    Args:
        opt_level: passes of a higher level do not run.
        required_pass: names of passes that run whatever their level.
        disabled_pass: names of passes that do not run.
        instruments: called around each pass.
        config: options that passes read; see `register_config_option`.  Those of TVM are taken,
            and have no effect here.

    Raises:
        AttributeError: a key of `config` is not known.
    """

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Iterable[str] = (),
        disabled_pass: Iterable[str] = (),
        instruments: Iterable[PassInstrument] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.opt_level = opt_level
        self.required_pass = frozenset(required_pass)
        self.disabled_pass = frozenset(disabled_pass)
        self.instruments = tuple(instruments or ())
        self.config = dict(config or {})
        check_config_keys(self.config)
        self._outer: list[Any] = []

    @staticmethod
    def current() -> PassContext:
        """The innermost context; a default one outside of any."""
        return _CURRENT.get() or PassContext()

    def __enter__(self) -> PassContext:
        token = _CURRENT.set(self)
        try:
            for instrument in self.instruments:
                instrument.enter_pass_ctx()
        except BaseException:
            _CURRENT.reset(token)
            raise
        self._outer.append(token)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _CURRENT.reset(self._outer.pop())
        for instrument in self.instruments:
            instrument.exit_pass_ctx()

    def enabled(self, info: Pass) -> bool:
        """Whether a pass shall run here."""
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or info.opt_level <= self.opt_level


_CURRENT: ContextVar[PassContext | None] = ContextVar("relaxvm_pass_context", default=None)
_DUMP: ContextVar[DumpIR | None] = ContextVar("relaxvm_dump_ir", default=None)


class Pass:
    """A transformation of modules.  Calling it gives a new module; its argument stays as it is.

    Attributes:
        name: what contexts and instruments know it by.
        opt_level: see `PassContext`.
    """

    def __init__(self, name: str, opt_level: int = 0) -> None:
        self.name = name
        self.opt_level = opt_level

    @property
    def info(self) -> Pass:
        """The pass itself, which has `name` and `opt_level`."""
        return self

    def __repr__(self) -> str:
        return f"<pass {self.name}>"

    def __call__(self, mod: IRModule) -> IRModule:
        if not isinstance(mod, IRModule):
            raise TypeError(f"{self.name}: expected an IRModule, got {type(mod).__name__}")
        context = PassContext.current()
        folder = os.environ.get(DUMP_VARIABLE)
        if folder and _DUMP.get() is None:
            token = _DUMP.set(DumpIR(folder))
            try:
                return self._run(mod, context)
            finally:
                _DUMP.reset(token)
        return self._run(mod, context)

    def _run(self, mod: IRModule, context: PassContext) -> IRModule:
        dump = _DUMP.get()
        instruments = context.instruments if dump is None else (*context.instruments, dump)
        if not all(i.should_run(mod, self) for i in instruments):
            return mod
        for instrument in instruments:
            instrument.run_before_pass(mod, self)
        try:
            with room(f"pass {self.name}", mod):
                mod = self.transform(mod, context)
        except Exception as error:
            error.add_note(f"in pass {self.name}")
            raise
        for instrument in instruments:
            instrument.run_after_pass(mod, self)
        return mod

    def transform(self, mod: IRModule, context: PassContext) -> IRModule:
        """What the pass does."""
        raise NotImplementedError


class ModulePass(Pass):
    """A pass given by a function ``transform(mod, ctx) -> mod``."""

    def __init__(
        self, transform: Callable[[IRModule, PassContext], IRModule], name: str, opt_level: int = 0
    ) -> None:
        super().__init__(name, opt_level)
        self._transform = transform

    def transform(self, mod: IRModule, context: PassContext) -> IRModule:
        new = self._transform(mod, context)
        if not isinstance(new, IRModule):
            raise TypeError(f"pass {self.name} returned {type(new).__name__}, not an IRModule")
        return new


class FunctionPass(Pass):
    """A pass given by a function ``transform(func, mod, ctx) -> func`` of each Relax function."""

    def __init__(
        self,
        transform: Callable[[Function, IRModule, PassContext], Function],
        name: str,
        opt_level: int = 0,
    ) -> None:
        super().__init__(name, opt_level)
        self._transform = transform

    def transform(self, mod: IRModule, context: PassContext) -> IRModule:
        changed: dict[GlobalVar, Function] = {}
        for var, func in mod.functions.items():
            if type(func) is not Function:
                continue
            try:
                new = self._transform(func, mod, context)
            except Exception as error:
                error.add_note(f"in function {var.name_hint!r}")
                raise
            if type(new) is not Function:
                raise TypeError(f"pass {self.name} returned {type(new).__name__}, not a Function")
            if new is not func:
                changed[var] = new
        if not changed:
            return mod
        result = mod.copy()
        for var, func in changed.items():
            result[var] = func
        return result


class _BlockRewriter(ExprMutator):
    def __init__(self, rewrite: Callable[[DataflowBlock], BindingBlock]) -> None:
        super().__init__()
        self._rewrite = rewrite

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        block = super().visit_block(block)
        return self._rewrite(block) if type(block) is DataflowBlock else block


class DataflowBlockPass(FunctionPass):
    """A pass given by a function ``transform(block, mod, ctx) -> block`` of each DataflowBlock.  It
    may neither change which variables that are seen outside are defined, nor the symbolic variables
    that a match_cast declares."""

    def __init__(
        self,
        transform: Callable[[DataflowBlock, IRModule, PassContext], DataflowBlock],
        name: str,
        opt_level: int = 0,
    ) -> None:
        def of_function(func: Function, mod: IRModule, context: PassContext) -> Any:
            def rewrite(block: DataflowBlock) -> BindingBlock:
                new = transform(block, mod, context)
                _check_block(self.name, block, new)
                return new

            return _BlockRewriter(rewrite).visit(func)

        super().__init__(of_function, name, opt_level)


def _check_block(name: str, old: DataflowBlock, new: Any) -> None:
    from ..errors import InternalError
    from ..ir import DataflowVar, MatchCast, Var, type_free_vars

    if not isinstance(new, DataflowBlock):
        raise InternalError(f"pass {name} returned {type(new).__name__}, not a DataflowBlock")

    def outputs(block: BindingBlock) -> dict[Expr, None]:
        return {b.var: None for b in block.bindings if not isinstance(b.var, DataflowVar)}

    def declared(block: BindingBlock) -> dict[Var, None]:
        casts = [b for b in block.bindings if type(b) is MatchCast]
        return {v: None for b in casts for v in type_free_vars(b.ty)}

    for what, before, after in (
        ("global-scope Var", outputs(old), outputs(new)),
        ("symbolic Var declared by a MatchCast", declared(old), declared(new)),
    ):
        for change, vars_ in (
            ("removed", [v for v in before if v not in after]),
            ("added", [v for v in after if v not in before]),
        ):
            if vars_ and not (change == "added" and what.startswith("symbolic")):
                raise InternalError(
                    f"pass {name}: a {what} was {change}: {', '.join(map(str, vars_))}"
                )


class Sequential(Pass):
    """Passes one after the other.  Those that the context does not enable are left out.

    Raises:
        TypeError: one of `passes` is none.
    """

    def __init__(
        self, passes: Iterable[Pass], opt_level: int = 0, name: str = "sequential"
    ) -> None:
        super().__init__(name, opt_level)
        self.passes = tuple(passes)
        for each in self.passes:
            if not isinstance(each, Pass):
                raise TypeError(f"{name}: expected passes, got {type(each).__name__}")

    def transform(self, mod: IRModule, context: PassContext) -> IRModule:
        for each in self.passes:
            if context.enabled(each):
                mod = each(mod)
        return mod


ModuleFunction = Callable[[IRModule, PassContext], Any]
FunctionFunction = Callable[[Function, IRModule, PassContext], Any]
BlockFunction = Callable[[DataflowBlock, IRModule, PassContext], Any]
_Target = TypeVar("_Target", contravariant=True)


class _Decorator(Protocol[_Target]):
    """Makes a pass of a function, a maker of passes of a class."""

    @overload
    def __call__(self, target: _Target) -> Pass: ...

    @overload
    def __call__(self, target: type) -> Callable[..., Pass]: ...


def _decorator(cls: Any, method: str, function: Any, opt_level: int, name: str | None) -> Any:
    def decorate(target: Any) -> Any:
        if not isinstance(target, type):
            return cls(target, name or target.__name__, opt_level)

        @functools.wraps(target, updated=())
        def construct(*args: Any, **kwargs: Any) -> Any:
            instance = target(*args, **kwargs)
            return cls(getattr(instance, method), name or target.__name__, opt_level)

        return construct

    return decorate if function is None else decorate(function)


@overload
def module_pass(
    function: None = None, *, opt_level: int = 0, name: str | None = None
) -> _Decorator[ModuleFunction]: ...
@overload
def module_pass(
    function: type, *, opt_level: int = 0, name: str | None = None
) -> Callable[..., Pass]: ...
@overload
def module_pass(
    function: ModuleFunction, *, opt_level: int = 0, name: str | None = None
) -> Pass: ...
def module_pass(function: Any = None, *, opt_level: int = 0, name: str | None = None) -> Any:
    """Decorator: ``f(mod, ctx) -> mod`` becomes a pass; a class with a method `transform_module`
    becomes a maker of passes, whose arguments are those of the class."""
    return _decorator(ModulePass, "transform_module", function, opt_level, name)


@overload
def function_pass(
    function: None = None, *, opt_level: int = 0, name: str | None = None
) -> _Decorator[FunctionFunction]: ...
@overload
def function_pass(
    function: type, *, opt_level: int = 0, name: str | None = None
) -> Callable[..., Pass]: ...
@overload
def function_pass(
    function: FunctionFunction, *, opt_level: int = 0, name: str | None = None
) -> Pass: ...
def function_pass(function: Any = None, *, opt_level: int = 0, name: str | None = None) -> Any:
    """Decorator: ``f(func, mod, ctx) -> func``, or a class with a method `transform_function`."""
    return _decorator(FunctionPass, "transform_function", function, opt_level, name)


@overload
def dataflowblock_pass(
    function: None = None, *, opt_level: int = 0, name: str | None = None
) -> _Decorator[BlockFunction]: ...
@overload
def dataflowblock_pass(
    function: type, *, opt_level: int = 0, name: str | None = None
) -> Callable[..., Pass]: ...
@overload
def dataflowblock_pass(
    function: BlockFunction, *, opt_level: int = 0, name: str | None = None
) -> Pass: ...
def dataflowblock_pass(function: Any = None, *, opt_level: int = 0, name: str | None = None) -> Any:
    """Decorator: ``f(block, mod, ctx) -> block``, or a class with `transform_dataflowblock`."""
    return _decorator(DataflowBlockPass, "transform_dataflowblock", function, opt_level, name)
