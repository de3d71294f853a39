"""``tvm.relax.frontend.torch``: programs of torch.export."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...frontend.torch import from_exported_program as _import
from ...ir import IRModule

__all__ = ["from_exported_program"]


def from_exported_program(
    exported_program: Any,
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: Mapping[str, Callable[..., Any]] | None = None,
    run_ep_decomposition: bool = True,
) -> IRModule:
    """Import a live program of torch.export, whose inputs and outputs are flat, as TVM's are.

    Raises:
        NotImplementedError: `custom_convert_map` is given: its functions work on TVM's importer.
    """
    if custom_convert_map:
        raise NotImplementedError(
            "from_exported_program: custom_convert_map takes functions on the nodes of torch.fx, "
            "which relaxvm does not keep; give functions on values as operators= of "
            "relaxvm.from_exported_program"
        )
    return _import(
        exported_program,
        keep_params_as_input=keep_params_as_input,
        unwrap_unit_return_tuple=unwrap_unit_return_tuple,
        no_bind_return_tuple=no_bind_return_tuple,
        run_ep_decomposition=run_ep_decomposition,
        flat=True,
    )
