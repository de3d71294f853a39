"""``compile`` and ``decompile``: from a script to an executable and back."""

from __future__ import annotations

import argparse
import os
import time
from typing import Any, Final

from ..errors import LimitError, NoCompilerError, RelaxVMError, did_you_mean
from ..executable import VMExecutable
from ..isa import FuncKind
from ..limits import Limits
from ..messages import readable
from ..verify import verify
from ..vm.limited import run_limited
from .arrays import open_arrays
from .console import Console
from .exits import (
    BUILD_ERRORS,
    CommandError,
    Exit,
    UsageError,
    code_of_program,
    read_error,
    write_error,
)
from .files import (
    add_file_argument,
    add_limits_argument,
    limits_of,
    open_executable,
    program_kind,
)

__all__ = ["add_commands", "read_module"]

_ENTRY: Final = "Module"


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    make = commands.add_parser(
        "compile", parents=[common], help="compile a script, a model or a Relay program",
        description="Compile a module of a Python script to an executable with its kernels. This "
        "runs the script; compiling another program runs no code.",
    )  # fmt: skip
    make.add_argument("script", metavar="SCRIPT", help="a .py file that defines an IRModule, "
                      "a .json file with one, or an .onnx, .pt2 or .relay file")  # fmt: skip
    make.add_argument("-o", "--output", metavar="PATH", required=True, help="file to write")
    make.add_argument("--entry", metavar="NAME",
                      help=f"the IRModule (default: {_ENTRY}, or the only one)")  # fmt: skip
    make.add_argument("--target", metavar="NAME", help="llvm, c or cpu: all are the CPU")
    make.add_argument("--exec-mode", choices=("bytecode", "compiled"), default="bytecode",
                      help="compiled: functions become Python (default bytecode)")  # fmt: skip
    make.add_argument("--precise", action="store_true",
                      help="leave out of models what changes results by more than the order of "
                      "sums")  # fmt: skip
    make.add_argument("--memory", choices=("default", "low"), default="default",
                      help="low: leave out of models what takes more memory to be faster "
                      "(default: default)")  # fmt: skip
    make.add_argument("--precision", choices=("default", "bfloat16"), default="default",
                      help="bfloat16: round the operands of a model's products to bfloat16, for "
                      "speed (default: default)")  # fmt: skip
    make.add_argument("--reassociate", action="store_true",
                      help="let generated kernels do reductions of floats in another order, for "
                      "speed")  # fmt: skip
    make.add_argument("--pipeline", metavar="NAME", default="default",
                      help="the passes that lower the program (default: default); none for a "
                      "program that is already lowered")  # fmt: skip
    make.add_argument("--params", metavar="FILE",
                      help=".npz or .params with parameters of main that become "
                      "constants")  # fmt: skip
    make.add_argument("--dump-ir", metavar="DIR",
                      help="write the program after each pass to this folder")  # fmt: skip
    add_limits_argument(make)
    make.add_argument("--strip", action="store_true", help="leave debug information out")
    make.add_argument("--no-native", action="store_true",
                      help="leave machine code out: only C and Python source")  # fmt: skip
    make.add_argument("--for-tvm", action="store_true",
                      help="refuse a program that TVM cannot run from OUTPUT, a .so; needs "
                      "--pipeline tvm")
    make.set_defaults(command=_compile)

    show = commands.add_parser(
        "decompile", parents=[common], help="print the code of a file as script",
        description="Print bytecode as readable script. Does not run any code of the file.",
    )  # fmt: skip
    add_file_argument(show)
    show.add_argument("--function", metavar="NAME", help="only this function")
    show.set_defaults(command=_decompile)


# compile


def _compile(args: argparse.Namespace, console: Console) -> int:
    begun = time.perf_counter()
    limits = limits_of(args)
    with console.progress(f"reading {args.script}"):
        mod = read_module(args.script, args.entry, limits)
        params = run_limited(lambda: _read_params(args.params), limits, "--params")
    with console.progress(f"compiling {args.script}"):
        executable = _build(args, mod, params, limits)

    def export() -> None:
        executable.export_library(
            args.output, debug=not args.strip, native=not args.no_native, for_tvm=args.for_tvm
        )

    with console.progress(f"writing {args.output}"):
        try:
            run_limited(export, limits, "export_library")
        except NoCompilerError as error:
            raise CommandError(f"{error}\n  on the command line: --no-native, or another suffix "
                               f"than .so") from error
        except ValueError as error:
            raise UsageError(str(error)) from error
        except OSError as error:
            raise write_error(args.output, error) from error
    _report(args, executable, time.perf_counter() - begun, console)
    return Exit.OK


