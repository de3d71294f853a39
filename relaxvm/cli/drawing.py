"""``graph``: pictures of programs."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import did_you_mean
from .console import Console
from .exits import CommandError, Exit, UsageError, write_error
from .inputs import gather_inputs
from .machines import add_run_arguments, make_vm

__all__ = ["add_commands"]

_SUFFIXES = ".html", ".svg", ".dot"


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    graph = commands.add_parser(
        "graph", parents=[common], help="draw the data flow or the memory of a function",
        description="Draw what a function computes, or, with --memory, its storages over its "
        "instructions, as one file that needs no network. With inputs it is run: the graph is "
        "coloured by time, and storages of unknown size have theirs.",
    )  # fmt: skip
    add_run_arguments(graph)
    graph.add_argument("-o", "--output", metavar="PATH", required=True,
                       help="file to write: .html, .svg, or .dot for a graph")  # fmt: skip
    graph.add_argument("--memory", action="store_true", help="draw the memory plan")
    graph.add_argument("--timeline", action="store_true",
                       help="draw the calls of a run over time; needs inputs")  # fmt: skip
    graph.set_defaults(command=_graph)


def _graph(args: argparse.Namespace, console: Console) -> int:
    from ..compiler.pictures import graph, memory_plan
    from ..observe import profile

    if not args.output.endswith(_SUFFIXES):
        raise UsageError(f"--output {args.output}: expected a name that ends with one of "
                         f"{', '.join(_SUFFIXES)}{did_you_mean(args.output, _SUFFIXES)}")
    vm, info = make_vm(args, console)
    given = args.random or args.input or args.arg or args.shape or not info.num_args
    inputs = gather_inputs(args, vm.executable, info, console) if given else None
    picture: Any
    if args.memory:
        picture = memory_plan(vm, info.name, *(inputs or ()))
    elif inputs is None:
        if args.timeline:
            raise UsageError("--timeline: it needs inputs, such as --random")
        picture = graph(vm, info.name)
    else:
        vm[info.name](*inputs)
        with profile(vm) as found:
            vm[info.name](*inputs)
        picture = found.timeline() if args.timeline else graph(vm, info.name, profile=found)
    try:
        picture.save(args.output)
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from error
    except OSError as error:
        raise write_error(args.output, error) from error
    console.text(f"{args.output}: {picture.title}")
    console.result({"file": args.output, "title": picture.title})
    return Exit.OK
