"""Programs from whatever holds one: a module, a file of any kind, bytes, a model in memory.

`read_program` is the one place that knows how each kind is read.  Only a Python script is run, and
only where the caller allows it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any, Final

from ..errors import DiagnosticError, FormatError, did_you_mean
from ..executable.file_kinds import HEAD_BYTES, KINDS, FileKind, kind_of
from ..executable.model_names import FunctionNames, ModelNames
from ..ir import BaseFunc, Function, GlobalVar, IRModule
from ..limits import Limits

__all__ = [
    "EntryError",
    "ScriptError",
    "names_of_model",
    "program_kind",
    "read_program",
    "run_script",
    "section_of_names",
]

_ENTRY: Final = "Module"
_EXPECTED: Final = (
    "expected an IRModule or a function, the path of an ONNX model (.onnx), a Python script (.py), "
    "a program of torch.export (.pt2), a module in JSON (.json) or a Relay text (.relay or .rly), "
    "the bytes of one, a ModelProto or an ExportedProgram"
)


class EntryError(ValueError):
    """A script does not have the module that is asked for."""


class ScriptError(FormatError):
    """Running a script has raised an exception, which is the cause of this one."""


def program_kind(path: str | os.PathLike[str]) -> FileKind | None:
    """The kind of a file, by its first bytes and its name; None if it is unknown.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        return kind_of(file.read(HEAD_BYTES), os.fspath(path))


def read_program(
    source: Any,
    params: Any = None,
    *,
    limits: Limits | None = None,
    entry: str | None = None,
    options: Mapping[str, Any] | None = None,
    scripts: bool = True,
) -> tuple[Any, Any]:
    """Read a program.

    Args:
        source: an IRModule or a function; a path; bytes; an ``onnx.ModelProto``; or a
            ``torch.export.ExportedProgram``.
        params: values of parameters of ``main``, by name; for a Relay text, also a path.
        limits: bounds for a program of unknown origin.
        entry: of a script, the name of the module.
        options: further arguments of `relaxvm.frontend.onnx.from_onnx`, for ONNX models, or of
            `relaxvm.frontend.torch.from_exported_program`.
        scripts: whether a script is run.

    Returns:
        The program, and the parameters that are yet to be bound.

    Raises:
        TypeError: `source` is none of these, or there are options for another kind of program.
        ValueError: it is a file of another kind; or `EntryError`.
        OSError: the file cannot be read.
        FormatError: it is malformed; or `ScriptError`.
        RelaxVMError: a model has operators that are not supported.
    """
    if isinstance(source, (IRModule, BaseFunc)):
        _refuse_options("a program in memory", entry, options)
        return source, params
    name = "<bytes>"
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        kind = program_kind(source)
    elif isinstance(source, (bytes, bytearray, memoryview)):
        kind = kind_of(bytes(memoryview(source)[:HEAD_BYTES]))
    elif hasattr(source, "SerializeToString"):
        kind = KINDS["onnx"]
    elif hasattr(source, "graph_signature"):
        kind = KINDS["pt2"]
    else:
        raise TypeError(f"build: {_EXPECTED}, got {type(source).__name__}")
    if kind is None or not kind.is_program:
        raise ValueError(f"build: {name}: {_EXPECTED}" + (f"; {kind}" if kind else ""))
    if kind.name not in ("onnx", "pt2"):
        _refuse_options(kind.what, None, options)
    if kind.name != "script":
        _refuse_options(kind.what, entry, None)
    if kind.name == "onnx":
        from ..frontend.onnx import from_onnx

        return _imported(from_onnx, source, limits, options or {}), params
    if kind.name == "pt2":
        from ..frontend.torch import from_exported_program

        return _imported(from_exported_program, source, limits, options or {}), params
    if kind.name == "script":
        if not scripts or limits == Limits.untrusted():
            raise ValueError(f"{name}: reading a Python script runs it; relaxvm.compile(path) does "
                             "so, without limits for programs of unknown origin")  # fmt: skip
        return run_script(name, entry), params
    if kind.name == "json":
        return _from_json(source, name, limits), params
    from ..frontend.relay import from_text

    text = Path(source) if name != "<bytes>" else str(source, "utf-8")
    return from_text(text, params, limits=limits), None


_OWN: Final = ("target", "params", "relax_pipeline", "exec_mode", "limits", "entry", "cache",
               "precise", "memory", "precision", "reassociate")  # fmt: skip
"""Arguments of `relaxvm.compile` for programs of all kinds."""


