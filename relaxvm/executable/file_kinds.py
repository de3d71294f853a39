"""What a file is, by its first bytes and its name, and what opens it.

`kind_of` never reads more than it is given, and runs nothing.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["HEAD_BYTES", "KINDS", "FileKind", "kind_of"]

HEAD_BYTES: Final = 64
"""How many of the first bytes `kind_of` looks at."""


class FileKind(NamedTuple):
    """A kind of file.

    Attributes:
        name: in `KINDS`.
        what: the kind in words, with an article.
        hint: what opens it.
        is_program: whether the compiler reads it.
    """

    name: str
    what: str
    hint: str
    is_program: bool = False

    def __str__(self) -> str:
        return f"this is {self.what}: {self.hint}" if self.hint else f"this is {self.what}"


_COMPILE: Final = (
    "relaxvm.compile(path) makes an executable of it, and relaxvm.VirtualMachine(path) runs it"
)

KINDS: Final = {
    kind.name: kind
    for kind in (
        FileKind("executable", "an executable of relaxvm", "relaxvm.load(path) reads it"),
        FileKind("library", "a shared library", "relaxvm.load(path) reads it"),
        FileKind("listing", "a listing of an executable", "relaxvm.parse_text(text) reads it"),
        FileKind("onnx", "an ONNX model", _COMPILE, is_program=True),
        FileKind("pt2", "a program of torch.export", _COMPILE, is_program=True),
        FileKind("json", "JSON, as of relaxvm.ir.save_json", _COMPILE, is_program=True),
        FileKind("relay", "a Relay program", _COMPILE, is_program=True),
        FileKind("script", "a Python script", "relaxvm.compile(path) runs it, and compiles the "
                 "IRModule that it defines", is_program=True),
        FileKind("params", "a file of parameters of TVM", "relaxvm.compile(program, params=path) "
                 "takes those of a Relay program"),
        FileKind("npy", "an array of numpy", "numpy.load(path) reads it"),
        FileKind("zip", "a zip archive, as .npz files, wheels and files of PyTorch are", ""),
        FileKind("hdf5", "an HDF5 file, as of Keras", ""),
        FileKind("gguf", "a GGUF file", ""),
        FileKind("tflite", "a model of TensorFlow Lite", ""),
        FileKind("archive", "a compressed archive", ""),
        FileKind("picture", "a picture", ""),
        FileKind("html", "a web page", "a download may have failed"),
        FileKind("lfs", "a pointer of Git LFS to a file", "`git lfs pull` gets the file"),
        FileKind("empty", "an empty file", ""),
    )
}  # fmt: skip
"""The kinds by name."""

_SUFFIXES: Final = {
    ".onnx": "onnx", ".pt2": "pt2", ".json": "json", ".py": "script", ".relay": "relay",
    ".rly": "relay", ".params": "params",
}  # fmt: skip
"""The end of a name -> the kind, of files whose first bytes may be anything."""

_STARTS: Final = (
    (bytes.fromhex("1e1514422fde25d2"), "executable"),
    (bytes.fromhex("1d1514422fde25d2"), "executable"),
    (b"\x7fELF", "library"),
    (b"\x93NUMPY", "npy"),
    (b"PK\x03\x04", "zip"),
    (b"\x89HDF", "hdf5"),
    (b"GGUF", "gguf"),
    (b"\x1f\x8b", "archive"),
    (b"\x89PNG", "picture"),
    (b"\xff\xd8\xff", "picture"),
    (b"relaxvm text ", "listing"),
    (b"#[version", "relay"),
    (b"version https://git-lfs", "lfs"),
    (bytes.fromhex("b79c04054f8de5f7"), "params"),
)
_PT2: Final = (
    rb"(?s)^PK.{28}([^/]+/(data/(weights|constants)/|models/|archive_format|data\.pkl)"
    rb"|serialized_exported_program\.json|serialized_state_dict\.)"
)
"""The first member of an archive of torch.export, where the name of its folder is short; also of
one of torch 2.7 and earlier, and of ``torch.save``, which the importer refuses with the reason."""
_HTML: Final = rb"(?i)\s*<(!doctype html|html)\b"
_ONNX: Final = rb"\x08[\x01-\x3f][\x12\x1a\x22\x28\x32\x3a\x42]"
"""The first fields of a model: the version of the format, and one of those that may follow."""


def kind_of(head: bytes, name: str = "") -> FileKind | None:
    """The kind of a file; None if it is unknown.

    Args:
        head: its first `HEAD_BYTES` bytes, or fewer.
        name: of the file, if it has one.
    """
    for start, kind in _STARTS:
        if head.startswith(start):
            is_program = kind == "zip" and (name.endswith(".pt2") or re.search(_PT2, head))
            return KINDS["pt2" if is_program else kind]
    if head[4:8] == b"TFL3":
        return KINDS["tflite"]
    if re.match(_HTML, head):
        return KINDS["html"]
    suffix = next((each for each in _SUFFIXES if name.endswith(each)), None)
    if suffix is not None:
        return KINDS[_SUFFIXES[suffix]]
    if not head:
        return KINDS["empty"]
    if re.match(_ONNX, head):
        return KINDS["onnx"]
    return KINDS["json"] if head.lstrip().startswith(b"{") else None
