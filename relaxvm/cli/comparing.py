"""``compare``: a model run by relaxvm and by another package, node by node."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from ..errors import BugError, FormatError, LimitError, MissingExtraError, RelaxVMError
from ..limits import Limits
from ..vm.entry_checks import params_of
from .console import Console
from .exits import CommandError, Exit, UsageError, read_error
from .files import add_file_argument, limits_of
from .inputs import add_input_arguments, gather_inputs

__all__ = ["add_commands"]

_WITHIN = 2e-4


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    command = commands.add_parser(
        "compare", parents=[common], help="where a model differs from another package",
        description="Run a model by relaxvm and by another package on the same inputs, and name "
        "the first value of a node that differs. Memory does not grow with the number of nodes.",
    )  # fmt: skip
    add_file_argument(command)
    command.add_argument("--with", dest="other", required=True, metavar="PACKAGE",
                         help="onnxruntime, or reference (of the package onnx), for .onnx; torch "
                         "for .pt2")  # fmt: skip
    command.add_argument("--within", type=float, default=_WITHIN, metavar="X",
                         help="how far numbers may be apart, as a part of the largest magnitude "
                         f"of a tensor (default {_WITHIN})")  # fmt: skip
    command.add_argument("--all", action="store_true",
                         help="go on after the first value that differs")  # fmt: skip
    add_input_arguments(command)
    command.set_defaults(command=_compare)


def _compare(args: argparse.Namespace, console: Console) -> int:
    if not args.within >= 0:
        raise UsageError(f"--within: expected a number >= 0, got {args.within}")
    limits = limits_of(args)
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


def _run(args: argparse.Namespace, console: Console, limits: Limits) -> int:
    from ..contrib.compare import compare, executable_of, values_of

    executable = executable_of(args.file, limits)
    (info,) = [each for each in executable.functions if each.name == "main"]
    names = executable.names_of("main").inputs
    given = gather_inputs(args, params_of(executable, info), console, names)
    inputs = [np.asarray(each) for each in given]
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
