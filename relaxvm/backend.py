"""relaxvm as a backend of the package onnx: its test-suite, and other programs, run models by it.

The functions are those of ``onnx.backend.base.Backend``; the package onnx is not needed to run a
model by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .compiler.build import build
from .errors import RelaxVMError
from .frontend.onnx import from_onnx
from .transform.pipelines import get_pipeline
from .vm.machine import VirtualMachine

__all__ = ["Prepared", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]


class Prepared:
    """A model that has been compiled.

    Args:
        vm: the machine.
        outputs: the number of outputs.
    """

    def __init__(self, vm: VirtualMachine, outputs: int) -> None:
        self.vm = vm
        self._outputs = outputs

    def run(self, inputs: Any, **options: Any) -> tuple[Any, ...]:
        """The outputs of the model, in order.

        Args:
            inputs: one for each input of the model, in order.
            options: none are there; the name is the interface's.
        """
        result = self.vm["main"](*inputs)
        return (result,) if self._outputs == 1 else result


def supports_device(device: str) -> bool:
    """Whether models run on a device: "CPU" is the only one."""
    return device.partition(":")[0] == "CPU"


def is_compatible(model: Any, device: str = "CPU", **options: Any) -> bool:
    """Whether a model can be compiled."""
    try:
        from_onnx(model)
    except RelaxVMError:
        return False
    return supports_device(device)


def prepare(model: Any, device: str = "CPU", **options: Any) -> Prepared:
    """Compile a model.

    Raises:
        ValueError: the device is not the CPU.
        RelaxVMError: the model cannot be imported; see `relaxvm.frontend.onnx.from_onnx`.
    """
    if not supports_device(device):
        raise ValueError(f"prepare: device: expected 'CPU', got {device!r}")
    module = from_onnx(model)
    outputs = module["main"].attrs["output_names"]
    pipeline = get_pipeline("model", round_halves=True)  # as the standard defines operators
    return Prepared(VirtualMachine(build(module, relax_pipeline=pipeline)), len(outputs))


def run_model(model: Any, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
    """Compile a model and run it once."""
    return prepare(model, device).run(inputs)


def run_node(
    node: Any,
    inputs: Sequence[Any],
    device: str = "CPU",
    outputs_info: Any = None,
    **options: Any,
) -> tuple[Any, ...]:
    """Run a single node, an ``onnx.NodeProto``; needs the package onnx.

    Raises:
        ImportError: the package onnx is not installed.
    """
    import numpy as np
    from onnx import helper

    names = [name for name in node.input if name]
    values = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype), np.shape(value)
        )
        for name, value in zip(names, inputs, strict=True)
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    model = helper.make_model(helper.make_graph([node], "node", values, outputs), **options)
    return run_model(model, inputs, device)
