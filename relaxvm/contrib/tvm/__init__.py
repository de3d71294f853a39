"""Support for Apache TVM: its exported libraries, its modules, and a drop-in virtual machine.

`from_tvm` and `VirtualMachine` run programs in the process in which TVM has compiled or loaded
them; see `relaxvm.contrib.tvm.drop_in`.  `legalize` makes TVM's loops of
operators.  Nothing else here needs TVM to be installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import module
    from .drop_in import VirtualMachine, VMModule, from_tvm
    from .ir_modules import module_of_tvm

__all__ = ["VMModule", "VirtualMachine", "from_tvm", "module", "module_of_tvm"]


def __getattr__(name: str) -> Any:
    # Imported on first use: `relaxvm.load` reads libraries of TVM without a virtual machine.
    if name == "module":
        return importlib.import_module(f"{__name__}.module")
    if name == "module_of_tvm":
        from .ir_modules import module_of_tvm

        return module_of_tvm
    if name in __all__:
        from . import drop_in

        return getattr(drop_in, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
