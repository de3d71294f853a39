"""Passes and pipelines by name, as a command line gives them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from .. import transform
from ..errors import did_you_mean
from .pass_infra import Pass
from .pipelines import _PIPELINES, get_pipeline

__all__ = ["find_passes", "pass_names"]


def pass_names() -> list[str]:
    """The names of the passes that need no arguments, and of the pipelines."""
    return [*(name for name in dir(transform) if _is_maker(name)), *_PIPELINES]


def find_passes(names: Iterable[str]) -> list[Pass]:
    """Make passes of their names.

    Args:
        names: of functions of `relaxvm.transform` that return a pass without arguments, and of
            pipelines.

    Raises:
        ValueError: there is no such pass, or it needs arguments.
    """
    found: list[Pass] = []
    for name in names:
        if name in _PIPELINES:
            found.append(get_pipeline(name))
        elif _is_maker(name):
            made = getattr(transform, name)()
            if not isinstance(made, Pass):
                raise ValueError(f"{name}: no pass, but {type(made).__name__}")
            found.append(made)
        elif hasattr(transform, name):
            raise ValueError(f"{name}: it needs arguments; use it from Python")
        else:
            hint = did_you_mean(name, pass_names())
            raise ValueError(f"{name}: there is no such pass or pipeline{hint}")
    return found


def _is_maker(name: str) -> bool:
    maker = getattr(transform, name, None)
    if not name[:1].isupper() or not callable(maker):
        return False
    if isinstance(maker, type) and not issubclass(maker, Pass):
        return False
    try:
        parameters = inspect.signature(maker).parameters.values()
    except (TypeError, ValueError):
        return False
    return all(parameter.default is not parameter.empty
               or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
               for parameter in parameters)  # fmt: skip
