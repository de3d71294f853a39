"""``compare``: a model and another package, node by node; or two programs, by their variables."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from ..errors import BugError, FormatError, LimitError, MissingExtraError, RelaxVMError
from ..limits import Limits
from ..values import Shape
from .console import Console
from .exits import CommandError, Exit, UsageError, read_error
from .files import import_kernels, limits_of
from .inputs import gather_inputs
from .machines import add_run_arguments, make_vm

__all__ = ["add_commands"]

_WITHIN = 2e-4


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    command = commands.add_parser(
        "compare", parents=[common], help="where two programs, or a model and a package, differ",
        description="Run a model by relaxvm and by another package, or a function of two programs, "
        "on the same inputs, and name the first value that differs. Memory does not grow with the "
        "number of values.",
    )  # fmt: skip
    add_run_arguments(command)
    command.add_argument("second", metavar="OTHER", nargs="?",
                         help="the program to compare with, such as FILE after a pass")  # fmt: skip
    command.add_argument("--with", dest="other", metavar="PACKAGE",
                         help="onnxruntime, or reference (of the package onnx), for .onnx; torch "
                         "for .pt2")  # fmt: skip
    command.add_argument("--within", type=float, default=_WITHIN, metavar="X",
                         help="how far numbers may be apart, as a part of the largest magnitude "
                         f"of a tensor (default {_WITHIN})")  # fmt: skip
    command.add_argument("--all", action="store_true",
                         help="go on after the first value that differs")  # fmt: skip
    for name, kind in (("--rtol", "relative"), ("--atol", "absolute")):
        command.add_argument(name, type=float, metavar="X",
                             help=f"{kind} tolerance between two programs (default: sixteen units "
                             "in the last place of the data type)")  # fmt: skip
    command.set_defaults(command=_compare)


def _compare(args: argparse.Namespace, console: Console) -> int:
    if (args.second is None) == (args.other is None):
        raise UsageError("compare: expected either OTHER, a program, or --with PACKAGE")
    if args.second is not None:
        return _programs(args, console)
    if not args.within >= 0:
        raise UsageError(f"--within: expected a number >= 0, got {args.within}")
    given = {"--function": args.function is not None, "--native": args.native,
             "--executor": args.executor != "sequential", "--threads": args.threads is not None,
             "--rtol": args.rtol is not None, "--atol": args.atol is not None}  # fmt: skip
    for option in (name for name, is_given in given.items() if is_given):
        raise UsageError(f"{option}: it is for a comparison of two programs, not with a package")
    limits = limits_of(args)
    import_kernels(args.kernels)
    try:
        return _run(args, console, limits)
    except OSError as error:
        raise read_error(args.file, error) from error
    except (CommandError, FormatError, LimitError, MissingExtraError, BugError):
        raise
    except RelaxVMError as error:
        raise CommandError(str(error)) from error
    except Exception as error:  # of the model
        raise CommandError(f"{args.file}: {type(error).__name__}: {error}") from error


def _programs(args: argparse.Namespace, console: Console) -> int:
    """Compare FILE and OTHER variable by variable."""
    from ..observe.compare import compare

    vm, info = make_vm(args, console)
    inputs = gather_inputs(args, vm.executable, info, console)
    args.file, args.function = args.second, info.name
    other, _ = make_vm(args, console)
    with console.progress(f"comparing {info.name}"):
        found = compare(vm, other, inputs, function=info.name, rtol=args.rtol, atol=args.atol,
                        stop=not args.all)  # fmt: skip
    console.text(f"{found.table(10_000)}\n{found}" if args.all else str(found))
    console.result({"function": info.name, **found.to_dict()})
    return Exit.OK if found.same else Exit.FAILED


def _run(args: argparse.Namespace, console: Console, limits: Limits) -> int:
    from ..contrib.compare import compare, executable_of, values_of

    executable = executable_of(args.file, limits)
    (info,) = [each for each in executable.functions if each.name == "main"]
    given = gather_inputs(args, executable, info, console)
    # Sequences, maps and missing values of models stay what they are.
    inputs = [
        each if each is None or isinstance(each, dict)
        or (isinstance(each, tuple) and not isinstance(each, Shape)) else np.asarray(each)
        for each in given
    ]  # fmt: skip
    count = len(values_of(args.file, limits))
    rows, same, largest = [], 0, 0.0
    with console.progress("comparing", count) as progress:
        for found in compare(args.file, args.other, inputs, within=args.within, limits=limits):
            progress.step()
            if not found.problem:
                same += 1
                largest = max(largest, found.distance)
                continue
            rows.append({"value": found.value.name, "node": found.value.node,
                         "problem": found.problem})  # fmt: skip
            console.text(f"{found.value.name}, of {found.value.node}: {found.problem}")
            if not args.all:
                break
    console.text(
        f"{same} of {count} values are equal, to {largest:.2g} of the largest magnitude"
        if rows else f"{same} values are equal, to {largest:.2g} of the largest magnitude"
    )
    console.result({"values": count, "equal": same, "largest": largest, "different": rows})
    return Exit.FAILED if rows else Exit.OK
