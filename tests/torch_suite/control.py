"""Programs with control flow within control flow, which `torch.export` keeps as it is.

Each case is a `Program`: a module, its calls, and the axes that vary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, cond, nn
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

__all__ = ["PROGRAMS", "Program"]


class Program(NamedTuple):
    """A module to export.

    Attributes:
        module: in eval mode.
        calls: arguments; it is exported with the first.
        shapes: of ``torch.export.export``.
    """

    module: nn.Module
    calls: list[tuple[Any, ...]]
    shapes: Any = None


PROGRAMS: Final[dict[str, Callable[[], Program]]] = {}
VARIES: Final = {0: torch.export.Dim.DYNAMIC}


def program(function: Callable[[], Program]) -> Callable[[], Program]:
    """Decorator: list a program."""
    PROGRAMS[function.__name__] = function
    return function


class Called(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


class Branches(nn.Module):
    """A condition in both branches of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        def above(x: Tensor) -> Tensor:
            return cond(x.sum() > 3, lambda x: self.linear(x).relu(), lambda x: x - 1, (x,))

        def below(x: Tensor) -> Tensor:
            return cond(x.max() > 0, lambda x: x * 2, lambda x: self.linear(x) + x, (x,))

        return cond(x.mean() > 0, above, below, (x,))


def _branch_calls(*rows: int) -> list[tuple[Any, ...]]:
    a, b, c = rows
    return [(drawn(a, 3),), (torch.ones(b, 3),), (-torch.ones(c, 3),)]


@program
def condition_in_condition() -> Program:
    return Program(Branches(), _branch_calls(2, 2, 2))


@program
def condition_in_condition_of_any_length() -> Program:
    return Program(Branches(), _branch_calls(2, 6, 5), ({0: torch.export.Dim.DYNAMIC},))


def _steps(x: Tensor, n: Tensor) -> Any:
    def body(i: Tensor, x: Tensor) -> Any:
        return i + 1, cond(x.sum() > 10, lambda x: x - 3, lambda x: x * 1.5 + 1, (x,))

    return while_loop(lambda i, x: i < n, body, (torch.tensor(0), x))


@program
def condition_in_loop() -> Program:
    calls = [(drawn(2, 3), torch.tensor(5)), (drawn(2, 3), torch.tensor(0))]
    return Program(Called(_steps), calls)


class Steps(nn.Module):
    def forward(self, x: Tensor, n: Tensor) -> Any:
        return _steps(x, n)


@program
def condition_in_loop_of_any_length() -> Program:
    calls = [(drawn(2, 3), torch.tensor(5)), (drawn(7, 3), torch.tensor(2))]
    return Program(Steps(), calls, (VARIES, {}))


@program
def loop_in_loop() -> Program:
    def both(x: Tensor) -> Any:
        def outer(i: Tensor, x: Tensor) -> Any:
            _, y = while_loop(
                lambda j, y: (y.sum() < 20) & (j < 4),
                lambda j, y: (j + 1, y + 1.0),
                (i * 0, x),
            )
            return i + 1, y * 0.5

        return while_loop(lambda i, x: i < 3, outer, (torch.tensor(0), x))

    return Program(Called(both), [(drawn(2, 3),)])


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(drawn(3, 3))

    def forward(self, first: Tensor, xs: Tensor) -> Any:
        def step(carry: Tensor, x: Tensor) -> Any:
            new = torch.tanh(carry @ self.weight + x)
            return new, new * 2

        return scan(step, first, xs)


@program
def scan_with_a_parameter() -> Program:
    return Program(Recurrent(), [(drawn(2, 3), drawn(5, 2, 3))])


@program
def scan_of_any_length() -> Program:
    calls = [(drawn(2, 3), drawn(n, 2, 3)) for n in (5, 9, 1)]
    return Program(Recurrent(), calls, ({}, VARIES))


