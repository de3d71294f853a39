"""The messages of a ``torch.export`` program, and their reader.

A message is a class whose annotations say what its JSON has; the reader checks it.  A field with a
default may be missing.  Fields that are not here are refused unless they are empty, so that what a
newer version of torch adds is never passed over.

Source: the public schema of exported programs, version 8.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

from ...errors import FormatError
from ...messages import describe, readable

__all__ = [
    "Argument",
    "ExportedProgram",
    "Graph",
    "GraphArgument",
    "Name",
    "NamedArgument",
    "Node",
    "PayloadConfig",
    "PayloadMeta",
    "Signature",
    "SymExpr",
    "TensorMeta",
    "read",
]

_MOST_DEPTH: Final = 200
"""Messages within messages."""


class Choice(NamedTuple):
    """A message that is one of several kinds.

    Attributes:
        kind: name of the one that it is.
        value: its content.
    """

    kind: str
    value: Any


class Argument(Choice):
    """An argument of a node, or a value of a graph."""

    __slots__ = ()


class Sized(Choice):
    """A number that may be an expression of symbolic dimensions."""

    __slots__ = ()


class InputSpec(Choice):
    """What an input of the graph is."""

    __slots__ = ()


class OutputSpec(Choice):
    """What an output of the graph is."""

    __slots__ = ()


@dataclass(slots=True)
class Name:
    """The name of a value."""

    name: str


@dataclass(slots=True)
class SymExpr:
    """An expression of symbolic dimensions, as text."""

    expr_str: str
    hint: Any = None


@dataclass(slots=True)
class Device:
    """Where a tensor is."""

    type: str
    index: int | None = None


@dataclass(slots=True)
class TensorMeta:
    """What is known of a tensor.  `dtype` and `layout` are numbers of torch's."""

    dtype: int
    sizes: list[Sized]
    requires_grad: bool
    device: Device
    strides: list[Sized]
    storage_offset: Sized
    layout: int


@dataclass(slots=True)
class CustomObject:
    """An object of a class that only torch has."""

    name: str
    class_fqn: str


@dataclass(slots=True)
class Complex:
    """A complex number."""

    real: float
    imag: float


@dataclass(slots=True)
class NamedArgument:
    """An argument of a node with its name in the operator's schema."""

    name: str
    arg: Argument
    kind: int | None = None


@dataclass(slots=True)
class Node:
    """A call of an operator."""

    target: str
    inputs: list[NamedArgument]
    outputs: list[Argument]
    metadata: dict[str, str]
    is_hop_single_tensor_return: bool | None = None
    name: str | None = None

    def operands(self) -> list[str]:
        """The names of the tensors that it takes."""
        found: list[str] = []

        def add(argument: Argument) -> None:
            kind, value = argument
            if kind == "as_tensor":
                found.append(value.name)
            elif kind == "as_tensors":
                found.extend(each.name for each in value)
            elif kind == "as_optional_tensor":
                add(value)
            elif kind == "as_optional_tensors":
                for each in value:
                    add(each)

        for each in self.inputs:
            add(each.arg)
        return found

    def tensors(self) -> list[str]:
        """The names of the tensors that it makes."""
        found: list[str] = []
        for kind, value in self.outputs:
            if kind == "as_tensor":
                found.append(value.name)
            elif kind == "as_tensors":
                found += [each.name for each in value]
        return found


@dataclass(slots=True)
class Graph:
    """Nodes in order, and what is known of their values."""

    inputs: list[Argument]
    outputs: list[Argument]
    nodes: list[Node]
    tensor_values: dict[str, TensorMeta]
    sym_int_values: dict[str, Sized]
    sym_bool_values: dict[str, Sized]
    is_single_tensor_return: bool = False
    custom_obj_values: dict[str, CustomObject] = field(default_factory=dict)
    sym_float_values: dict[str, Sized] = field(default_factory=dict)


@dataclass(slots=True)
class GraphArgument:
    """A graph within a graph."""

    name: str
    graph: Graph


@dataclass(slots=True)
class UserInput:
    arg: Argument


@dataclass(slots=True)
class ConstantInput:
    name: str
    value: Argument


@dataclass(slots=True)
class ParameterInput:
    arg: Name
    parameter_name: str


@dataclass(slots=True)
class BufferInput:
    arg: Name
    buffer_name: str
    persistent: bool = True


@dataclass(slots=True)
class ConstantTensorInput:
    arg: Name
    tensor_constant_name: str


@dataclass(slots=True)
class CustomObjectInput:
    arg: CustomObject
    custom_obj_name: str


@dataclass(slots=True)
class Token:
    arg: Name


@dataclass(slots=True)
class UserOutput:
    arg: Argument


@dataclass(slots=True)
class LossOutput:
    arg: Name


@dataclass(slots=True)
class BufferMutation:
    arg: Name
    buffer_name: str


