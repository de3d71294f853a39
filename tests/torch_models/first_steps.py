"""Small models: layers, buffers and views."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import _register_namedtuple

from . import Case, case


class Writing(nn.Module):
    """Writes into views of what it computed."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.constant = torch.arange(3.0)

    def forward(self, x: Tensor) -> Any:
        y = self.layer(x).relu_()
        x = x.clone()
        x[:, 0].add_(1)
        y[:, 1] = x[:, 0]
        return y + self.constant, x


@case
def writing() -> Case:
    rows = torch.export.Dim("rows", min=2, max=64)
    calls = [(torch.randn(5, 4),), (torch.randn(3, 4),)]
    return Case(Writing(), calls, dynamic_shapes={"x": {0: rows}})


# Inputs, outputs and state


class Counting(nn.Module):
    """Counts its calls, and changes its input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: Tensor, scale: int) -> Any:
        self.count.add_(1)
        x[:, 0] += self.count[0]
        return x * scale, self.count


@case
def counting() -> Case:
    return Case(Counting(), [(torch.ones(2, 2), 3)] * 3)


class Structured(nn.Module):
    """Takes and returns structures."""

    def forward(self, x: Tensor, given: Any, *rest: Tensor, flag: Any = None, **others: Any) -> Any:
        total = x + given["a"][0] + given["b"] + rest[0]
        return {"total": total, "pair": [total * 2, None, 3]}, (others["z"], flag, "text")


@case
def structured() -> Case:
    one, two = torch.ones(3), torch.full((3,), 2.0)
    args = (one, {"a": [two], "b": torch.arange(3.0)}, two)
    return Case(Structured(), [(args, {"flag": None, "z": one * 5})])


class Single(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return (x + 1,)


@case
def single_in_tuple() -> Case:
    return Case(Single(), [(torch.ones(2),)])


class Doubled(nn.Module):
    """Takes lengths that are expressions of one symbol."""

    def forward(self, x: Tensor, y: Tensor, n: int) -> Any:
        return x * 2, y + n, x.shape[0] * n, n + 1


@case
def derived_dimensions() -> Case:
    half = torch.export.Dim("half", min=3, max=50)
    calls = [(torch.randn(8), torch.randn(4), 7), (torch.randn(10), torch.randn(5), 2)]
    return Case(
        Doubled(), calls,
        dynamic_shapes={"x": {0: 2 * half}, "y": {0: half}, "n": torch.export.Dim.DYNAMIC},
    )  # fmt: skip


class Normalized(nn.Module):
    """Batch normalization that keeps running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


@case
def training() -> Case:
    calls = [(torch.randn(4, 3),), (torch.randn(4, 3),), (torch.randn(4, 3),)]
    return Case(Normalized(), calls, training=True)


# Classes of the user


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass
class Given:
    x: Any
    y: Any = None


@dataclass
class Found:
    total: Any
    extra: Any = None
    number: Any = 3


torch.export.register_dataclass(Given, serialized_type_name="model.Given")
torch.export.register_dataclass(Found, serialized_type_name="model.Found")
_register_namedtuple(Pair, serialized_type_name="model.Pair")


class Records(nn.Module):
    """Takes and returns objects of the user's classes."""

    def forward(self, x: Tensor, given: Given, pair: Pair, named: Any, *rest: Tensor) -> Any:
        total = x + given.x + named["w"]
        return Found(total), Pair(pair.a * 2, pair.b + rest[0]), OrderedDict(q=x, r=[rest[1], None])


@case
def records() -> Case:
    x = torch.arange(3.0)
    return Case(Records(), [(x, Given(x * 2), Pair(x, x), OrderedDict(w=x), x, x + 1)])


class Nested(nn.Module):
    """Lengths that are expressions of those within a structure."""

    def forward(self, x: Tensor, given: Any) -> Any:
        return x * 2, given["y"] + given["n"], x.shape[0] + given["n"]


@case
def nested_dimensions() -> Case:
    half = torch.export.Dim("half", min=3, max=50)
    calls = [((torch.randn(8), {"y": torch.randn(4), "n": 7}), {}),
             ((torch.randn(10), {"y": torch.randn(5), "n": 2}), {})]  # fmt: skip
    shapes = {"x": {0: 2 * half}, "given": {"y": {0: half}, "n": torch.export.Dim.DYNAMIC}}
    return Case(Nested(), calls, dynamic_shapes=shapes)
