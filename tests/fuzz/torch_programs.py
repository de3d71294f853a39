"""Mutants of archives of torch.export: fixtures, changed as bytes, as JSON and as zip files."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import random
import warnings
import zipfile
from functools import cache
from typing import Any, Final

import numpy as np

from relaxvm import analysis, ir
from relaxvm.compiler.build import build
from relaxvm.errors import InternalError, OperatorValueError, RelaxVMError
from relaxvm.frontend.torch import from_exported_program
from relaxvm.vm import VirtualMachine

from .. import torch_fixtures
from .changes import Mutant, change_bytes, change_json, number, seeded
from .execute import LIMITS
from .outcomes import Ending, Outcome, described, is_from_function
from .relay_texts import argument

__all__ = ["bases", "mutant", "run"]

_LARGEST: Final = 100_000
"""Bytes of a base."""


@cache
def bases() -> dict[str, dict[str, Any]]:
    """Return the members of the archives to mutate: bytes, or values of JSON."""
    found = {}
    for name in torch_fixtures.names():
        data = torch_fixtures.load(name).archive
        if len(data) > _LARGEST:
            continue
        members: dict[str, Any] = {}
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.namelist():
                content = archive.read(member)
                if member.endswith(".pt"):  # samples, which nothing reads
                    continue
                members[member] = json.loads(content) if member.endswith(".json") else content
        found[name] = members
    return found


def _archive(members: dict[str, Any]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, content in members.items():
            is_json = not isinstance(content, bytes)
            info = zipfile.ZipInfo(name)  # without the time
            archive.writestr(info, json.dumps(content).encode() if is_json else content)
    return data.getvalue()


@cache
def _names() -> list[str]:
    """The names of the bases, the smallest first."""
    return sorted(bases(), key=lambda name: (len(_pickled(name)), name))


@cache
def _pickled(name: str) -> bytes:
    """A base from which copies are made: ten times as fast as `copy.deepcopy`."""
    return pickle.dumps(bases()[name])


def _base(rng: random.Random) -> str:
    """The smaller one of two: a large program takes the time of ten small ones."""
    return _names()[min(rng.randrange(len(_names())) for _ in range(2))]


_WORDS: Final = (
    "x", "self", "other", "as_tensor", "as_int", "as_none", "as_sym_int", "as_ints", "name", "dim",
    "as_expr", "Symbol('s77')", "s77", "Mul(Integer(2), Symbol('u0'))", "weight_0", "use_pickle",
    "user_output", "buffer_mutation", "getitem", "torch.ops.aten.add.Tensor", "as_tensors",
    "torch.ops.aten.view.default", "torch.ops.higher_order.cond", "_operator.add", "as_graph", "",
)  # fmt: skip


def _nodes(value: Any) -> list[dict[str, Any]]:
    """All nodes in a JSON value."""
    found, work = [], [value]
    while work:
        item = work.pop()
        if isinstance(item, dict):
            if "target" in item and "inputs" in item:
                found.append(item)
            work += item.values()
        elif isinstance(item, list):
            work += item
    return found


def _program(members: dict[str, Any]) -> Any:
    return next(value for name, value in members.items() if "/models/" in name)


def change_any(members: dict[str, Any], rng: random.Random) -> None:
    """Change a JSON value somewhere."""
    name = rng.choice([name for name in members if name.endswith(".json")])
    change_json(members[name], _WORDS, rng)


def change_graph(members: dict[str, Any], rng: random.Random) -> None:
    """Change a value within a node."""
    change_json(rng.choice(_nodes(_program(members))), _WORDS, rng)


def change_target(members: dict[str, Any], rng: random.Random) -> None:
    """Let a node call the operator of another one, of this program or of another."""
    nodes = _nodes(_program(members))
    others = nodes if rng.random() < 0.5 else _nodes(_program(bases()[rng.choice(_names())]))
    rng.choice(nodes)["target"] = rng.choice(others)["target"]


def change_argument(members: dict[str, Any], rng: random.Random) -> None:
    """Give a node an argument of another one."""
    nodes = [node for node in _nodes(_program(members)) if node["inputs"]]
    one, other = rng.choice(nodes), rng.choice(nodes)
    target = rng.choice(one["inputs"])
    target["arg"] = copy.deepcopy(rng.choice(other["inputs"])["arg"])


def change_order(members: dict[str, Any], rng: random.Random) -> None:
    """Drop, repeat or swap nodes."""
    nodes = _program(members)["graph_module"]["graph"]["nodes"]
    at = rng.randrange(len(nodes))
    kind = rng.randrange(3)
    if kind == 0:
        del nodes[at]
    elif kind == 1:
        nodes.insert(at, copy.deepcopy(nodes[at]))
    else:
        nodes.insert(0, nodes.pop(at))


def change_sizes(members: dict[str, Any], rng: random.Random) -> None:
    """Change a size, stride or offset."""
    found, work = [], list(members.values())
    while work:
        item = work.pop()
        if isinstance(item, dict):
            if "as_int" in item and len(item) == 1:
                found.append(item)
            work += item.values()
        elif isinstance(item, list):
            work += item
    rng.choice(found)["as_int"] = number(rng)


def change_members(members: dict[str, Any], rng: random.Random) -> None:
    """Drop or rename a member, or change the bytes of one."""
    name = rng.choice(list(members))
    content = members.pop(name)
    kind = rng.randrange(3)
    if kind == 0:
        members[rng.choice((name + "x", "../" + name, name.partition("/")[2], "/", name * 2))] = (
            content
        )
    elif kind == 1:
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        members[name] = change_bytes(raw, rng)[0]


_CHANGES: Final = (
    change_any, change_any, change_graph, change_graph, change_target, change_argument,
    change_order, change_sizes, change_members,
)  # fmt: skip


def mutant(index: int, seed: int = 0) -> Mutant:
    """Return the mutant with an index."""
    rng = seeded("pt2", index, seed)
    base = _base(rng)
    members = pickle.loads(_pickled(base))
    if rng.random() < 0.15:
        data, steps = change_bytes(_archive(members), rng)
        return Mutant(base, tuple(steps), data)
    names = []
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        change = rng.choice(_CHANGES)
        try:
            change(members, rng)
        except (IndexError, KeyError, TypeError, ValueError, StopIteration, AttributeError):
            continue  # no such part
        names.append(change.__name__)
    return Mutant(base, tuple(names), _archive(members))


def run(mutant: Mutant, index: int) -> Ending:
    """Import a program, check it, compile it and call it."""
    os.environ["CC"] = "no-compiler"  # a compiler takes as long as hundreds of mutants
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with np.errstate(all="ignore"):
            return _run(mutant, index)


def _run(mutant: Mutant, index: int) -> Ending:
    step = "from_exported_program"
    try:
        module = from_exported_program(mutant.data, limits=LIMITS)
        step = "violations"
        if problems := analysis.violations(module):
            return Outcome.STRAY_ERROR, f"ill-formed: {problems[0]}"
        step = "build"
        try:
            executable = build(module, limits=LIMITS)
        except OverflowError as error:  # the size of a tensor
            return Outcome.REFUSED, f"build {type(error).__name__}"
        step = "vm"
        machine = VirtualMachine(executable, limits=LIMITS)
    except OperatorValueError as error:
        if step != "build":  # where shapes are known that the import did not know
            return Outcome.STRAY_ERROR, f"{step}: {described(error)}"
        return Outcome.REFUSED, f"{step} {type(error).__name__}"
    except InternalError as error:
        return Outcome.STRAY_ERROR, described(error)
    except RelaxVMError as error:
        return Outcome.REFUSED, f"{step} {type(error).__name__}"
    except Exception as error:
        return Outcome.STRAY_ERROR, f"{step}: {described(error)}"
    function = module["main"]
    assert isinstance(function, ir.Function)
    call = torch_fixtures.load(mutant.base).calls[0]
    given = [*call.args, *call.kwargs.values()]
    args = [argument(parameter.ty, index) for parameter in function.params]
    for i, value in enumerate(given[: len(args)]):
        if args[i] is None or index % 2:
            args[i] = value
    if any(arg is None for arg in args[len(given) :]):
        return Outcome.RESULT, "not called"
    try:
        machine["main"](*args)
    except RelaxVMError as error:
        return Outcome.RELAXVM_ERROR, type(error).__name__
    except BaseException as error:
        if is_from_function(error):
            return Outcome.KERNEL_ERROR, type(error).__name__
        return Outcome.STRAY_ERROR, f"call: {described(error)}"
    return Outcome.RESULT, ""
