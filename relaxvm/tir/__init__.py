"""PrimFuncs: loops over buffers, and their lowering to C and to Python.

Nodes are defined in `buffer`, `stmt` and `function`, scalar functions in `intrinsics`.  `normalize`
converts a function to the normal form from which `lower_c` and `lower_python` generate code;
`build` turns that into callables.

The names are those of ``tvm.tirx``; scalar nodes are those of `relaxvm.ir`.
"""

from ..ir.expr import Call as Call
from ..ir.expr import Expr as Expr
from ..ir.expr import FloatImm as FloatImm
from ..ir.expr import GlobalVar as GlobalVar
from ..ir.expr import IntImm as IntImm
from ..ir.expr import PrimType as PrimType
from ..ir.expr import StringImm as StringImm
from ..ir.expr import Type as Type
from ..ir.expr import Var as Var
from ..ir.expr import is_scalar as is_scalar
from ..ir.index_map import IndexMap as IndexMap
from ..ir.prim import *  # noqa: F403
from .buffer import *  # noqa: F403
from .function import *  # noqa: F403
from .intrinsics import *  # noqa: F403
from .stmt import *  # noqa: F403
from .visitor import *  # noqa: F403
