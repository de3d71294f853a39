"""Tensors of the protocol: what is written is read back, and what is malformed is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from relaxvm.serve.tensors import RequestError, Wanted, encode, parse, parse_response

DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
          "float16", "float32", "float64")  # fmt: skip


def request(**item: Any) -> bytes:
    return json.dumps({"inputs": [{"name": "x", **item}]}).encode()


@given(st.data())
def test_what_is_written_is_read_back(data: st.DataObject) -> None:
    arrays: list[tuple[Wanted, NDArray[Any]]] = []
    for i in range(data.draw(st.integers(0, 3))):
        dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
        shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
        finite = {"allow_nan": False, "allow_infinity": False} if dtype.kind == "f" else {}
        elements = hnp.from_dtype(dtype, **finite)
        array = data.draw(hnp.arrays(dtype, shape, elements=elements))
        if data.draw(st.booleans()):
            array = np.asfortranarray(array)
        arrays.append((Wanted(f"x{i}", data.draw(st.booleans())), array))
    parts, length = encode({}, arrays, "inputs")
    body = b"".join(parts)
    read = parse(body, length).inputs
    assert list(read) == [wanted.name for wanted, _ in arrays]
    for wanted, array in arrays:
        found = read[wanted.name]
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found, array)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5), st.booleans())
def test_strings(texts: list[str], binary: bool) -> None:
    array = np.empty(len(texts), object)
    array[:] = texts
    parts, length = encode({"id": "7"}, [(Wanted("s", binary), array)])
    assert parse_response(b"".join(parts), length)["s"].tolist() == texts


def test_bfloat16_and_unaligned_data() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    first = np.array([1, 2, 3], np.int8)
    second = np.array([1.5, -2], ml_dtypes.bfloat16)
    wanted = [(Wanted("a", True), first), (Wanted("b", True), second)]
    parts, length = encode({}, wanted)
    found = parse_response(b"".join(parts), length)
    assert found["b"].dtype == second.dtype
    assert found["b"].tolist() == [1.5, -2]


def test_json_that_clients_send() -> None:
    nested = parse(request(shape=[2, 2], datatype="FP32", data=[[1, 2.5], [3, 1e60]])).inputs["x"]
    assert nested.tolist() == [[1, 2.5], [3, float("inf")]]
    assert parse(request(shape=[0], datatype="INT64", data=[])).inputs["x"].shape == (0,)
    whole = parse(json.dumps({
        "id": "a", "inputs": [], "outputs": [{"name": "y", "parameters": {"classification": 3}},
                                             {"name": "z", "parameters": {"binary_data": False}}],
        "parameters": {"binary_data_output": True, "priority": 1},
    }).encode())  # fmt: skip
    assert whole.id == "a"
    assert whole.outputs == (Wanted("y", True, 3), Wanted("z", False))
    assert whole.parameters["priority"] == 1


def test_large_integers_are_exact() -> None:
    values = [2**63 + 1, 1, 2**64 - 1]
    found = parse(request(shape=[3], datatype="UINT64", data=values)).inputs["x"]
    assert found.tolist() == values


def test_the_largest_elements() -> None:
    array = np.array([[0.5, 2, 1], [-1, -3, -2]], np.float32)
    parts, _ = encode({}, [(Wanted("y", False, 2), array)])
    found = parse_response(parts[0])["y"]  # type: ignore[arg-type]
    assert found.tolist() == [["2.000000:1", "1.000000:2"], ["-1.000000:0", "-2.000000:2"]]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "expected a JSON object"),
        (b"{}", "the request: inputs: expected a list of objects"),
        (b'{"inputs": [1]}', "inputs: expected a list of objects"),
        (b'{"inputs": [{}]}', r"inputs\[0\]: name: expected a string"),
        (b'{"inputs": [], "id": 3}', "id: expected a string"),
        (b'{"inputs": [], "parameters": 3}', "the request: parameters: expected an object"),
        (b'{"inputs": [], "outputs": [{"name": 1}]}', r"outputs\[0\]: name"),
        (b'{"inputs": [], "parameters": {"binary_data_output": 1}}', "expected true or false"),
        (request(datatype="FP32", data=[]), "input x: shape"),
        (request(shape=[-1], datatype="FP32", data=[]), "input x: shape"),
        (request(shape=[True], datatype="FP32", data=[]), "input x: shape"),
        (request(shape=[1] * 65, datatype="FP32", data=[]), "input x: shape"),
        (request(shape=[1], datatype=3, data=[]), "input x: datatype: expected a string"),
        (request(shape=[1], datatype="FP8", data=[]), "unknown datatype FP8; expected one of BOOL"),
        (request(shape=[1], datatype="FP32"), "data: expected a list"),
        (request(shape=[2], datatype="FP32", data=[1]), "expected 2 elements .* got 1"),
        (request(shape=[1 << 61, 2], datatype="FP32", data=[1]), "got 1"),
        (request(shape=[0, 1 << 61], datatype="FP32", data=[]), r"input x: shape: .* too large"),
        (request(shape=[1, 2], datatype="FP32", data=[[1, 2], [3]]), "different lengths"),
        (request(shape=[1], datatype="FP32", data=["1"]), "expected numbers, got"),
        (request(shape=[1], datatype="INT8", data=[128]), "does not fit int8"),
        (request(shape=[1], datatype="UINT8", data=[-1]), "does not fit uint8"),
        (request(shape=[1], datatype="INT32", data=[1.5]), "expected integers"),
        (request(shape=[1], datatype="BOOL", data=[1]), "expected true and false"),
        (request(shape=[1], datatype="BYTES", data=[1]), "expected strings"),
        (request(shape=[1], datatype="FP64", data=[10**400]), "too large"),
        (request(shape=[1], datatype="FP32", parameters={"binary_data_size": 5}), "0 bytes are"),
        (request(shape=[1], datatype="FP32", parameters={"binary_data_size": "4"}), "a number >="),
        (request(shape=[1], datatype="FP32", data=[1], parameters={"binary_data_size": 0}), "both"),
        (request(shape=[1], datatype="FP32", parameters={"shared_memory_region": "r"}), "shared"),
    ],
)  # fmt: skip
def test_malformed_requests(body: bytes, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse(body)


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "message"),
    [
        ("FP32", [2], b"1234", "expected 8 bytes"),
        ("BOOL", [1], b"\2", "neither 0 nor 1"),
        ("BYTES", [1], b"\5\0\0\0abc", "are not 1 strings"),
        ("BYTES", [1 << 60], b"\0\0\0\0", "strings with their lengths"),
        ("BYTES", [1], b"\1\0\0\0\xff", "not UTF-8"),
        ("BYTES", [0], b"\0\0\0\0", "are not 0 strings"),
    ],
)
def test_malformed_binary_data(datatype: str, shape: list[int], data: bytes, message: str) -> None:
    head = request(shape=shape, datatype=datatype, parameters={"binary_data_size": len(data)})
    with pytest.raises(RequestError, match=message):
        parse(head + data, len(head))
    with pytest.raises(RequestError, match="bytes follow the binary data"):
        parse(request(shape=[0], datatype="FP32", data=[]) + b"more", len(
            request(shape=[0], datatype="FP32", data=[])))  # fmt: skip


def test_headers_that_lie() -> None:
    with pytest.raises(RequestError, match="expected at most the 2 bytes"):
        parse(b"{}", 3)
    with pytest.raises(RequestError, match="is there twice"):
        item = {"name": "x", "shape": [0], "datatype": "FP32", "data": []}
        parse(json.dumps({"inputs": [item, item]}).encode())


@given(st.binary(max_size=200), st.integers(-5, 300))
def test_any_bytes(body: bytes, length: int) -> None:
    with pytest.raises(RequestError):
        parse(body, length)


def test_infinite_values_are_only_sent_as_bytes() -> None:
    array = np.array([np.nan], np.float32)
    with pytest.raises(RequestError, match="ask for binary data"):
        encode({}, [(Wanted("y", False), array)])
    assert encode({}, [(Wanted("y", True), array)])[1]
    with pytest.raises(RequestError, match="complex64 has no datatype"):
        encode({}, [(Wanted("y", True), array.astype(np.complex64))])
