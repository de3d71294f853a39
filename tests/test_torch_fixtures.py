"""Programs of torch.export have torch's results; torch itself is not needed."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.frontend.torch import from_exported_program

from .torch_fixtures import load, names


def assert_same(got: Any, expected: Any, place: str = "result") -> None:
    """Compare structures; floats within 2e-5 of the largest magnitude."""
    if isinstance(expected, np.ndarray):
        got = np.asarray(got)
        assert got.dtype == expected.dtype, f"{place}: {got.dtype}, expected {expected.dtype}"
        assert got.shape == expected.shape, f"{place}: {got.shape}, expected {expected.shape}"
        if expected.dtype.kind in "biu":
            np.testing.assert_array_equal(got, expected, err_msg=place)
            return
        a, b = got.astype(np.complex128), expected.astype(np.complex128)
        scale = np.abs(b[np.isfinite(b)]).max(initial=1e-3)
        width = {2: 1e-2, 4: 2e-5, 8: 1e-5 if expected.dtype.kind == "c" else 1e-10}
        within = width.get(expected.dtype.itemsize, 1e-5) * scale
        np.testing.assert_allclose(a, b, rtol=0, atol=within, equal_nan=True, err_msg=place)
    elif isinstance(expected, dict):
        keys = list(expected)
        if not isinstance(got, dict):
            got = {key: getattr(got, key) for key in keys}
        assert list(got) == keys, f"{place}: {list(got)}"
        for key in keys:
            assert_same(got[key], expected[key], f"{place}[{key!r}]")
    elif isinstance(expected, (tuple, list)):
        assert type(got) is type(expected), f"{place}: {type(got)}"
        assert len(got) == len(expected), f"{place}: {len(got)} items"
        for i, (one, other) in enumerate(zip(got, expected, strict=True)):
            assert_same(one, other, f"{place}[{i}]")
    else:
        assert type(got) is type(expected), f"{place}: {type(got)}"
        assert got == expected or got != got, place


@pytest.mark.parametrize("name", names())
def test_a_program_has_the_results_of_torch(name: str) -> None:
    fixture = load(name)
    vm = relaxvm.VirtualMachine(relaxvm.compile(from_exported_program(fixture.archive)))
    for i, call in enumerate(fixture.calls):
        args, kwargs = copy.deepcopy((call.args, call.kwargs))
        assert_same(vm["main"](*args, **kwargs), call.result, f"call {i}")
        if call.after is not None:
            assert_same(args, call.after, f"arguments after call {i}")
