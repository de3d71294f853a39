"""Entry points of the parser: the decorators of Python code, and `from_source`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from types import FrameType, FunctionType
from typing import Any, Final, TypeVar

from ..core.checkpoints import check_objects
from ..executable.debug_info import Span
from ..ir.expr import BaseFunc
from ..ir.module import IRModule
from ..limits import Limits
from ..vm.limited import run_limited
from .markers import Annotations
from .source import Source

__all__ = [
    "decorated_class",
    "decorated_function",
    "enclosing_names",
    "from_source",
    "is_in_class",
    "program_of",
]

Program = IRModule | BaseFunc
_Program = TypeVar("_Program", IRModule, BaseFunc, Program)


def is_in_class(frame: FrameType) -> bool:
    """Check whether a frame runs the body of a class, where decorated functions are not parsed
    until the class is."""
    return "__qualname__" in frame.f_locals and "__module__" in frame.f_locals


def decorated_function(
    func: Any,
    frame: FrameType,
    name: str,
    check_well_formed: bool = True,
    annotations: Annotations = Annotations.PROVED,
) -> Any:
    """Parse a decorated function that Python has defined in a frame; in a class, return `func`
    itself.

    Args:
        annotations: what is done with types that cannot be proved; they are trusted in a program
            that is not checked.

    Raises:
        TypeError: `func` is not a function.
        DiagnosticError: there is an error in the script.
    """
    from .parser import parse_function

    if not isinstance(func, FunctionType):
        raise TypeError(f"{name}: expected a function, got {type(func).__name__}")
    if is_in_class(frame):
        return func
    source = Source.of_file(func.__code__.co_filename, func.__globals__)
    node = source.function_at(func.__code__)
    if not check_well_formed:
        annotations = Annotations.TRUSTED
    parsed = parse_function(source, node, enclosing_names(frame, [func]), annotations)
    return _checked(parsed, source, check_well_formed)


def decorated_class(
    cls: Any,
    frame: FrameType,
    check_well_formed: bool = True,
    annotations: Annotations = Annotations.PROVED,
) -> IRModule:
    """Parse a decorated class that Python has defined in a frame, as a module; see
    `decorated_function`.

    Raises:
        TypeError: `cls` is not a class.
        DiagnosticError: there is an error in the script.
    """
    from .parser import parse_module

    if not isinstance(cls, type):
        raise TypeError(f"I.ir_module: expected a class, got {type(cls).__name__}")
    functions = [value for value in vars(cls).values() if isinstance(value, FunctionType)]
    inner = [func.__code__ for func in functions if func.__module__ == cls.__module__]
    file = inner[0].co_filename if inner else frame.f_code.co_filename
    source = Source.of_file(file, frame.f_globals)
    line = vars(cls).get("__firstlineno__", frame.f_lineno)
    node = source.class_at(cls.__name__, line, [code.co_firstlineno for code in inner])
    if not check_well_formed:
        annotations = Annotations.TRUSTED
    parsed = parse_module(source, node, enclosing_names(frame, functions), annotations)
    return _checked(parsed, source, check_well_formed)


def enclosing_names(frame: FrameType, functions: list[Any]) -> dict[str, Any]:
    """Names that are visible in a frame, and closure variables of functions defined there."""
    names = {**frame.f_globals, **frame.f_locals}
    for func in functions:
        cells = func.__closure__ or ()
        for name, cell in zip(func.__code__.co_freevars, cells, strict=True):
            try:
                names[name] = cell.cell_contents
            except ValueError:
                continue  # a closure variable that is not assigned yet
    return names


# Texts

BYTES_PER_CHARACTER: Final = 200
"""The most memory that Python's syntax tree takes for a character of the text."""

_NAMESPACES: Final = {"ir": "ir", "relax": "relax", "tir": "tir", "tirx": "tir"}


def from_source(
    program: str | Callable[..., Any] | type,
    extra_vars: Mapping[str, Any] | None = None,
    check_well_formed: bool = True,
    *,
    path: str = "<script>",
    limits: Limits | None = None,
) -> Any:
    """Parse a module or function from a text, or from an undecorated Python class or function.

    In the text, I, R and T are the namespaces of the script.  In addition to the definition it may
    contain imports from ``relaxvm.script`` and ``tvm.script``, and ``n = TypeVar("n")``.

    Args:
        extra_vars: the values of other names.
        check_well_formed: whether to reject a program that is not well-formed; if not, types that
            are written are trusted, too.
        path: name of the file, for messages.
        limits: bounds of a text: `file_bytes`, and the `wall_time` and memory of parsing it.  They
            do not make it safe to parse a text of unknown origin, which may run any Python code;
            see `relaxvm.ir.load_json`.

    Raises:
        DiagnosticError: there is an error in the script.
        LimitError: a limit is reached.
    """
    frame = sys._getframe(1)
    return program_of(program, frame, extra_vars, check_well_formed, path=path, limits=limits)