def _imported(
    frontend: Callable[..., Any], source: Any, limits: Limits | None, options: Mapping[str, Any]
) -> Any:
    """What a frontend makes of a file, with arguments that it has."""
    known = list(dict.fromkeys([*_OWN, *list(signature(frontend).parameters)[1:]]))
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known)
            raise TypeError(f"compile: unexpected argument {name!r}{hint}; for this program there "
                            f"are {', '.join(known)}")  # fmt: skip
    return frontend(source, limits=limits, **options)


def _refuse_options(what: str, entry: str | None, options: Mapping[str, Any] | None) -> None:
    if options:
        names, hint = ", ".join(options), did_you_mean(next(iter(options)), _OWN)
        raise TypeError(f"compile: {names}: for ONNX models and programs of torch.export, and this "
                        f"is {what}{hint}; it takes {', '.join(_OWN)}")  # fmt: skip
    if entry is not None:
        raise TypeError(f"compile: entry: for Python scripts, and this is {what}")


def _from_json(source: Any, name: str, limits: Limits | None) -> IRModule:
    from ..ir import load_json

    bounds = limits or Limits()
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as file:
            bounds.check("file_bytes", os.fstat(file.fileno()).st_size, name)
            source = file.read()
    try:
        mod = load_json(str(source, "utf-8"), limits=limits)
    except (UnicodeDecodeError, FormatError, TypeError, KeyError) as error:
        raise FormatError(f"{name}: {error}") from error
    if not isinstance(mod, IRModule):
        raise FormatError(f"{name}: expected an IRModule, got {type(mod).__name__}")
    return mod


# Scripts


def run_script(name: str, entry: str | None = None) -> IRModule:
    """Run a Python file, and return the module that it defines.

    Args:
        name: path of the file.
        entry: name of the module; None for the one called ``Module``, or the only one.

    Raises:
        OSError: the file cannot be read.
        EntryError: there is no such module, or several and none was chosen.
        ScriptError: running the file raised an exception.
    """
    found = {
        key: value
        for key, value in _names_of_script(name).items()
        if isinstance(value, IRModule) and not key.startswith("_")
    }
    listed = f"there are {', '.join(found)}" if found else "there is none"
    if entry is not None:
        if entry not in found:
            raise EntryError(f"{entry}: expected an IRModule of {name}, {listed}"
                             f"{did_you_mean(entry, found)}")  # fmt: skip
        return found[entry]
    if _ENTRY in found or len(found) == 1:
        return found.get(_ENTRY) or next(iter(found.values()))
    raise EntryError(f"{name}: expected an IRModule, {listed}; entry=NAME says which")


def _names_of_script(name: str) -> dict[str, Any]:
    path = Path(name)
    path.open("rb").close()  # raises if it cannot be read
    # A unique module name: the file may have the name of an existing module.
    full = f"relaxvm_script:{path.resolve()}"
    spec = importlib.util.spec_from_file_location(full, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{name}: expected a .py file")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    sys.modules[full] = module
    try:
        spec.loader.exec_module(module)
    except DiagnosticError as error:
        raise ScriptError(str(error)) from error
    except Exception as error:
        raise ScriptError(f"{name}: running it raised {type(error).__name__}: {error}") from error
    finally:
        sys.modules.pop(full, None)
        if folder in sys.path:
            sys.path.remove(folder)
    return vars(module)


# Names


def names_of_model(mod: IRModule) -> dict[GlobalVar, tuple[dict[str, str], tuple[str, ...]]]:
    """What a module says of the model that it was made of: for each function the names of the
    inputs by parameter, and the names of the outputs."""
    found = {}
    for var, func in mod.functions.items():
        if isinstance(func, Function):
            inputs = _names(func.attrs.get("input_names"))
            outputs = _names(func.attrs.get("output_names"))
            if inputs is not None and outputs is not None:
                params = [param.name for param in func.params]
                found[var] = dict(zip(params, inputs, strict=False)), outputs
    return found


def _names(value: Any) -> tuple[str, ...] | None:
    """An attribute as names; None if it is something else, or no file can have them."""
    if not isinstance(value, (list, tuple)):
        return None
    fit = all(isinstance(each, str) and "\0" not in each for each in value)
    return tuple(value) if fit else None


def section_of_names(
    known: Mapping[GlobalVar, tuple[Mapping[str, str], tuple[str, ...]]],
    params: Mapping[str, tuple[str, ...]],
) -> ModelNames | None:
    """The section of names of an executable; None if nothing is known.

    Args:
        known: of `names_of_model`.
        params: the names of the parameters of functions in the executable.
    """
    functions = []
    for var, (inputs, outputs) in known.items():
        if var.name_hint in params:
            names = tuple([inputs.get(param, param) for param in params[var.name_hint]])
            functions.append(FunctionNames(var.name_hint, names, outputs))
    return ModelNames.of(functions) if functions else None
