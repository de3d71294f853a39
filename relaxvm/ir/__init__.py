"""The programs that relaxvm compiles: expressions, types, modules, and what is true of them.

Nodes are in `expr`, scalars in `prim`, the record of an operator in `op`, modules in `module`;
`visitor` walks and rewrites, `arith` simplifies scalars, `infer` gives types, `equality` compares,
`json` stores, `block_builder` builds.
"""

# ruff: noqa: F403
from .arith import *
from .block_builder import *
from .equality import *
from .expr import *
from .infer import *
from .json import *
from .keys import *
from .module import *
from .node import *
from .op import *
from .prim import *
from .substitution import *
from .visitor import *