def program_of(
    program: str | Callable[..., Any] | type,
    frame: FrameType,
    extra_vars: Mapping[str, Any] | None = None,
    check_well_formed: bool = True,
    annotations: Annotations = Annotations.PROVED,
    *,
    path: str = "<script>",
    limits: Limits | None = None,
) -> Any:
    """Parse what `from_source` takes, called in a frame; see `from_source` and
    `decorated_function`."""
    if isinstance(program, type):
        return decorated_class(program, frame, check_well_formed, annotations)
    if not isinstance(program, str):
        return decorated_function(program, frame, "from_source", check_well_formed, annotations)
    text = program
    mode = annotations if check_well_formed else Annotations.TRUSTED

    def work() -> Program:
        if limits is not None:
            limits.check("file_bytes", len(text), "from_source")
            check_objects(BYTES_PER_CHARACTER * len(text), "from_source: parsing the text")
        source = Source(text, path)
        program = _of_text(source, dict(extra_vars or {}), mode)
        return _checked(program, source, check_well_formed)

    return run_limited(work, limits, "from_source")


def _checked(program: _Program, source: Source, check_well_formed: bool) -> _Program:
    """Check a parsed program for well-formedness and return it."""
    if not check_well_formed:
        return program
    from ..analysis import violations

    found = violations(program)
    if found:
        first, *others = found
        hint = f"; {first.hint}" if first.hint else ""
        text = f"{first.problem}{hint} [{first.rule}; check_well_formed=False lets it pass]"
        place = Span(source.file, 1, 1) if first.span is None else first.span
        source.fail(place, text, [str(other) for other in others[:_MOST_SHOWN]])
    return program


_MOST_SHOWN: Final = 10


def _of_text(source: Source, extra_vars: dict[str, Any], annotations: Annotations) -> Program:
    from .parser import parse_function, parse_module

    names = {**_namespaces(), **extra_vars}
    found: list[ast.ClassDef | ast.FunctionDef] = []
    for node in source.tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found.append(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            _import(source, node, names)
        elif not _declare(node, names):
            source.error(node, "expected one class or function, decorated as a script")
    if len(found) != 1:
        place = source.span(found[1]) if found else Span(source.file, 1, 1)
        source.fail(place, f"expected one class or function, got {len(found)}")
    (node,) = found
    if isinstance(node, ast.FunctionDef):
        return parse_function(source, node, names, annotations)
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(called).rpartition(".")[2] != "ir_module":
            source.error(decorator, f"class {node.name!r}: expected the decorator @I.ir_module")
    return parse_module(source, node, names, annotations)


def _namespaces() -> dict[str, Any]:
    from . import ir, relax, tir

    return {"I": ir, "R": relax, "T": tir, "ir": ir, "relax": relax, "tir": tir, "tirx": tir,
            "TypeVar": TypeVar}  # fmt: skip


def _import(source: Source, node: ast.Import | ast.ImportFrom, names: dict[str, Any]) -> None:
    """Bind the names of imported script namespaces; other imports are not supported."""
    module = node.module if isinstance(node, ast.ImportFrom) else None
    if module in ("__future__", "typing") or (module or "").startswith("tvm.tirx"):
        return
    known = _namespaces()
    for alias in node.names:
        if module in ("relaxvm.script", "tvm.script") and alias.name in _NAMESPACES:
            names[alias.asname or alias.name] = known[_NAMESPACES[alias.name]]
        elif alias.name not in ("tvm", "relaxvm"):
            name = alias.asname or alias.name
            if name not in names:
                source.error(node, f"imports are not followed; pass {name!r} in extra_vars")


def _declare(node: ast.stmt, names: dict[str, Any]) -> bool:
    """Handle ``n = TypeVar("n")`` and docstrings; return false for any other statement."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return False
    func, target = node.value.func, node.targets[0]
    if not (isinstance(func, ast.Name) and func.id == "TypeVar" and isinstance(target, ast.Name)):
        return False
    names[target.id] = TypeVar(target.id)
    return True