def _report(
    args: argparse.Namespace, executable: VMExecutable, seconds: float, console: Console
) -> None:
    own = [info.name for info in executable.functions if info.kind != FuncKind.PACKED]
    data = {
        "file": args.output,
        "bytes": os.path.getsize(args.output),
        "functions": own,
        "instructions": len(executable),
        "constants": len(executable.constants),
        "kernels": list(executable.kernels),
        "seconds": seconds,
    }
    console.result(data)
    counts = {
        "function": len(own),
        "instruction": len(executable),
        "constant": len(executable.constants),
        "kernel": len(executable.kernels),
    }
    listed = ", ".join(f"{n} {word}{'s' * (n != 1)}" for word, n in counts.items())
    console.text(f"{args.output}: {data['bytes']:,} bytes, {listed}")


def _build(
    args: argparse.Namespace, mod: Any, params: dict[str, Any], limits: Limits
) -> VMExecutable:
    from ..compiler.build import build
    from ..transform import PassContext
    from ..transform.instruments import DumpIR
    from ..transform.pipelines import get_pipeline

    pipeline: str | None = None
    if args.pipeline != "none":
        try:
            get_pipeline(args.pipeline)
        except ValueError as error:
            raise UsageError(f"--pipeline {args.pipeline}: {error}") from error
        pipeline = args.pipeline  # "default" is another one for models
    settings = args.precise or args.memory != "default" or args.precision != "default"
    if settings and args.pipeline not in ("default", "dataflow"):
        raise UsageError("--precise, --memory and --precision: for the pipelines default and "
                         f"dataflow, got --pipeline {args.pipeline}")  # fmt: skip
    instruments = [] if args.dump_ir is None else [DumpIR(args.dump_ir)]
    try:
        with PassContext(instruments=instruments):
            return build(mod, args.target, params, pipeline, args.exec_mode, limits=limits,
                         precise=args.precise, memory=args.memory,
                         precision=args.precision,
                         reassociate=args.reassociate)  # fmt: skip
    except BUILD_ERRORS as error:
        raise CommandError(f"{args.script}: {type(error).__name__}: {error}") from error


def _read_params(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    if name.endswith(".params"):
        return _read_blob(name)
    with open_arrays(name) as file:
        keys = [key for key in file if key is not None]
        if not keys:
            raise UsageError(f"--params {name}: expected an .npz with arrays by name")
        return {key: file.read(key) for key in keys}


def _read_blob(name: str) -> dict[str, Any]:
    from ..frontend.relay import read_params

    try:
        return read_params(name)
    except OSError as error:
        raise read_error(name, error) from error
    except ValueError as error:
        raise CommandError(str(error), Exit.MALFORMED) from error


def read_module(name: str, entry: str | None, limits: Limits) -> Any:
    """Return the program in a file.

    Raises:
        UsageError: the file has no such module, or several and none was chosen; or it is a script,
            and the limits are those for files of unknown origin; or it is no program.
        CommandError: the file cannot be read, or is malformed, or the script raises.
    """
    from ..compiler.programs import EntryError, read_program, run_script

    try:
        kind = program_kind(name)
        if kind is None or not kind.is_program:
            raise UsageError(f"{name}: expected a .py, .onnx, .pt2, .json or .relay file"
                             + (f"; {kind}" if kind else ""))  # fmt: skip
        if kind.name == "script":
            if limits == Limits.untrusted():
                raise UsageError(f"{name}: --limits untrusted is for .onnx, .pt2, .json and "
                                 ".relay files: reading a script runs it")  # fmt: skip
            return run_script(name, entry)
        if entry is not None:
            raise UsageError(f"--entry {entry}: for Python scripts; this is {kind.what}")
        return run_limited(lambda: read_program(name, limits=limits)[0], limits, name)
    except OSError as error:
        raise read_error(name, error) from error
    except EntryError as error:
        text = str(error).replace("entry=NAME", "--entry")
        raise UsageError(text if entry is None else f"--entry {text}") from error
    except LimitError:
        raise
    except (RelaxVMError, ValueError) as error:
        raise CommandError(str(error), code_of_program(error)) from error


# decompile


def _decompile(args: argparse.Namespace, console: Console) -> int:
    from ..compiler.decompile import decompile

    limits = limits_of(args)
    with console.progress(f"reading {args.file}"):
        executable = open_executable(args.file, limits, mapped=True).executable
        verify(executable, limits=limits).check()
        own = [info.name for info in executable.functions if info.kind != FuncKind.PACKED]
        if args.function is not None and args.function not in own:
            shown = ", ".join(map(readable, own[:20])) or "none"
            raise UsageError(f"--function {args.function}: the functions are {shown}"
                             f"{did_you_mean(args.function, own)}")  # fmt: skip
        text = decompile(executable, args.function, limits=limits)
    console.text(text)
    console.result({"text": text})
    return Exit.OK
