"""The programs that relaxvm compiles: expressions, types, modules, and what is true of them.

Nodes are in `expr`, scalars in `prim`, the operator record in `op`, modules in `module`; `visitor`
walks and rewrites, `arith` simplifies scalars, `infer` gives types, `equality` compares, `json`
stores, `block_builder` builds.
"""

from .expr import *  # noqa: F403
from .module import DummyGlobalInfo, GlobalInfo, IRModule, VDevice
from .node import Attrs, Node
from .op import Op, op_names
from .prim import *  # noqa: F403
from .visitor import ExprMutator, ExprVisitor, post_order_visit
