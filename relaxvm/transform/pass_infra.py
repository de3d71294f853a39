"""Passes: IRModule -> IRModule, composed by `Sequential`, run under a `PassContext`.

Source: ``tvm.transform`` and ``relax.transform`` of apache-tvm 0.27.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from time import perf_counter
from types import TracebackType
from typing import Any, Protocol, TypeVar, overload

from ..core.checkpoints import checkpoint
from ..ir import (
    BindingBlock,
    DataflowBlock,
    Expr,
    ExprMutator,
    Function,
    GlobalVar,
    IRModule,
)
from ..ir.nesting import headroom
from ..ir.sharing import check_sharing
from ..logs import DEBUG, is_on, log
from . import instruments
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
"""Environment variable: the folder to which the module is written after each pass."""


class PassContext:
    """Settings of the passes that run inside ``with PassContext(...)``.

    Args:
        opt_level: passes of a higher level do not run.
        required_pass: names of passes that run regardless of their level.
        disabled_pass: names of passes that do not run.
        instruments: called around each pass.
        config: options that passes read; see `register_config_option`.  Options of TVM's passes are
            accepted and ignored.

    Raises:
        AttributeError: a key of `config` is unknown.
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
        """Return the innermost context, or a default one if there is none."""
        return _CURRENT.get() or PassContext()

    @staticmethod
    def is_active() -> bool:
        """Whether there is an innermost context."""
        return _CURRENT.get() is not None

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
        """Return whether a pass runs in this context."""
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or info.opt_level <= self.opt_level


_CURRENT: ContextVar[PassContext | None] = ContextVar("relaxvm_pass_context", default=None)
_IN_PASS: ContextVar[bool] = ContextVar("relaxvm_in_pass", default=False)
"""Whether a pass runs: the program was checked when the outermost one began."""
_DUMP: ContextVar[DumpIR | None] = ContextVar("relaxvm_dump_ir", default=None)


class Pass:
    """A transformation of modules.  Calling it returns a new module; the argument is not modified.

    Attributes:
        name: the name used by contexts and instruments.
        opt_level: see `PassContext`.
        required: names of passes that a `Sequential` runs before this one.
    """

    def __init__(
        self, name: str, opt_level: int = 0, required: Iterable[str] | None = None
    ) -> None:
        self.name = name
        self.opt_level = opt_level
        self.required = tuple(required or ())

    @property
    def info(self) -> Pass:
        """The pass itself, which has `name` and `opt_level`; for compatibility with TVM."""
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
        checkpoint()
        if not _IN_PASS.get():
            check_sharing(mod, self.name)
        if not all(i.should_run(mod, self) for i in instruments):
            return mod
        for instrument in instruments:
            instrument.run_before_pass(mod, self)
        token = _IN_PASS.set(True)
        begun = perf_counter() if is_on("passes", DEBUG) else None
        try:
            with headroom(f"pass {self.name}", mod):
                mod = self.transform(mod, context)
        except Exception as error:
            error.add_note(f"in pass {self.name}")
            raise
        finally:
            _IN_PASS.reset(token)
        if begun is not None:
            log("passes", DEBUG, "%s: %.1f ms", self.name, (perf_counter() - begun) * 1e3)
        for instrument in instruments:
            instrument.run_after_pass(mod, self)
        return mod

    def transform(self, mod: IRModule, context: PassContext) -> IRModule:
        """Return the transformed module; to be overridden."""
        raise NotImplementedError


class ModulePass(Pass):
    """A pass defined by a function ``transform(mod, ctx) -> mod``."""

    def __init__(
        self,
        transform: Callable[[IRModule, PassContext], IRModule],
        name: str,
        opt_level: int = 0,
        required: Iterable[str] | None = None,
    ) -> None:
        super().__init__(name, opt_level, required)
        self._transform = transform

    def transform(self, mod: IRModule, context: PassContext) -> IRModule:
        new = self._transform(mod, context)
        if not isinstance(new, IRModule):
            raise TypeError(f"pass {self.name} returned {type(new).__name__}, not an IRModule")
        return new


