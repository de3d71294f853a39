"""Exported programs beside torch itself, which these tests need: ``nox -s torch``."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.frontend.torch import registry

torch = pytest.importorskip("torch")

from .torch_suite.aliases import NO_MEMORY, REPEATING, VIEWS, Aliases, declared, example  # noqa: E402
from .torch_suite.control import PROGRAMS  # noqa: E402 - they need torch
from .torch_suite.export import export  # noqa: E402
from .torch_suite.halves import HALVES, bits_of, halved  # noqa: E402
from .torch_suite.mixtures import Mixture  # noqa: E402
from .torch_suite.models import MODELS  # noqa: E402
from .torch_suite.score import problem_of  # noqa: E402

WITHIN = 2e-4
MIXTURES = 60
NOT_AS_TORCH = {"vgg-dynamic.onnx"}
"""Files that onnxruntime gives other results for, too: errors of torch's exporter."""
NOT_EXPORTED = {
    "mixtral-static.onnx": "transformers.grouped_mm_fallback",
    "mixtral-dynamic.onnx": "transformers.grouped_mm_fallback",
    "tcn-static.onnx": "aten.adaptive_max_pool2d",
}
"""Files that torch's exporter for ONNX does not write -> the operator that it has no function for;
their programs are compared as .pt2."""


def leaves(value: Any) -> list[Any]:
    """The tensors of a structure, as arrays."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [leaf for each in value for leaf in leaves(each)]
    return [value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)]


def arrays(args: tuple[Any, ...]) -> list[Any]:
    return [np.array(each) for each in args]


def assert_equal(got: Any, expected: Any) -> None:
    """Compare results with torch's: floats within 2e-4 of the largest magnitude."""
    got, expected = leaves(got), leaves(expected)
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.dtype == bool:
            assert (a != b).mean() < 0.02  # numbers next to the bound of a comparison
            continue
        scale = np.abs(b[np.isfinite(b)]).max(initial=1) if b.dtype.kind == "f" else 1
        within = WITHIN * scale if b.dtype.kind == "f" else 0
        np.testing.assert_allclose(a, b, rtol=0, atol=within, equal_nan=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_control_flow_in_control_flow(name: str, tmp_path: Path) -> None:
    found = PROGRAMS[name]()
    program = torch.export.export(
        found.module.eval(), copy.deepcopy(found.calls[0]), dynamic_shapes=found.shapes,
        strict=False,
    )  # fmt: skip
    path = str(tmp_path / "program.pt2")
    torch.export.save(program, path)
    vm = relaxvm.VirtualMachine(relaxvm.compile(path, cache=False))
    reference = program.module()
    for args in found.calls:
        with torch.no_grad():
            expected = reference(*copy.deepcopy(args))
        assert_equal(vm.main(*arrays(args)), expected)


def test_each_view_has_a_call() -> None:
    registry.load()
    supported = {name for name in declared() if registry.full_name(name) in registry.OPERATORS}
    assert len(supported) > 60
    assert supported - VIEWS.keys() - NO_MEMORY == set()


@pytest.mark.parametrize("is_whole", [False, True], ids=["element", "whole"])
@pytest.mark.parametrize("name", VIEWS)
def test_what_is_written_through_a_view_is_not_lost(
    name: str, is_whole: bool, tmp_path: Path
) -> None:
    module, x = Aliases(VIEWS[name], is_whole), example(VIEWS[name].kind)
    if is_whole and name in REPEATING:  # torch writes to no tensor that has an element twice
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            module(x)
        return
    expected = module(x)
    path = str(tmp_path / "program.pt2")
    torch.export.save(torch.export.export(module, (x,)), path)
    vm = relaxvm.VirtualMachine(relaxvm.compile(path, cache=False))
    assert_equal(vm.main(*arrays((x,))), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("name", HALVES)
def test_numbers_of_16_bits_are_computed_as_well_as_torch_does(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    """No result is further from the exact one than twice torch's furthest, or than two roundings
    take it: torch adds a bias to a product before it rounds, relaxvm afterwards."""
    torch.manual_seed(0)
    module, inputs = halved(name, dtype)
    with torch.no_grad():
        expected = module(*inputs)
        path = str(tmp_path / "program.pt2")
        torch.export.save(torch.export.export(module, inputs), path)
        vm = relaxvm.VirtualMachine(relaxvm.compile(path, cache=False))
        found = np.asarray(vm.main(*map(bits_of, inputs)))
        got = torch.from_numpy(found.view(np.int16)).view(dtype)
        exact = module.double()(*[each.double() for each in inputs])
    assert got.shape == expected.shape
    scale = exact.abs().max().item()
    ours, theirs = [(each.double() - exact).abs().max().item() / scale for each in (got, expected)]
    assert ours <= max(2 * theirs, torch.finfo(dtype).eps)


@pytest.mark.parametrize("seed", range(MIXTURES))
def test_drawn_modules(seed: int, tmp_path: Path) -> None:
    """Every other one is exported with a length that varies."""
    torch.manual_seed(seed)
    module = Mixture(seed).eval()
    axes = ({0: torch.export.Dim.AUTO},) * 2 if seed % 2 == 0 else None
    example = (torch.randn(2, 4, 6), torch.randn(2, 4, 6))
    program = torch.export.export(module, example, dynamic_shapes=axes)
    path = tmp_path / "program.pt2"
    torch.export.save(program, str(path))
    vm = relaxvm.VirtualMachine(relaxvm.compile(str(path), cache=False))
    reference = program.module()
    for rows in (2, 5):
        args = (torch.randn(rows, 4, 6), torch.randn(rows, 4, 6))
        try:
            with torch.no_grad():
                expected = reference(*(each.clone() for each in args))
        except (AssertionError, RuntimeError):
            assert rows == 5  # the module holds for two rows alone
            continue
        assert_equal(vm.main(*arrays(args)), expected)


@pytest.mark.parametrize("name", MODELS)
def test_architectures(name: str, tmp_path: Path) -> None:
    """As .pt2 and as ONNX, with fixed lengths and with those that vary."""
    pytest.importorskip("torchvision")
    pytest.importorskip("transformers")
    pytest.importorskip("onnxscript")
    refused = [text for text in export(tmp_path, name, ["--onnx"])
               if text.partition(":")[0] not in NOT_EXPORTED]  # fmt: skip
    assert refused == []
    files = sorted([*tmp_path.glob("*.pt2"), *tmp_path.glob("*.onnx")])
    assert len(files) + sum(key.startswith(f"{name}-") for key in NOT_EXPORTED) >= 2
    problems = {each.name: problem_of(each) for each in files if each.name not in NOT_AS_TORCH}
    assert {name: problem for name, problem in problems.items() if problem} == {}
