"""``opt`` and ``reduce``: what passes do to a program, and where it goes wrong."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ..errors import RelaxVMError
from ..observe.compare import Tolerance
from ..vm import VirtualMachine
from .arrays import replacing
from .compiling import read_module
from .console import Console
from .exits import BUILD_ERRORS, CommandError, Exit, UsageError
from .files import add_limits_argument, limits_of
from .inputs import add_input_arguments, gather_inputs

__all__ = ["add_commands"]


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    opt = commands.add_parser(
        "opt", parents=[common], help="run passes on a program and print it",
        description="Run passes on a program and print the result as script. This runs a Python "
        "script; another program is only read.",
    )  # fmt: skip
    _add_program(opt)
    opt.add_argument("--print-after", action="store_true",
                     help="print the program after each pass")  # fmt: skip
    opt.add_argument("-o", "--output", metavar="PATH",
                     help="write the result here: script, or JSON to a .json")  # fmt: skip
    opt.set_defaults(command=_opt)

    reduce = commands.add_parser(
        "reduce", parents=[common], help="find the pass to blame, and the smallest program",
        description="Find the first of the passes, or of the passes of the lowering, that changes "
        "the result of main or fails; then make the program smaller as long as that stays so. A "
        "program that does not compile or run is made smaller as long as it fails in the same way.",
    )  # fmt: skip
    _add_program(reduce)
    add_input_arguments(reduce)
    _add_tolerance(reduce)
    reduce.add_argument("--seconds", type=float, default=60.0, help="time for it (default 60)")
    reduce.add_argument("--blame-only", action="store_true", help="leave the program as it is")
    reduce.add_argument("-o", "--output", metavar="PATH",
                        help="write the smallest program here: script, or JSON to a "
                        ".json")  # fmt: skip
    reduce.set_defaults(command=_reduce)


def _add_program(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", metavar="PROGRAM",
                        help="a .py script, .json module, .onnx, .pt2 or .relay file")  # fmt: skip
    parser.add_argument("--entry", metavar="NAME", help="the IRModule of a script")
    parser.add_argument("--passes", metavar="A,B", default="",
                        help="names of passes and pipelines, in order")  # fmt: skip
    add_limits_argument(parser)


def _add_tolerance(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rtol", type=float, help="relative tolerance (default: by data type)")
    parser.add_argument("--atol", type=float, help="absolute tolerance (default: by data type)")


# opt


def _opt(args: argparse.Namespace, console: Console) -> int:
    from ..transform.instruments import PassInstrument
    from ..transform.pass_infra import PassContext

    class Printing(PassInstrument):
        def run_after_pass(self, mod: Any, info: Any) -> None:
            console.text(f"# after {info.name}\n{mod.script()}\n")

    mod = read_module(args.program, args.entry, limits_of(args))
    passes = _passes(args.passes)
    try:
        with PassContext(instruments=[Printing()] if args.print_after else []):
            for each in passes:
                mod = each(mod)
    except (*BUILD_ERRORS, RelaxVMError) as error:
        raise CommandError(f"{args.program}: {type(error).__name__}: {error}") from error
    text = mod.script()
    if args.output is not None:
        _write(args.output, mod)
    elif not args.print_after or not passes:
        console.text(text)
    console.result({"passes": [each.name for each in passes], "script": text})
    return Exit.OK


def _passes(text: str) -> list[Any]:
    from ..transform.find import find_passes

    try:
        return find_passes([name.strip() for name in text.split(",") if name.strip()])
    except ValueError as error:
        raise UsageError(f"--passes: {error}") from error


def _write(path: str, mod: Any) -> None:
    from ..ir import save_json

    text = save_json(mod) if path.endswith(".json") else f"{mod.script()}\n"
    with replacing(path) as file:
        file.write(text.encode())


# reduce


def _reduce(args: argparse.Namespace, console: Console) -> int:
    from ..compiler.reduce import blame, fails_alike, outcome_of, shrink

    mod = read_module(args.program, args.entry, limits_of(args))
    if "main" not in mod:
        raise UsageError(f"{args.program}: it has no function main")
    passes = _passes(args.passes)
    inputs = _inputs(mod, args, console)
    tolerance = Tolerance(1e-4 if args.rtol is None else args.rtol,
                          1e-5 if args.atol is None else args.atol)  # fmt: skip
    plain = outcome_of(mod, inputs)
    data: dict[str, Any] = {"blame": None}
    if plain.failed:
        console.text(f"fails in the {plain.stage}: {type(plain.value).__name__}: {plain.value}")
        holds = fails_alike(mod, inputs)
    else:
        with console.progress("looking for the pass"):
            found = blame(mod, inputs, passes, tolerance=tolerance)
        if found is None:
            console.text("no pass changes the result of main, and none fails")
            console.result(data)
            return Exit.OK
        console.text(f"to blame: {found}")
        data["blame"] = {"pass": found.name, "text": found.text}
        name, kind = found.name, found.text.partition(":")[0].startswith("fails")

        def holds(mod: Any, args: list[Any]) -> bool:
            again = blame(mod, args, passes, tolerance=tolerance)
            return (again is not None and again.name == name
                    and again.text.startswith("fails") == kind)  # fmt: skip

    if not args.blame_only:
        with console.progress("making the program smaller"):
            small, kept = shrink(mod, list(inputs), holds, seconds=args.seconds)
        data["script"] = small.script()
        console.text(f"\n{small.script()}")
        if args.output is not None:
            _write(args.output, small)
        data["inputs"] = len(kept)
    console.result(data)
    return Exit.FAILED


def _inputs(mod: Any, args: argparse.Namespace, console: Console) -> Sequence[Any]:
    """The arguments of main; placeholders where the program cannot be compiled."""
    from ..compiler.build import build

    try:
        executable = build(mod, relax_pipeline="default_build")
    except Exception:  # this is what is looked for
        return [None] * len(mod["main"].params)
    vm = VirtualMachine(executable)
    return gather_inputs(args, vm.executable, vm.executable.function("main"), console)
