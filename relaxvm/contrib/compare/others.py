"""The packages that models are compared with: each yields the values of nodes in order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from ...errors import MissingExtraError, RelaxVMError

__all__ = ["OTHERS", "Batches", "Other"]

_FEW_BYTES: Final = 1 << 26
_MOST_AT_ONCE: Final = 512


class Batches:
    """Names, some at a time: each time twice as many as before, as long as their values take little
    memory.  To compile a model takes longer than to run it.

    Args:
        names: all of them.
        count: how many are the first.
    """

    def __init__(self, names: Sequence[str], count: int) -> None:
        self._names = names
        self._size = count

    def __iter__(self) -> Iterator[Sequence[str]]:
        start = 0
        while start < len(self._names):
            names = self._names[start : start + self._size]
            yield names
            start += len(names)

    def took(self, values: Sequence[Any]) -> None:
        """Note the values of the last names."""
        nbytes = sum(getattr(value, "nbytes", 0) for value in values)
        if nbytes <= _FEW_BYTES:
            self._size = min(2 * self._size, max(self._size, _MOST_AT_ONCE))
        else:
            self._size = max(self._size // 2, 1)


class Other(Protocol):
    """Runs a model of some kind by another package."""

    kind: ClassVar[str]

    def __init__(
        self, path: str, inputs: list[Any], names: Sequence[str], count: int
    ) -> None: ...

    def values(self) -> Iterator[tuple[str, Any]]:
        """The values of `names` in order; None for those that are no tensors, or not there."""
        ...


def _missing(package: str, error: ImportError) -> MissingExtraError:
    return MissingExtraError(f"comparing needs the package {package}: {error}")


def _as_lists(inputs: Sequence[Any]) -> list[Any]:
    """Inputs with sequences as the packages for ONNX take them."""
    return [list(each) if isinstance(each, tuple) else each for each in inputs]


class OnnxRuntime:
    """onnxruntime, with values as further outputs of the model, some at a time."""

    kind: ClassVar[str] = "onnx"

    def __init__(self, path: str, inputs: list[Any], names: Sequence[str], count: int) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise _missing("onnxruntime", error) from error
        self._package = onnxruntime
        self._path, self._names, self._count = path, names, count
        self._inputs = _as_lists(inputs)

    def values(self) -> Iterator[tuple[str, Any]]:
        data = Path(self._path).read_bytes()
        options = self._package.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path",
            os.path.dirname(os.path.abspath(self._path)),
        )
        own: set[str] | None = None
        batches = Batches(self._names, self._count)
        for names in batches:
            if own is None:
                session = self._session(data, options)
                own = {each.name for each in session.get_outputs()}
            added = b"".join(_output(name) for name in names if name not in own)
            session = self._session(data + _field(7, added), options)
            feeds = dict(
                zip([each.name for each in session.get_inputs()], self._inputs, strict=True)
            )
            found = session.run(list(names), feeds)
            batches.took(found)
            yield from zip(names, found, strict=True)

    def _session(self, data: bytes, options: Any) -> Any:
        return self._package.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _field(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer.  Fields of a message that come again are merged."""
    head = bytearray([number << 3 | 2])
    size = len(content)
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*head, size]) + content


def _output(name: str) -> bytes:
    """A further output of a graph, without a type."""
    return _field(12, _field(1, name.encode()))


class Reference:
    """The reference evaluator of the package onnx, node by node."""

    kind: ClassVar[str] = "onnx"

    def __init__(self, path: str, inputs: list[Any], names: Sequence[str], count: int) -> None:
        try:
            from onnx.reference import ReferenceEvaluator
        except ImportError as error:
            raise _missing("onnx", error) from error
        self._evaluator = ReferenceEvaluator(path)
        self._inputs, self._names = _as_lists(inputs), names

    def values(self) -> Iterator[tuple[str, Any]]:
        found = self._evaluator
        values: dict[str, Any] = {"": None, **found.rt_inits_}
        given = [name for name in found.input_names if name not in found.rt_inits_]
        values.update(zip(given, self._inputs, strict=True))
        last = {}
        for i, node in enumerate(found.rt_nodes_):
            last.update(dict.fromkeys((*node.input, *node.output), i))
        wanted = set(self._names)
        for i, node in enumerate(found.rt_nodes_):
            attributes: dict[str, Any] = {}
            if type(node).__name__ == "BatchNormalization_9" and len(node.output) == 1:
                node.momentum = None  # with one, onnx computes statistics, as in training
            if node.has_linked_attribute:
                attributes["linked_attributes"] = found.attributes_
            if node.need_context():
                attributes["context"] = values  # graphs inside of the node use other names, too
                last = {}
            results = node.run(*[values[name] for name in node.input], **attributes)
            for name, value in zip(node.output, results, strict=False):
                values[name] = value
                if name in wanted:
                    yield name, value
            for name in {*node.input, *node.output}:
                if name and last.get(name) == i and name not in found.rt_inits_:
                    del values[name]


class Torch:
    """torch, node by node."""

    kind: ClassVar[str] = "pt2"

    def __init__(self, path: str, inputs: list[Any], names: Sequence[str], count: int) -> None:
        try:
            import torch
        except ImportError as error:
            raise _missing("torch", error) from error
        self._torch = torch
        self._program = torch.export.load(path)
        self._inputs, self._names = inputs, names

    def _arguments(self) -> list[Any]:
        """The inputs of the graph: parameters, buffers, constants and the user's."""
        torch, program = self._torch, self._program
        state = {**program.constants, **program.state_dict}
        user = iter(self._inputs)
        found = []
        for each in program.graph_signature.input_specs:
            if each.kind.name == "USER_INPUT":
                if isinstance(each.arg, torch.export.graph_signature.ConstantArgument):
                    found.append(each.arg.value)
                    continue
                value = next(user)
                found.append(torch.from_numpy(value.copy()) if hasattr(value, "ndim") else value)
            elif each.target in state:
                found.append(state[each.target])
            else:
                raise RelaxVMError(f"the input {each.arg.name} of the kind {each.kind.name}: not "
                                   "supported here")  # fmt: skip
        return found

    def values(self) -> Iterator[tuple[str, Any]]:
        torch = self._torch
        interpreter = torch.fx.Interpreter(self._program.graph_module)
        interpreter.args_iter = iter(self._arguments())
        wanted = set(self._names)
        with torch.no_grad():
            for node in interpreter.module.graph.nodes:
                if node.op == "output":
                    break
                value = interpreter.env[node] = interpreter.run_node(node)
                if node.name in wanted:
                    yield node.name, self._array(value)
                for used in interpreter.user_to_last_uses.get(node, []):
                    del interpreter.env[used]

    def _array(self, value: Any) -> Any:
        if not isinstance(value, self._torch.Tensor):
            return None
        value = value.detach()
        if value.dtype is self._torch.bfloat16:
            import ml_dtypes

            return value.view(self._torch.int16).numpy().view(ml_dtypes.bfloat16)
        return value.numpy()


OTHERS: Final[dict[str, type[Other]]] = {
    "onnxruntime": OnnxRuntime,
    "reference": Reference,
    "torch": Torch,
}
"""Name of another side -> the class that runs it."""
