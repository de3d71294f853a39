"""Print the signatures of all public callables of TVM's modules, as JSON.

``python signatures.py tvm`` asks TVM, ``python signatures.py relaxvm`` asks relaxvm under TVM's
names.  `test_tvm_signatures.py` runs both, each in a process of its own, and compares.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from typing import Any

_NAMES = """
tvm tvm.arith tvm.error tvm.instrument tvm.ir tvm.ir.instrument tvm.ir.transform tvm.relax
tvm.relax.analysis tvm.relax.backend tvm.relax.binding_rewrite tvm.relax.block_builder
tvm.relax.dpl tvm.relax.exec_builder tvm.relax.expr tvm.relax.expr_functor
tvm.relax.frontend.nn tvm.relax.frontend.nn.op tvm.relax.frontend.nn.spec
tvm.relax.frontend.onnx tvm.relax.frontend.torch tvm.relax.op tvm.relax.op.builtin
tvm.relax.op.image tvm.relax.op.memory tvm.relax.op.nn tvm.relax.op.vision tvm.relax.op.vm
tvm.relax.testing tvm.relax.testing.nn tvm.relax.transform tvm.relax.type tvm.relax.utils
tvm.relax.vm_build tvm.runtime tvm.script tvm.script.ir tvm.script.relax tvm.script.tirx
tvm.support.cc tvm.support.utils tvm.target tvm.te tvm.testing tvm.tirx tvm.topi tvm.topi.nn
tvm.topi.testing tvm.transform tvm_ffi
"""
MODULES = _NAMES.split()

SPECIAL = ("__call__", "__getitem__")
PLAIN = (type(None), bool, int, float, str)


def signature(made: Any) -> list[tuple[str, str, Any]] | None:
    """Return name, kind and default of the parameters; None where Python cannot tell."""
    try:
        parameters = inspect.signature(made).parameters.values()
    except (TypeError, ValueError):
        return None
    return [(p.name, p.kind.name, default(p.default)) for p in parameters]


def default(value: Any) -> list[Any]:
    """Return ``[]`` for no default, ``[True, value]`` for a plain one, ``[False]`` for others."""
    if value is inspect.Parameter.empty:
        return []
    if isinstance(value, (tuple, list)) and all(type(v) in PLAIN for v in value):
        return [True, list(value)]
    return [True, value] if type(value) in PLAIN else [False]


def found() -> dict[str, Any]:
    """Return ``module.name`` and ``module.name.method`` -> signature."""
    result: dict[str, Any] = {}
    for module_name in MODULES:
        try:
            module = importlib.import_module(module_name)
        except ImportError:  # TVM without an extra, or a module that relaxvm lacks
            continue
        for name in dir(module):
            member = getattr(module, name, None)
            if name.startswith("_") or inspect.ismodule(member) or not callable(member):
                continue
            full = f"{module_name}.{name}"
            result[full] = signature(member)
            if inspect.isclass(member):
                for attribute in dir(member):
                    if attribute.startswith("_") and attribute not in SPECIAL:
                        continue
                    method = getattr(member, attribute, None)
                    static = inspect.getattr_static(member, attribute, None)
                    if callable(method) and not inspect.isclass(static):
                        result[f"{full}.{attribute}"] = signature(method)
    return result


if __name__ == "__main__":
    if sys.argv[1] == "relaxvm":
        import relaxvm.contrib.as_tvm  # noqa: F401
    print(json.dumps(found()))
