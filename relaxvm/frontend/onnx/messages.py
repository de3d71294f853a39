"""The messages of ONNX files.

Numbers and names of the fields are those of the format's definition; attributes of Python have
shorter names where that reads better.  Fields for training and for the placement on devices are
left out, and types of intermediate values, which are inferred: they are skipped.

Source: the ONNX specification, "Open Neural Network Exchange Intermediate Representation".
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from numpy.typing import NDArray

from .wire import BYTES, DOUBLES, FLOAT, FLOATS, INT, INTS, TEXT, UINTS, Message, many, one

__all__ = [
    "Attribute",
    "AttributeType",
    "DataType",
    "Dimension",
    "Function",
    "Graph",
    "Model",
    "Node",
    "OperatorSet",
    "Pair",
    "Shape",
    "SparseTensor",
    "Tensor",
    "TensorKind",
    "TypeOf",
    "Value",
]


class DataType(IntEnum):
    """Data types of elements."""

    UNDEFINED = 0
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20
    UINT4 = 21
    INT4 = 22
    FLOAT4E2M1 = 23
    FLOAT8E8M0 = 24
    UINT2 = 25
    INT2 = 26


class AttributeType(IntEnum):
    """Types of attributes."""

    UNDEFINED = 0
    FLOAT = 1
    INT = 2
    STRING = 3
    TENSOR = 4
    GRAPH = 5
    FLOATS = 6
    INTS = 7
    STRINGS = 8
    TENSORS = 9
    GRAPHS = 10
    SPARSE_TENSOR = 11
    SPARSE_TENSORS = 12
    TYPE_PROTO = 13
    TYPE_PROTOS = 14


class Pair(Message):
    """A key and its value."""

    key: str = one(1, TEXT)
    value: str = one(2, TEXT)


class Tensor(Message):
    """A constant tensor; its elements are in one of the fields, or in another file."""

    dims: NDArray[Any] = many(1, INTS)
    data_type: int = one(2, INT)
    float_data: NDArray[Any] = many(4, FLOATS)
    int32_data: NDArray[Any] = many(5, INTS)
    string_data: Sequence[memoryview] = many(6, BYTES)
    int64_data: NDArray[Any] = many(7, INTS)
    name: str = one(8, TEXT)
    raw_data: memoryview = one(9, BYTES)
    double_data: NDArray[Any] = many(10, DOUBLES)
    uint64_data: NDArray[Any] = many(11, UINTS)
    external_data: Sequence[Pair] = many(13, Pair)
    data_location: int = one(14, INT)


class SparseTensor(Message):
    """A constant tensor of which only the elements that are not zero are stored."""

    values: Tensor | None = one(1, Tensor)
    indices: Tensor | None = one(2, Tensor)
    dims: NDArray[Any] = many(3, INTS)


class Dimension(Message):
    """A dimension: a number, a name, or nothing."""

    value: int = one(1, INT)
    name: str = one(2, TEXT)


class Shape(Message):
    """The dimensions of a tensor."""

    dims: Sequence[Dimension] = many(1, Dimension)


class TensorKind(Message):
    """The type of a tensor."""

    elem_type: int = one(1, INT)
    shape: Shape | None = one(2, Shape)


class Sequenced(Message):
    """The type of a sequence or an optional value."""

    elem_type: TypeOf | None = one(1, lambda: TypeOf)


class Mapped(Message):
    """The type of a map."""

    key_type: int = one(1, INT)
    value_type: TypeOf | None = one(2, lambda: TypeOf)


class TypeOf(Message):
    """The type of a value: one of the fields."""

    tensor: TensorKind | None = one(1, TensorKind)
    sequence: Sequenced | None = one(4, Sequenced)
    map: Mapped | None = one(5, Mapped)
    sparse_tensor: TensorKind | None = one(8, TensorKind)
    optional: Sequenced | None = one(9, Sequenced)


class Value(Message):
    """The name and type of an input, output or intermediate value."""

    name: str = one(1, TEXT)
    type: TypeOf | None = one(2, TypeOf)
    doc_string: str = one(3, TEXT)


class OperatorSet(Message):
    """A version of a domain's operators."""

    domain: str = one(1, TEXT)
    version: int = one(2, INT)


class Attribute(Message):
    """An attribute of a node: the field that its type names."""

    name: str = one(1, TEXT)
    f: float = one(2, FLOAT)
    i: int = one(3, INT)
    s: memoryview = one(4, BYTES)
    t: Tensor | None = one(5, Tensor)
    g: Graph | None = one(6, lambda: Graph)
    floats: NDArray[Any] = many(7, FLOATS)
    ints: NDArray[Any] = many(8, INTS)
    strings: Sequence[memoryview] = many(9, BYTES)
    tensors: Sequence[Tensor] = many(10, Tensor)
    graphs: Sequence[Graph] = many(11, lambda: Graph)
    tp: TypeOf | None = one(14, TypeOf)
    type_protos: Sequence[TypeOf] = many(15, TypeOf)
    type: int = one(20, INT)
    ref_attr_name: str = one(21, TEXT)
    sparse_tensor: SparseTensor | None = one(22, SparseTensor)
    sparse_tensors: Sequence[SparseTensor] = many(23, SparseTensor)


class Node(Message):
    """A call of an operator or function."""

    input: Sequence[str] = many(1, TEXT)
    output: Sequence[str] = many(2, TEXT)
    name: str = one(3, TEXT)
    op_type: str = one(4, TEXT)
    attribute: Sequence[Attribute] = many(5, Attribute)
    doc_string: str = one(6, TEXT)
    domain: str = one(7, TEXT)
    overload: str = one(8, TEXT)
    metadata_props: Sequence[Pair] = many(9, Pair)


class Graph(Message):
    """Nodes in topological order, with inputs, constants and outputs."""

    node: Sequence[Node] = many(1, Node)
    name: str = one(2, TEXT)
    initializer: Sequence[Tensor] = many(5, Tensor)
    doc_string: str = one(10, TEXT)
    input: Sequence[Value] = many(11, Value)
    output: Sequence[Value] = many(12, Value)
    sparse_initializer: Sequence[SparseTensor] = many(15, SparseTensor)


class Function(Message):
    """An operator that is defined by nodes."""

    name: str = one(1, TEXT)
    input: Sequence[str] = many(4, TEXT)
    output: Sequence[str] = many(5, TEXT)
    attribute: Sequence[str] = many(6, TEXT)
    node: Sequence[Node] = many(7, Node)
    doc_string: str = one(8, TEXT)
    opset_import: Sequence[OperatorSet] = many(9, OperatorSet)
    domain: str = one(10, TEXT)
    attribute_proto: Sequence[Attribute] = many(11, Attribute)
    overload: str = one(13, TEXT)


class Model(Message):
    """A file."""

    ir_version: int = one(1, INT)
    producer_name: str = one(2, TEXT)
    producer_version: str = one(3, TEXT)
    domain: str = one(4, TEXT)
    model_version: int = one(5, INT)
    doc_string: str = one(6, TEXT)
    graph: Graph | None = one(7, Graph)
    opset_import: Sequence[OperatorSet] = many(8, OperatorSet)
    metadata_props: Sequence[Pair] = many(14, Pair)
    functions: Sequence[Function] = many(25, Function)