class FunctionPass(Pass):
    """A pass defined by a function ``transform(func, mod, ctx) -> func`` of each Relax function."""

    def __init__(
        self,
        transform: Callable[[Function, IRModule, PassContext], Function],
        name: str,
        opt_level: int = 0,
        required: Iterable[str] | None = None,
    ) -> None:
        super().__init__(name, opt_level, required)
        self._transform = transform

    def transform(self, mod: IRModule, context: PassContext) -> IRModule:
        changed: dict[GlobalVar, Function] = {}
        for var, func in mod.functions.items():
            if not isinstance(func, Function):
                continue
            try:
                new = self._transform(func, mod, context)
            except Exception as error:
                error.add_note(f"in function {var.name_hint!r}")
                raise
            if not isinstance(new, Function):
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
        return self._rewrite(block) if isinstance(block, DataflowBlock) else block


class DataflowBlockPass(FunctionPass):
    """A pass defined by a function ``transform(block, mod, ctx) -> block`` of each DataflowBlock.
    It must define the same variables that are visible outside, and its match_casts must declare the
    same symbolic variables."""

    def __init__(
        self,
        transform: Callable[[DataflowBlock, IRModule, PassContext], DataflowBlock],
        name: str,
        opt_level: int = 0,
        required: Iterable[str] | None = None,
    ) -> None:
        def of_function(func: Function, mod: IRModule, context: PassContext) -> Any:
            def rewrite(block: DataflowBlock) -> BindingBlock:
                new = transform(block, mod, context)
                _check_block(self.name, block, new)
                return new

            return _BlockRewriter(rewrite).visit(func)

        super().__init__(of_function, name, opt_level, required)


def _check_block(name: str, old: DataflowBlock, new: Any) -> None:
    from ..errors import InternalError
    from ..ir import DataflowVar, MatchCast, Var, type_free_vars

    if not isinstance(new, DataflowBlock):
        raise InternalError(f"pass {name} returned {type(new).__name__}, not a DataflowBlock")

    def outputs(block: BindingBlock) -> dict[Expr, None]:
        return {b.var: None for b in block.bindings if not isinstance(b.var, DataflowVar)}

    def declared(block: BindingBlock) -> dict[Var, None]:
        casts = [b for b in block.bindings if isinstance(b, MatchCast)]
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
    """Runs passes one after the other, except those that are not enabled in the context.

    Args:
        passes: the passes.
        opt_level, name, required: as of other passes.
        traceable: taken as in TVM and ignored.

    Raises:
        TypeError: an element of `passes` is not a pass.
        ValueError: when it runs, a pass that another one requires does not exist.
    """

    def __init__(
        self,
        passes: Iterable[Pass] | None = None,
        opt_level: int = 0,
        name: str = "sequential",
        required: Iterable[str] | None = None,
        traceable: bool = False,
    ) -> None:
        super().__init__(name, opt_level, required)
        self.passes = tuple(passes or ())
        for each in self.passes:
            if not isinstance(each, Pass):
                raise TypeError(f"{name}: expected passes, got {type(each).__name__}")

    def transform(self, mod: IRModule, context: PassContext) -> IRModule:
        for each in self.passes:
            if context.enabled(each):
                for before in _found(each.required):
                    mod = before(mod)
                mod = each(mod)
        return mod


def _found(names: Sequence[str]) -> list[Pass]:
    """Make the passes of these names, which may begin with a module's, as in TVM."""
    if not names:
        return []
    from .find import find_passes

    return find_passes(name.rpartition("transform.")[2] for name in names)


ModuleFunction = Callable[[IRModule, PassContext], Any]
FunctionFunction = Callable[[Function, IRModule, PassContext], Any]
BlockFunction = Callable[[DataflowBlock, IRModule, PassContext], Any]
_Target = TypeVar("_Target", contravariant=True)


class _Decorator(Protocol[_Target]):
    """Converts a function to a pass, and a class to a constructor of passes."""

    @overload
    def __call__(self, target: _Target) -> Pass: ...

    @overload
    def __call__(self, target: type) -> Callable[..., Pass]: ...


