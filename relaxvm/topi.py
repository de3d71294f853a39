"""Operators of tensor expressions: `relaxvm.te.topi` under TVM's name."""

from .te.topi import *  # noqa: F403
