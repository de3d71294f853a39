"""The intermediate representation of a program: expressions, types, functions and modules.

Nodes are defined in `expr`, scalars in `prim`, operators in `op`, modules in `module`.  `visitor`
walks and rewrites programs, `arith` simplifies scalars, `infer` infers types, `equality` compares
nodes, `json` stores them, `block_builder` builds programs.
"""

# ruff: noqa: F403
from .adt import *
from .arith import *
from .block_builder import *
from .coverage import *
from .derive import *
from .equality import *
from .expr import *
from .expr_functor import *
from .infer import *
from .instantiate import *
from .json import *
from .keys import *
from .module import *
from .node import *
from .op import *
from .parts import MOST_EXPR_PARTS as MOST_EXPR_PARTS
from .parts import MOST_PROGRAM_PARTS as MOST_PROGRAM_PARTS
from .prim import *
from .substitution import *
from .visitor import *
