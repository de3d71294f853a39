"""Mutants of programs in JSON: documents of `relaxvm.ir.json`, changed as JSON and as graphs."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

from relaxvm import analysis, ir
from relaxvm.compiler.build import build
from relaxvm.errors import MissingExtraError, RelaxVMError
from relaxvm.ir.json import load_json, save_json
from relaxvm.ir.node import node_classes
from relaxvm.values import Shape
from relaxvm.vm import VirtualMachine

from ..relax_generator import generate, packed_functions
from ..test_ir_json import program
from .changes import Mutant, as_text, change_bytes, change_json, number, seeded
from .execute import LIMITS
from .outcomes import Ending, Outcome, described, is_from_function

__all__ = ["bases", "change_document", "mutant", "run"]

_PROGRAMS: Final = 300
"""Random programs of which the small ones are bases."""
_LARGEST: Final = 6000
"""Characters of a base."""

Document = dict[str, Any]


@cache
def bases() -> dict[str, str]:
    """Return the documents to mutate: random programs, and one with every kind of node."""
    found = {"nodes": save_json(program()), "value": save_json({"a": [1, 2.5, (None, "x")]})}
    for seed in range(_PROGRAMS):
        text = save_json(generate(seed).module)
        if len(text) <= _LARGEST:
            found[f"program {seed}"] = text
    return found


@cache
def _names() -> list[str]:
    return sorted(bases())


@cache
def _strings() -> list[str]:
    """All strings in the bases, and all classes."""
    found = {"", *node_classes()}

    def walk(value: Any) -> None:
        if isinstance(value, str):
            found.add(value)
        elif isinstance(value, list):
            for item in value:
                walk(item)
        elif isinstance(value, dict):
            walk([*value.keys(), *value.values()])

    for text in bases().values():
        walk(json.loads(text))
    return sorted(found)


@cache
def _parts() -> dict[str, list[Any]]:
    """Values of parts of nodes in all bases, as JSON text, by class and part."""
    found: dict[str, set[str]] = {}
    for text in bases().values():
        for node in json.loads(text)["nodes"]:
            for part, value in node.items():
                found.setdefault(f"{node['is']}.{part}", set()).add(json.dumps(value))
    return {key: sorted(values) for key, values in found.items()}


def mutant(index: int, seed: int = 0) -> Mutant:
    """Return the mutant with an index."""
    rng = seeded("json", index, seed)
    base = rng.choice(_names())
    if rng.random() < 0.08:
        data, steps = change_bytes(bases()[base].encode(), rng)
        return Mutant(base, tuple(steps), data)
    document = json.loads(bases()[base])
    steps = change_document(document, rng)
    text = json.dumps(document, ensure_ascii=rng.random() < 0.9, separators=(",", ":"))
    return Mutant(base, tuple(steps), text.encode("utf-8", "surrogatepass"))


def change_document(document: Document, rng: random.Random) -> list[str]:
    """Apply one to three mutations of JSON values or of the graph of nodes; return their names."""
    steps = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        has_nodes = isinstance(document.get("nodes"), list) and document["nodes"]
        if has_nodes and rng.random() < 0.8:
            change = rng.choice(_GRAPH)
            change(document, rng)
            steps.append(change.__name__)
        else:
            steps.append(change_json(document, _strings(), rng))
    return steps


# Mutations of the graph of nodes


def _node(document: Document, rng: random.Random) -> tuple[int, Any]:
    nodes = document["nodes"]
    if not isinstance(nodes, list) or not nodes:
        return 0, {}
    at = rng.randrange(len(nodes))
    return at, nodes[at] if isinstance(nodes[at], dict) else {}


def _references(value: Any) -> list[Document]:
    """Return all references to nodes in a value."""
    found = []
    work = [value]
    while work:
        item = work.pop()
        if isinstance(item, dict):
            if "node" in item:
                found.append(item)
            work += item.values()
        elif isinstance(item, list):
            work += item
    return found


def change_reference(document: Document, rng: random.Random) -> None:
    """Let a node refer to another one, mostly before it and often of the same class."""
    at, node = _node(document, rng)
    found = _references(node)
    if not found:
        return
    chosen = rng.choice(found)
    others = range(at) if rng.random() < 0.9 else range(-1, len(document["nodes"]) + 1)
    if rng.random() < 0.5 and type(chosen["node"]) is int:
        nodes = document["nodes"]
        old = nodes[chosen["node"]] if 0 <= chosen["node"] < len(nodes) else {}
        alike = [i for i in others if 0 <= i < len(nodes) and _class(nodes[i]) == _class(old)]
        chosen["node"] = rng.choice(alike or [0])
    else:
        chosen["node"] = rng.choice(others or [0])


def _class(node: Any) -> Any:
    return node.get("is") if isinstance(node, dict) else None


def change_class(document: Document, rng: random.Random) -> None:
    _, node = _node(document, rng)
    node["is"] = rng.choice(sorted(node_classes()))


def change_part(document: Document, rng: random.Random) -> None:
    """Replace a part by the same part of another node of its class, in any program."""
    at, node = _node(document, rng)
    if len(node) < 2:
        return
    part = rng.choice([*node])
    values = _parts().get(f"{node.get('is')}.{part}")
    if values:
        node[part] = json.loads(rng.choice(values))
        for reference in _references(node[part]):
            reference["node"] = rng.randrange(max(1, at))


def drop_part(document: Document, rng: random.Random) -> None:
    _, node = _node(document, rng)
    if node:
        del node[rng.choice([*node])]


def add_part(document: Document, rng: random.Random) -> None:
    _, node = _node(document, rng)
    _, other = _node(document, rng)
    if other:
        part = rng.choice([*other])
        node[part] = other[part]


def change_scalar(document: Document, rng: random.Random) -> None:
    """Change a number, a name or a flag of a node."""
    _, node = _node(document, rng)
    parts = [key for key, value in node.items() if isinstance(value, (int, float, str))]
    if not parts:
        return
    part = rng.choice(parts)
    if isinstance(node[part], str):
        node[part] = rng.choice(_strings())
    else:
        node[part] = rng.choice((number(rng), not node[part], -node[part], 1 << 70, 0.5))


def copy_node(document: Document, rng: random.Random) -> None:
    _, node = _node(document, rng)
    other, _ = _node(document, rng)
    if node:
        document["nodes"][other] = json.loads(json.dumps(node))


def swap_nodes(document: Document, rng: random.Random) -> None:
    (one, _), (other, _) = _node(document, rng), _node(document, rng)
    nodes = document["nodes"]
    if isinstance(nodes, list) and nodes:
        nodes[one], nodes[other] = nodes[other], nodes[one]


def share_doubly(document: Document, rng: random.Random) -> None:
    """Write a chain of nodes over others, each of which refers to the one before it twice."""
    at, _ = _node(document, rng)
    kind, parts = rng.choice(
        (("Tuple", ("fields",)), ("ShapeExpr", ("values",)), ("Add", ("a", "b")),
         ("TupleType", ("fields",)), ("SeqExpr", ("body",)), ("Call", ("op", "args")))
    )  # fmt: skip
    nodes = document["nodes"]
    for i in range(max(1, at), min(len(nodes), at + rng.choice((2, 10, 60)))):
        before = {"node": i - 1}
        nodes[i] = {"is": kind} | {
            part: [before, before] if part in ("fields", "values", "args") else before
            for part in parts
        }


def change_function(document: Document, rng: random.Random) -> None:
    """Change something in the module or in one of its functions."""
    nodes = document["nodes"]
    found = [n for n in nodes if _class(n) in ("IRModule", "Function", "PrimFunc", "SeqExpr")]
    if found:
        change_json(rng.choice(found), _strings(), rng)


_GRAPH: Final[tuple[Callable[[Document, random.Random], None], ...]] = (
    change_reference, change_reference, change_reference, change_reference, change_part,
    change_part, change_part, change_class, drop_part, add_part, change_scalar, change_scalar,
    change_scalar, copy_node, swap_nodes, share_doubly, change_function,
)  # fmt: skip


# Running


def run(mutant: Mutant, index: int) -> Ending:
    """Read a program, print it, save it again, check it, and if it is well-formed compile it and
    call its functions."""
    try:
        loaded = load_json(as_text(mutant.data))
    except (RelaxVMError, MissingExtraError) as error:
        return Outcome.REFUSED, type(error).__name__
    except Exception as error:
        return Outcome.STRAY_ERROR, f"load_json: {described(error)}"
    step = ""
    try:
        step = "save_json"
        text = save_json(loaded)
        if save_json(load_json(text)) != text:
            return Outcome.STRAY_ERROR, "differs: after saving and reading"
        if not isinstance(loaded, ir.IRModule):
            return Outcome.RESULT, "value"
        step = "violations"
        if analysis.violations(loaded):
            return Outcome.REFUSED, "IllFormedError"
        step = "str"
        str(loaded)
        step = "structural_hash"
        ir.structural_hash(loaded)
    except RelaxVMError as error:
        return Outcome.REFUSED, f"{step}: {type(error).__name__}"
    except Exception as error:
        return Outcome.STRAY_ERROR, f"{step}: {described(error)}"
    return _compiled(loaded, index)


def _compiled(module: ir.IRModule, index: int) -> Ending:
    os.environ["CC"] = "no-compiler"  # a compiler takes as long as hundreds of mutants
    try:
        executable = build(module)
    except (RelaxVMError, OverflowError, TypeError, ValueError) as error:
        return Outcome.REFUSED, f"build {type(error).__name__}"
    except Exception as error:
        return Outcome.STRAY_ERROR, f"build: {described(error)}"
    endings = [(Outcome.RESULT, "")]
    names = {info.name for info in executable.functions}
    try:
        functions = packed_functions([])
        machine = VirtualMachine(executable, limits=LIMITS, functions=functions)
        for var, function in module.functions.items():
            if isinstance(function, ir.Function) and var.name_hint in names:
                endings.append(_call(machine, var.name_hint, function, index))
    except RelaxVMError as error:
        return Outcome.REFUSED, type(error).__name__
    except Exception as error:
        return Outcome.STRAY_ERROR, f"vm: {described(error)}"
    return max(endings)


def _call(machine: VirtualMachine, name: str, function: ir.Function, index: int) -> Ending:
    args = [_argument(parameter.ty, index) for parameter in function.params]
    try:
        machine[name](*args)
    except RelaxVMError as error:
        return Outcome.RELAXVM_ERROR, type(error).__name__
    except BaseException as error:
        if is_from_function(error):
            return Outcome.KERNEL_ERROR, type(error).__name__
        return Outcome.STRAY_ERROR, f"call: {described(error)}"
    return Outcome.RESULT, ""


def _argument(ty: Any, index: int) -> Any:
    """Return an argument of a type, as far as it says which."""
    if isinstance(ty, ir.TupleType):
        return tuple(_argument(field, index) for field in ty.fields[:100])
    if isinstance(ty, ir.TensorType):
        dims = ty.dims if ty.dims is not None else [2] * max(0, min(ty.ndim, 4))
        shape = [d.value if isinstance(d, ir.IntImm) else 2 + index % 2 for d in dims]
        if all(0 <= d <= 64 for d in shape) and len(shape) < 6:
            return np.ones(shape, ty.dtype or "float32")
    if isinstance(ty, ir.ShapeType):
        return Shape([2] * max(0, min(ty.ndim, 4)))
    return 1 + index % 3
