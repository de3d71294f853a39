"""Programs in files whose parts are shared so often that a walk over them would never end."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

import relaxvm
from relaxvm.errors import FormatError
from relaxvm.ir import structural_equal
from relaxvm.ir.json import LEAST_WALK, MOST_SHARING, load_json, save_json
from relaxvm.script import ir as I
from relaxvm.script import relax as R


def doubled(levels: int, wrap: Any) -> str:
    """A document in which every node refers twice to the previous one."""
    nodes: list[Any] = [
        {"is": "PrimType", "dtype": "int64"},
        {"is": "Var", "name": "n", "ty": {"node": 0}},
    ]
    for level in range(levels):
        nodes.append(wrap({"node": level + 1}))
    return json.dumps(
        {"format": "relaxvm-ir", "version": 1, "root": {"node": len(nodes) - 1}, "nodes": nodes}
    )


WRAPS = {
    "scalar": lambda x: {"is": "Add", "a": x, "b": x, "ty": {"node": 0}},
    "select": lambda x: {
        "is": "Select", "condition": x, "true_value": x, "false_value": x, "ty": {"node": 0},
    },
    "tuple": lambda x: {"is": "Tuple", "fields": [x, x]},
    "call": lambda x: {
        "is": "Call", "op": x, "args": [x, x], "attrs": {"attrs": []}, "ty_args": [],
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", WRAPS)
@pytest.mark.parametrize("levels", [20, 26, 60, 3000])
def test_documents_with_exponential_sharing_are_refused(kind: str, levels: int) -> None:
    start = time.process_time()
    load_json(doubled(4, WRAPS[kind]))
    with pytest.raises(FormatError, match=r"nodes: .*a walk visits"):
        load_json(doubled(levels, WRAPS[kind]))
    assert time.process_time() - start < 60


def test_scalars_up_to_the_bound_are_read_and_printed() -> None:
    node = load_json(doubled(14, WRAPS["scalar"]))
    assert str(node).count("n") == 2**14
    assert structural_equal(load_json(save_json(node)), node, map_free_vars=True)
    with pytest.raises(FormatError, match=r"has 22 nodes, but .* a walk visits \d+; bind"):
        load_json(doubled(20, WRAPS["scalar"]))


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n", "m"), "float32"):
        with R.dataflow():
            y = R.add(x, x)
            z = R.multiply(y, y)
            R.output(z)
        return z


def test_programs_stay_far_below_the_bound() -> None:
    """Walks are longer than programs because variables share types."""
    for mod in (Module, relaxvm.get_pipeline("default")(Module)):
        document = json.loads(save_json(mod))
        assert structural_equal(load_json(json.dumps(document)), mod)
        assert LEAST_WALK > 100 * len(document["nodes"])
    builder = relaxvm.BlockBuilder()
    x = relaxvm.Var("x", Module["main"].params[0].ty)
    with builder.function("main", [x]):
        value = x
        for _ in range(2000):
            value = builder.emit(relaxvm.op.add(value, value))
        builder.emit_func_output(value)
    mod = builder.get()
    assert structural_equal(load_json(save_json(mod)), mod)
    assert MOST_SHARING >= 2