@program
def scan_backwards_of_dicts() -> Program:
    def run(first: Tensor, xs: Tensor) -> Any:
        def step(carry: Tensor, x: dict[str, Tensor]) -> Any:
            return carry + x["a"], {"out": carry * x["b"]}

        return scan(step, first, {"a": xs, "b": xs * 2}, reverse=True, dim=1)

    return Program(Called(run), [(drawn(2, 3), drawn(2, 5, 3))])


@program
def condition_in_scan() -> Program:
    def run(first: Tensor, xs: Tensor) -> Any:
        def step(carry: Tensor, x: Tensor) -> Any:
            new = cond(x.sum() > 0, lambda c, x: c + x, lambda c, x: c - x, (carry, x))
            return new.clone(), new * 2

        return scan(step, first, xs)

    return Program(Called(run), [(drawn(2, 3), drawn(5, 2, 3))])


class Mapped(nn.Module):
    def forward(self, xs: Tensor, y: Tensor) -> Any:
        return mapped(lambda x, y: (x + y, (x * y).sum()), xs, y)


@program
def map_of_any_length() -> Program:
    return Program(Mapped(), [(drawn(4, 3), drawn(3)), (drawn(7, 3), drawn(3))], (VARIES, {}))


@program
def condition_in_map() -> Program:
    def run(xs: Tensor, y: Tensor) -> Any:
        def each(x: Tensor, y: Tensor) -> Tensor:
            return cond(x.sum() > 0, lambda x, y: x + y, lambda x, y: x - y, (x, y))

        return mapped(each, xs, y)

    return Program(Called(run), [(drawn(4, 3), drawn(3))])


@program
def map_in_map() -> Program:
    def run(xs: Tensor) -> Any:
        return mapped(lambda x: mapped(lambda row: row.cumsum(0), x), xs)

    return Program(Called(run), [(drawn(4, 3, 2),)])


class Counting(nn.Module):
    """Buffers decide which branch is taken, and how often a loop turns."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x: Tensor) -> Any:
        y = cond(self.total.sum() > 2, lambda x, n: x - n, lambda x, n: x + n, (x, self.total))
        self.total.add_(x.mean(0))
        self.count += 1
        _, z = while_loop(
            lambda i, z: i < self.count, lambda i, z: (i + 1, z * 1.5), (torch.tensor(0), y)
        )
        return z, self.count * 2


@program
def state_decides() -> Program:
    return Program(Counting(), [(drawn(2, 3).abs() + 0.5,) for _ in range(4)])


class ByLength(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return cond(x.shape[0] > 4, lambda x: x.sin(), lambda x: x.cos(), (x,))


@program
def condition_on_a_length() -> Program:
    return Program(ByLength(), [(drawn(6, 3),), (drawn(2, 3),)], (VARIES,))


@program
def branches_of_several_results() -> Program:
    def run(x: Tensor, y: Tensor) -> Any:
        a, b, c = cond(
            x.sum() > y.sum(),
            lambda x, y: (x + 0, y + 0, x + y),
            lambda x, y: (y + 1, x * 1, x - y),
            (x, y),
        )
        return a, {"b": b, "c": c}

    calls = [(drawn(2, 3), drawn(2, 3) + k) for k in (-1, 0, 1)]
    return Program(Called(run), calls)


@program
def a_flag_ends_the_loop() -> Program:
    def run(x: Tensor) -> Any:
        return while_loop(
            lambda i, f, x: f.clone(),
            lambda i, f, x: (i + 1, (i < 3) & (x.sum() < 100), x + x),
            (torch.tensor(0), torch.tensor(True), x),
        )

    return Program(Called(run), [(torch.ones(2),)])


@program
def rows_written_by_a_loop() -> Program:
    def run(x: Tensor) -> Any:
        def body(i: Tensor, out: Tensor, x: Tensor) -> Any:
            at = i.reshape(1)
            return i + 1, torch.index_put(out, (at,), x[at] * i), x.clone()

        return while_loop(
            lambda i, out, x: i < x.shape[0], body, (torch.tensor(0), torch.zeros_like(x), x)
        )

    return Program(Called(run), [(drawn(4, 2),)])
