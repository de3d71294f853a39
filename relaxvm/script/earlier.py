"""Forms of earlier versions of Relax, in programs of its first design documents, and what they are
called today."""

from __future__ import annotations

from typing import Final

__all__ = ["EARLIER", "today"]

EARLIER: Final[dict[str, dict[str, str]]] = {
    "": {
        "Tensor": 'R.Tensor(("n", "m"), "float32")',
        "Shape": 'R.Shape(("n", "m"))',
        "ty": "T.handle, or R.Tensor",
    },
    "R": {
        "DynTensorType": "R.Tensor(ndim=2)",
        "call_dps": 'R.call_dps_packed("f", (x,), R.Tensor((n, m), "float32"))',
        "match_shape": 'R.match_cast(x, R.Tensor((n, m), "float32"))',
        "parser": "R",
    },
    "transform": {
        "VMMemoryLower": "CallTIRRewrite, then LowerAllocTensor and LowerRuntimeBuiltin; "
        "relaxvm.transform.pipelines.LOWERING has all passes in order",
        "ToANF": "Normalize",
    },
    "vm": {
        "builtin": "R.memory.alloc_storage, R.memory.alloc_tensor, R.memory.kill_tensor and "
        "R.memory.kill_storage; the pass VMShapeLower makes heaps of shapes",
    },
}
"""Namespace -> earlier name -> today's form."""


def today(namespace: str, name: str) -> str:
    """Return ``"; today it is ..."`` for an earlier name, an empty text for any other."""
    form = EARLIER.get(namespace, {}).get(name)
    return f"; today it is {form}" if form else ""