@dataclass(slots=True)
class ParameterMutation:
    arg: Name
    parameter_name: str


@dataclass(slots=True)
class UserInputMutation:
    arg: Name
    user_input_name: str


@dataclass(slots=True)
class GradientOfParameter:
    arg: Name
    parameter_name: str


@dataclass(slots=True)
class GradientOfUserInput:
    arg: Name
    user_input_name: str


@dataclass(slots=True)
class Signature:
    """What the inputs and outputs of the graph are."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]


@dataclass(slots=True)
class Range:
    """The values that a symbolic dimension may have; None for no bound."""

    min_val: int | None
    max_val: int | None


@dataclass(slots=True)
class CallSignature:
    """How a module is called.  The trees are JSON as text."""

    inputs: list[Argument]
    outputs: list[Argument]
    in_spec: str
    out_spec: str
    forward_arg_names: list[str] | None = None


@dataclass(slots=True)
class CallEntry:
    """A module of the model; that with the empty name is the model itself."""

    fqn: str
    signature: CallSignature | None = None


@dataclass(slots=True)
class NamedTuple_:
    """The fields of a class of named tuples."""

    field_names: list[str]


@dataclass(slots=True)
class GraphModule:
    """The graph with its interface."""

    graph: Graph
    signature: Signature
    module_call_graph: list[CallEntry]
    metadata: dict[str, str] = field(default_factory=dict)
    treespec_namedtuple_fields: dict[str, NamedTuple_] = field(default_factory=dict)


@dataclass(slots=True)
class Version:
    major: int
    minor: int


@dataclass(slots=True)
class ExportedProgram:
    """A program."""

    NEWER: ClassVar[str] = "schema_version"

    graph_module: GraphModule
    opset_version: dict[str, int]
    range_constraints: dict[str, Range]
    schema_version: Version
    verifiers: list[str] = field(default_factory=list)
    torch_version: str = "<=2.4"
    guards_code: list[str] = field(default_factory=list)


@dataclass(slots=True)
class PayloadMeta:
    """A tensor that is a file of the archive, or a part of one."""

    path_name: str
    is_param: bool
    use_pickle: bool
    tensor_meta: TensorMeta | None


@dataclass(slots=True)
class PayloadConfig:
    """The tensors by name."""

    config: dict[str, PayloadMeta]


_KINDS: Final[dict[type, dict[str, Any]]] = {
    Sized: {
        "as_int": int, "as_float": float, "as_bool": bool, "as_expr": SymExpr, "as_name": str,
    },
    Argument: {
        "as_none": bool, "as_tensor": Name, "as_tensors": list[Name], "as_int": int,
        "as_ints": list[int], "as_float": float, "as_floats": list[float], "as_string": str,
        "as_strings": list[str], "as_sym_int": Sized, "as_sym_ints": list[Sized],
        "as_scalar_type": int, "as_memory_format": int, "as_layout": int, "as_device": Device,
        "as_bool": bool, "as_bools": list[bool], "as_sym_bool": Sized, "as_sym_bools": list[Sized],
        "as_graph": GraphArgument, "as_optional_tensors": list[Argument],
        "as_custom_obj": CustomObject, "as_operator": str, "as_sym_float": Sized,
        "as_sym_floats": list[Sized], "as_optional_tensor": Argument, "as_complex": Complex,
        "as_nested_tensors": list[list[Name]], "as_int_lists": list[list[int]],
        "as_string_to_argument": dict[str, Argument], "as_float_lists": list[list[float]],
    },
    InputSpec: {
        "user_input": UserInput, "parameter": ParameterInput, "buffer": BufferInput,
        "tensor_constant": ConstantTensorInput, "custom_obj": CustomObjectInput, "token": Token,
        "constant_input": ConstantInput,
    },
    OutputSpec: {
        "user_output": UserOutput, "loss_output": LossOutput, "buffer_mutation": BufferMutation,
        "gradient_to_parameter": GradientOfParameter,
        "gradient_to_user_input": GradientOfUserInput,
        "user_input_mutation": UserInputMutation, "token": Token,
        "parameter_mutation": ParameterMutation,
    },
}  # fmt: skip
"""The kinds that a message may be, and the type of each one's content."""


