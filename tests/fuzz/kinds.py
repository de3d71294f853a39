"""The kinds of file that relaxvm reads, each with its mutants and what is done with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from relaxvm.executable.formats import binary

from . import (
    calls,
    ir_json,
    kernels,
    libraries,
    listings,
    mutate,
    onnx_models,
    parameters,
    prim_funcs,
    relay_executables,
    relay_texts,
    saved_runs,
    sections,
    torch_programs,
)
from .changes import Mutant
from .execute import LIMITS, execute
from .outcomes import Ending

__all__ = ["KINDS", "Kind"]


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        about: a description in one line.
        suffix: of the names of such files.
        make: makes the mutant of an index and a seed, and of nothing else.
        run: reads a mutant, uses what was read, and returns the outcome.
        warm_up: makes what all mutants share, before the first process is forked.
    """

    about: str
    suffix: str
    make: Callable[[int, int], Mutant]
    run: Callable[[Mutant, int], Ending]
    warm_up: Callable[[], object]


def _run_executable(mutant: Mutant, index: int) -> Ending:
    return execute(lambda: binary.loads(mutant.data, limits=LIMITS), mutant.base, index)


KINDS: Final = {
    "vmexec": Kind(
        "executables in the binary form", ".vmexec", mutate.mutant, _run_executable, mutate.bases
    ),
    "listing": Kind(
        "listings of executables", ".vmasm", listings.mutant, listings.run, listings.bases
    ),
    "json": Kind("programs in JSON", ".json", ir_json.mutant, ir_json.run, ir_json.bases),
    "kernels": Kind(
        "entries of the cache of compiled kernels, and kernels in files", "", kernels.mutant,
        kernels.run, kernels.bases,
    ),
    "sections": Kind(
        "sections behind the stream of executables", ".vmexec", sections.mutant, sections.run,
        sections.bases,
    ),
    "prim_funcs": Kind(
        "the IR of kernels in executables", ".vmexec", prim_funcs.mutant, prim_funcs.run,
        prim_funcs.bases,
    ),
    "parameters": Kind(
        "folders of weights, and constants in libraries of TVM", "", parameters.mutant,
        parameters.run, parameters.bases,
    ),
    "library": Kind(
        "shared libraries that contain executables", ".so", libraries.mutant, libraries.run,
        libraries.bases,
    ),
    "relay": Kind(
        "Relay programs in text form", ".relay", relay_texts.mutant, relay_texts.run,
        relay_texts.bases,
    ),
    "relay_vm": Kind(
        "executables and listings of Relay's virtual machine", ".ro", relay_executables.mutant,
        relay_executables.run, relay_executables.bases,
    ),
    "run": Kind("saved runs", ".ckpt", saved_runs.mutant, saved_runs.run, saved_runs.bases),
    "calls": Kind(
        "arguments of builtins and kernels", ".txt", calls.mutant, calls.run, calls.bases
    ),
    "onnx": Kind("ONNX models", ".onnx", onnx_models.mutant, onnx_models.run, onnx_models.bases),
    "pt2": Kind(
        "programs of torch.export", ".pt2", torch_programs.mutant, torch_programs.run,
        torch_programs.bases,
    ),
}  # fmt: skip
