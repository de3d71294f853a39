"""Other engines that run a model of a benchmark, each by its public Python interface.

Every engine computes in float32 with the number of threads that it is told, but tract, whose
package has no setting and uses one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[[], list[Any]]

PEERS = ("openvino", "tract", "torch", "TVM")
"""Names of engines beside relaxvm and onnxruntime."""


def runner(peer: str, path: str, values: dict[str, Any], threads: int) -> Run:
    """A function that runs the model of `path` with these inputs, and returns its results.

    torch runs the `.pt2` file that lies beside the model, in eager mode, and takes the inputs in
    their order.  TVM's build is its default for ``llvm``, for this processor, without tuning.
    """
    return _RUNNERS[peer](path, values, threads)


def openvino_runner(
    path: str, values: dict[str, Any], threads: int, precision: str | None = "f32"
) -> Run:
    """OpenVINO; where `precision` is None it chooses one itself."""
    import openvino

    settings: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    if precision is not None:
        settings["INFERENCE_PRECISION_HINT"] = precision
    compiled = openvino.Core().compile_model(path, "CPU", settings)
    request = compiled.create_infer_request()
    return lambda: list(request.infer(values).values())


def _tract(path: str, values: dict[str, Any], threads: int) -> Run:
    import tract

    model = tract.onnx().load(path)
    kinds = {"f": "f", "i": "i", "u": "u", "b": "bool"}
    arrays = [values[model.input_name(i)] for i in range(model.input_count())]
    for i, array in enumerate(arrays):
        kind = kinds[array.dtype.kind]
        bits = "" if kind == "bool" else str(array.dtype.itemsize * 8)
        model.set_input_fact(i, ",".join([*map(str, array.shape), kind + bits]))
    runnable = model.into_model().into_runnable()
    return lambda: [each.to_numpy() for each in runnable.run(arrays)]


def _torch(path: str, values: dict[str, Any], threads: int) -> Run:
    import torch

    torch.set_num_threads(threads)
    module = torch.export.load(str(Path(path).with_suffix(".pt2"))).module()
    tensors = [torch.from_numpy(value) for value in values.values()]

    def run() -> list[Any]:
        with torch.inference_mode():
            found = module(*tensors)
        return [each.numpy() for each in (found if isinstance(found, tuple | list) else [found])]

    return run


def _tvm(path: str, values: dict[str, Any], threads: int) -> Run:
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    shapes = {name: list(value.shape) for name, value in values.items()}
    module = from_onnx(onnx.load(path), shape_dict=shapes)
    target = {"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu()}
    executable = tvm.compile(module, tvm.target.Target(target))
    vm = relax.VirtualMachine(executable, tvm.cpu())
    tensors = [tvm.runtime.tensor(value) for value in values.values()]

    def run() -> list[Any]:
        found = vm["main"](*tensors)
        return [each.numpy() for each in ([found] if hasattr(found, "shape") else list(found))]

    return run


_RUNNERS: dict[str, Callable[[str, dict[str, Any], int], Run]] = {
    "openvino": openvino_runner,
    "tract": _tract,
    "torch": _torch,
    "TVM": _tvm,
}