def _decorator(
    cls: Any,
    method: str,
    pass_func: Any,
    opt_level: int | None,
    name: str | None,
    required: Iterable[str] | None,
) -> Any:
    level = opt_level or 0
    required = tuple(required or ())

    def decorate(target: Any) -> Any:
        if not isinstance(target, type):
            return cls(target, name or target.__name__, level, required)

        @functools.wraps(target, updated=())
        def construct(*args: Any, **kwargs: Any) -> Any:
            instance = target(*args, **kwargs)
            return cls(getattr(instance, method), name or target.__name__, level, required)

        return construct

    return decorate if pass_func is None else decorate(pass_func)


@overload
def module_pass(
    pass_func: None = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Iterable[str] | None = None,
    traceable: bool = False,
) -> _Decorator[ModuleFunction]: ...
@overload
def module_pass(
    pass_func: type,
    opt_level: int | None = None,
    name: str | None = None,
    required: Iterable[str] | None = None,
    traceable: bool = False,
) -> Callable[..., Pass]: ...
@overload
def module_pass(
    pass_func: ModuleFunction,
    opt_level: int | None = None,
    name: str | None = None,
    required: Iterable[str] | None = None,
    traceable: bool = False,
) -> Pass: ...
def module_pass(
    pass_func: Any = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Iterable[str] | None = None,
    traceable: bool = False,
) -> Any:
    """Decorator: convert ``f(mod, ctx) -> mod`` to a pass, or a class with a method
    `transform_module` to a constructor of passes with the arguments of the class.

    Args:
        pass_func: the function or class, if the decorator is used without parentheses.
        opt_level: the level from which on the pass runs, 0 if it is not given.
        name: the name of the pass, by default that of the function or class.
        required: names of passes that a `Sequential` runs before this one.
        traceable: taken as in TVM and ignored.
    """
    return _decorator(ModulePass, "transform_module", pass_func, opt_level, name, required)


@overload
def function_pass(
    pass_func: None = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Iterable[str] | None = None,
    traceable: bool = False,
) -> _Decorator[FunctionFunction]: ...
@overload
def function_pass(
    pass_func: type,
    opt_level: int | None = None,
    name: str | None = None,
    required: Iterable[str] | None = None,
    traceable: bool = False,
) -> Callable[..., Pass]: ...
@overload
def function_pass(
    pass_func: FunctionFunction,
    opt_level: int | None = None,
    name: str | None = None,
    required: Iterable[str] | None = None,
    traceable: bool = False,
) -> Pass: ...
def function_pass(
    pass_func: Any = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Iterable[str] | None = None,
    traceable: bool = False,
) -> Any:
    """Decorator: as `module_pass`, for ``f(func, mod, ctx) -> func`` or a class with a method
    `transform_function`."""
    return _decorator(FunctionPass, "transform_function", pass_func, opt_level, name, required)


@overload
def dataflowblock_pass(
    pass_func: None = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Iterable[str] | None = None,
    traceable: bool = False,
) -> _Decorator[BlockFunction]: ...
@overload
def dataflowblock_pass(
    pass_func: type,
    opt_level: int | None = None,
    name: str | None = None,
    required: Iterable[str] | None = None,
    traceable: bool = False,
) -> Callable[..., Pass]: ...
@overload
def dataflowblock_pass(
    pass_func: BlockFunction,
    opt_level: int | None = None,
    name: str | None = None,
    required: Iterable[str] | None = None,
    traceable: bool = False,
) -> Pass: ...
def dataflowblock_pass(
    pass_func: Any = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Iterable[str] | None = None,
    traceable: bool = False,
) -> Any:
    """Decorator: as `module_pass`, for ``f(block, mod, ctx) -> block`` or a class with a method
    `transform_dataflowblock`."""
    return _decorator(
        DataflowBlockPass, "transform_dataflowblock", pass_func, opt_level, name, required
    )


# `typing.get_type_hints` looks up the annotations of a class in its own module, which is before
# this one.
vars(instruments)["Pass"] = Pass
