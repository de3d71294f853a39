"""The exceptions of onnxruntime, one per status code of its C interface.

Source: ``onnxruntime.capi.onnxruntime_pybind11_state`` of onnxruntime 1.32.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = [
    "CODES",
    "EPFail",
    "EngineError",
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NotFound",
    "NotImplemented",
    "RuntimeException",
    "status",
]

_HOME: Final = "onnxruntime.capi.onnxruntime_pybind11_state"


# The names are onnxruntime's.


class Fail(Exception):
    """A general failure."""


class InvalidArgument(Exception):
    """A name, type, rank or dimension that does not fit the model."""


class NoSuchFile(Exception):
    """There is no such file."""


class NoModel(Exception):
    """There is no model."""


class EngineError(Exception):
    """The engine failed."""


class RuntimeException(Exception):
    """A node failed while the model was run."""


class InvalidProtobuf(Exception):
    """A file or bytes are no protocol buffer."""


class ModelLoaded(Exception):
    """The model is loaded already."""


class NotImplemented(Exception):  # noqa: A001
    """Something that is not supported."""


class InvalidGraph(Exception):
    """The graph of a model is not valid."""


class EPFail(Exception):
    """A provider failed."""


class ModelLoadCanceled(Exception):
    """Loading was cancelled."""


class ModelRequiresCompilation(Exception):
    """The model must be compiled for a device first."""


class NotFound(Exception):
    """Something was not found."""


CODES: Final[dict[type[Exception], tuple[int, str]]] = {
    Fail: (1, "FAIL"),
    InvalidArgument: (2, "INVALID_ARGUMENT"),
    NoSuchFile: (3, "NO_SUCHFILE"),
    NoModel: (4, "NO_MODEL"),
    EngineError: (5, "ENGINE_ERROR"),
    RuntimeException: (6, "RUNTIME_EXCEPTION"),
    InvalidProtobuf: (7, "INVALID_PROTOBUF"),
    ModelLoaded: (8, "MODEL_LOADED"),
    NotImplemented: (9, "NOT_IMPLEMENTED"),
    InvalidGraph: (10, "INVALID_GRAPH"),
    EPFail: (11, "EP_FAIL"),
    ModelLoadCanceled: (12, "MODEL_LOAD_CANCELED"),
    ModelRequiresCompilation: (13, "MODEL_REQUIRES_COMPILATION"),
    NotFound: (14, "NOT_FOUND"),
}
"""Exception -> code and name."""


def _reduced(error: Exception) -> tuple[Any, ...]:
    """For pickle, which does not find the class in a module that is not imported."""
    return _rebuilt, (CODES[type(error)][0], error.args)


def _rebuilt(code: int, args: tuple[Any, ...]) -> Exception:
    kind = next(kind for kind, (number, _) in CODES.items() if number == code)
    return kind(*args)


for _kind in CODES:
    _kind.__module__ = _HOME
    _kind.__reduce__ = _reduced  # type: ignore[method-assign,assignment]


def status(kind: type[Exception], text: str) -> Exception:
    """Return an exception with the message that onnxruntime would give it."""
    code, name = CODES[kind]
    return kind(f"[ONNXRuntimeError] : {code} : {name} : {text}")
