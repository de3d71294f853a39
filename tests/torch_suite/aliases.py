"""Operators of ATen whose results share memory with an argument, each with a call of it.

`declared` are those that torch's schemas mark so; `VIEWS` has the calls, by name and overload.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["NO_MEMORY", "REPEATING", "VIEWS", "Aliases", "declared", "example"]

aten: Final = torch.ops.aten
Function = Callable[[Tensor], Any]


class Call(NamedTuple):
    """A call of an operator.

    Attributes:
        function: what it does to a tensor.
        kind: of the tensor that it gets; see `example`.
    """

    function: Function
    kind: str = "matrix"


VIEWS: Final[dict[str, Call]] = {
    "_conj": Call(aten._conj, "complex"),
    "_reshape_alias": Call(lambda x: aten._reshape_alias(x, [4, 3], [3, 1])),
    "adjoint": Call(aten.adjoint),
    "alias": Call(aten.alias),
    "as_strided": Call(lambda x: x.as_strided([2, 2], [4, 2], 1)),
    "atleast_1d": Call(torch.atleast_1d, "number"),
    "atleast_1d.Sequence": Call(lambda x: torch.atleast_1d([x, x.sum()]), "number"),
    "atleast_2d": Call(torch.atleast_2d, "vector"),
    "atleast_2d.Sequence": Call(lambda x: torch.atleast_2d([x, x.sum()]), "vector"),
    "atleast_3d": Call(torch.atleast_3d),
    "atleast_3d.Sequence": Call(lambda x: torch.atleast_3d([x, x.sum()])),
    "broadcast_tensors": Call(lambda x: torch.broadcast_tensors(x[:, None], x.sum(0))),
    "broadcast_to": Call(lambda x: x.broadcast_to(2, 3, 4)),
    "chunk": Call(lambda x: x.chunk(2, 1)),
    "conj": Call(aten.conj, "complex"),
    "contiguous": Call(lambda x: x.contiguous()),
    "detach": Call(lambda x: x.detach()),
    "diagonal": Call(lambda x: x.diagonal(1)),
    "dsplit.array": Call(lambda x: x[None].dsplit([1, 3])),
    "dsplit.int": Call(lambda x: x[None].dsplit(2)),
    "expand": Call(lambda x: x[:, None].expand(3, 2, 4)),
    "expand_as": Call(lambda x: x[0].expand_as(x)),
    "flatten.using_ints": Call(lambda x: x.flatten()),
    "hsplit.array": Call(lambda x: x.hsplit([1, 3])),
    "hsplit.int": Call(lambda x: x.hsplit(2)),
    "imag": Call(lambda x: x.imag, "complex"),
    "linalg_diagonal": Call(lambda x: torch.linalg.diagonal(x, offset=-1)),
    "mH": Call(lambda x: x.mH),
    "mT": Call(lambda x: x.mT),
    "matrix_H": Call(lambda x: x.H),
    "meshgrid": Call(lambda x: aten.meshgrid([x, x[:2] * 2]), "vector"),
    "meshgrid.indexing": Call(lambda x: torch.meshgrid(x, x[:2] * 2, indexing="xy"), "vector"),
    "moveaxis.int": Call(lambda x: x.moveaxis(0, 1)),
    "moveaxis.intlist": Call(lambda x: x.moveaxis([0, 1], [1, 0])),
    "movedim.int": Call(lambda x: x.movedim(0, 1)),
    "movedim.intlist": Call(lambda x: x.movedim([0, 1], [1, 0])),
    "narrow": Call(lambda x: x.narrow(1, 1, 2)),
    "numpy_T": Call(lambda x: x.T),
    "permute": Call(lambda x: x.permute(1, 0)),
    "positive": Call(lambda x: x.positive()),
    "ravel": Call(lambda x: x.ravel()),
    "real": Call(lambda x: x.real, "complex"),
    "reshape": Call(lambda x: x.reshape(2, 6)),
    "reshape_as": Call(lambda x: x.reshape_as(torch.zeros(4, 3))),
    "resolve_conj": Call(lambda x: x.resolve_conj()),
    "resolve_neg": Call(lambda x: x.resolve_neg()),
    "select.int": Call(lambda x: x.select(1, -1)),
    "slice.Tensor": Call(lambda x: x[:, 1:4:2]),
    "split.Tensor": Call(lambda x: x.split(3, 1)),
    "split.sizes": Call(lambda x: x.split([1, 3], 1)),
    "split_with_sizes": Call(lambda x: x.split_with_sizes([1, 3], 1)),
    "squeeze": Call(lambda x: x[:, :1].squeeze()),
    "squeeze.dim": Call(lambda x: x[:, :1].squeeze(1)),
    "squeeze.dims": Call(lambda x: x[:1, :1].squeeze((0, 1))),
    "swapaxes": Call(lambda x: x.swapaxes(0, 1)),
    "swapdims": Call(lambda x: x.swapdims(0, 1)),
    "t": Call(lambda x: x.t()),
    "tensor_split.indices": Call(lambda x: x.tensor_split([1, 3], 1)),
    "tensor_split.sections": Call(lambda x: x.tensor_split(3, 1)),
    "tensor_split.tensor_indices_or_sections": Call(
        lambda x: x.tensor_split(torch.tensor([1, 3]), 1)
    ),
    "to.dtype": Call(lambda x: x.to(torch.float32)),
    "to.dtype_layout": Call(lambda x: aten.to.dtype_layout(x, dtype=torch.float32)),
    "to.device": Call(lambda x: x.to("cpu", torch.float32)),
    "to.other": Call(lambda x: x.to(torch.zeros(1))),
    "transpose.int": Call(lambda x: x.transpose(0, 1)),
    "unbind.int": Call(lambda x: x.unbind(1)),
    "unflatten.int": Call(lambda x: x.unflatten(1, (2, 2))),
    "unfold": Call(lambda x: x.unfold(1, 2, 2)),
    "unsqueeze": Call(lambda x: x.unsqueeze(1)),
    "view": Call(lambda x: x.view(6, 2)),
    "view.dtype": Call(lambda x: x.view(torch.int32)),
    "view_as": Call(lambda x: x.view_as(torch.zeros(2, 6))),
    "view_as_complex": Call(lambda x: torch.view_as_real(torch.view_as_complex(x[:, :2]))),
    "view_as_real": Call(torch.view_as_real, "complex"),
    "vsplit.array": Call(lambda x: x.vsplit([1, 2])),
    "vsplit.int": Call(lambda x: x.vsplit(3)),
    # views of complex numbers, by a real view of them
    "complex transposed": Call(lambda x: torch.view_as_real(x.t()), "complex"),
    "complex select": Call(lambda x: x[1].imag, "complex"),
    "complex slice": Call(lambda x: torch.view_as_real(x[:, 1:3]), "complex"),
    "complex split": Call(lambda x: torch.view_as_real(x.split(3, 1)[1]), "complex"),
    "complex reshape": Call(lambda x: x.reshape(-1).real, "complex"),
}

REPEATING: Final = {
    "broadcast_tensors", "broadcast_to", "expand", "expand_as", "meshgrid", "meshgrid.indexing",
}  # fmt: skip
"""Calls whose results have an element in several places."""

NO_MEMORY: Final = {"to.prim_Device", "lift_fresh", "lift"}
"""Operators that are marked, but do not occur in graphs, or for constants alone."""


def declared() -> list[str]:
    """The operators of ATen that torch's schemas mark as views, by name and overload."""
    found = []
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        marks = [each.alias_info for each in schema.returns]
        if space != "aten" or not any(each is not None and not each.is_write for each in marks):
            continue
        found.append(f"{name}.{schema.overload_name}" if schema.overload_name else name)
    return sorted(set(found))


def example(kind: str) -> Tensor:
    """A tensor of a kind: "number", "vector", "matrix", or "complex" for the parts of a matrix of
    complex numbers."""
    shape = {"number": (), "vector": (4,), "matrix": (3, 4), "complex": (3, 4, 2)}[kind]
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


class Aliases(nn.Module):
    """Writes an element of each result, and then to the tensor; returns both."""

    def __init__(self, call: Call, is_whole: bool) -> None:
        super().__init__()
        self.call = call
        self.is_whole = is_whole

    def forward(self, x: Tensor) -> Any:
        x = x.clone()
        given = torch.view_as_complex(x) if self.call.kind == "complex" else x
        found = self.call.function(given)
        views = list(found) if isinstance(found, (list, tuple)) else [found]
        for i, view in enumerate(views):
            real = view.imag if view.is_complex() else view
            if self.is_whole:
                real.mul_(2)
            else:
                for _ in range(real.dim()):
                    real = real.select(0, -1)
                real.fill_(7 + i)
        x.add_(1)
        views = [torch.view_as_real(v.resolve_conj()) if v.is_complex() else v for v in views]
        return x, *[v + 0 for v in views]