class _Malformed(Exception):
    """What is wrong; each message around it puts its own place in front."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.path = ""

    def within(self, place: str) -> _Malformed:
        self.path = place + self.path
        return self


def read(cls: type[Any], data: Any, subject: str) -> Any:
    """A message from its JSON.

    Args:
        cls: its class.
        data: what `json.loads` returned.
        subject: begins messages of errors.

    Raises:
        FormatError: something is missing, unknown, or has another type; the message has its place.
    """
    try:
        return _reader(cls)(data, 0)
    except _Malformed as error:
        place = f" at {error.path.removeprefix('.')}" if error.path else ""
        raise FormatError(f"{subject}: {error.text}{place}") from None


_Reader = Callable[[Any, int], Any]
_READERS: Final[dict[Any, _Reader]] = {}


def _reader(kind: Any) -> _Reader:
    """The function that reads a type.  Classes may mention themselves: so a reader is looked up
    when it first reads something."""
    found = _READERS.get(kind)
    if found is None:
        found = _READERS[kind] = _made(kind)
    return found


def _made(kind: Any) -> _Reader:
    origin = get_origin(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind is Any:
        return lambda data, depth: data
    if kind in _KINDS:
        return _choice_reader(kind, _KINDS[kind])
    if origin is list:
        return _list_reader(get_args(kind)[0])
    if origin is dict:
        return _dict_reader(get_args(kind)[1])
    if origin in (Union, types.UnionType):
        inner = next(each for each in get_args(kind) if each is not type(None))
        return lambda data, depth: None if data is None else _reader(inner)(data, depth)
    return _class_reader(kind)


def _read_int(data: Any, depth: int) -> int:
    if type(data) is not int:
        raise _Malformed(f"expected an integer, got {describe(data)}")
    if not -(1 << 63) <= data < 1 << 63:
        raise _Malformed("expected an integer of 64 bits, got a larger one")
    return data


_NOT_FINITE: Final = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}


def _read_float(data: Any, depth: int) -> float:
    if type(data) is float or type(data) is int:
        try:
            return float(data)
        except OverflowError:
            raise _Malformed("expected a number of 64 bits, got a larger one") from None
    if type(data) is str and data in _NOT_FINITE:
        return _NOT_FINITE[data]
    raise _Malformed(f"expected a number, got {describe(data)}")


def _read_bool(data: Any, depth: int) -> bool:
    if type(data) is not bool:
        raise _Malformed(f"expected true or false, got {describe(data)}")
    return data


def _read_str(data: Any, depth: int) -> str:
    if type(data) is not str:
        raise _Malformed(f"expected a text, got {describe(data)}")
    return data


_PLAIN: Final[dict[Any, _Reader]] = {
    int: _read_int,
    float: _read_float,
    bool: _read_bool,
    str: _read_str,
}


def _list_reader(inner: Any) -> _Reader:
    def read_list(data: Any, depth: int) -> list[Any]:
        if type(data) is not list:
            raise _Malformed(f"expected a list, got {describe(data)}")
        one = _reader(inner)
        found = []
        for i, each in enumerate(data):
            try:
                found.append(one(each, depth + 1))
            except _Malformed as error:
                raise error.within(f"[{i}]") from None
        return found

    return read_list


def _dict_reader(inner: Any) -> _Reader:
    def read_dict(data: Any, depth: int) -> dict[str, Any]:
        if type(data) is not dict:
            raise _Malformed(f"expected an object, got {describe(data)}")
        one = _reader(inner)
        found = {}
        for name, each in data.items():
            try:
                found[name] = one(each, depth + 1)
            except _Malformed as error:
                raise error.within(f"[{readable(name)!r}]") from None
        return found

    return read_dict


def _choice_reader(cls: Any, kinds: dict[str, Any]) -> _Reader:
    def read_choice(data: Any, depth: int) -> Any:
        if type(data) is not dict or len(data) != 1:
            raise _Malformed(f"expected an object with one field, got {describe(data)}")
        if depth > _MOST_DEPTH:
            raise _Malformed(f"graphs are nested deeper than {_MOST_DEPTH} messages")
        ((kind, value),) = data.items()
        if kind not in kinds:
            raise _Malformed(f"unknown kind {readable(kind)!r} of {cls.__name__}")
        try:
            return cls(kind, _reader(kinds[kind])(value, depth + 1))
        except _Malformed as error:
            raise error.within(f".{kind}") from None

    return read_choice


def _class_reader(cls: Any) -> _Reader:
    hints = get_type_hints(cls)
    readers = {each.name: hints[each.name] for each in fields(cls)}
    needed = [
        each.name
        for each in fields(cls)
        if each.default is MISSING and each.default_factory is MISSING
    ]

    def read_class(data: Any, depth: int) -> Any:
        if type(data) is not dict:
            raise _Malformed(f"expected an object, got {describe(data)}")
        found = {}
        for name, value in data.items():
            kind = readers.get(name)
            if kind is None:
                if value in (None, False, "", 0) or value == [] or value == {}:
                    continue
                raise _Malformed(f"unknown field {readable(name)!r} of {cls.__name__}")
            try:
                found[name] = _reader(kind)(value, depth + 1)
            except _Malformed as error:
                raise error.within(f".{name}") from None
        for name in needed:
            if name not in found:
                raise _Malformed(f"expected a field {name!r} of {cls.__name__}")
        return cls(**found)

    return read_class
