"""The section of names: those that inputs and outputs have in the model of the program.

They are any text: ``input:0``, ``x.1``, empty.
"""

from __future__ import annotations

from ...errors import FormatError
from ...messages import readable
from ..model_names import FunctionNames, ModelNames
from ._fields import U64, Reader, Writer

__all__ = ["load", "save"]


def save(to: Writer, names: ModelNames) -> None:
    to.put(U64.pack(len(names.functions)))
    for each in names.functions:
        to.name(each.function, "name of a function")
        for texts in (each.inputs, each.outputs):
            to.put(U64.pack(len(texts)))
            for text in texts:
                to.name(text, "name of an input or output")


def load(read: Reader) -> ModelNames:
    functions: dict[str, FunctionNames] = {}
    count = read.count(3 * U64.size, "functions")
    for _ in read.entries("section of names, function", count):
        function = read.name_of(read.count(1))
        if function in functions:
            raise FormatError(f"there are two entries for {readable(function)!r}")
        inputs = _texts(read)
        functions[function] = FunctionNames(function, inputs, _texts(read))
    if not functions:
        raise FormatError("expected at least one function")
    return ModelNames.of(functions.values())


def _texts(read: Reader) -> tuple[str, ...]:
    count = read.count(U64.size, "data_parts")
    return tuple([read.name_of(read.count(1)) for _ in range(count)])
