"""Relay programs: the text form of TVM's older program representation, versions 0.0.4 and 0.0.5.

`from_text` reads a text and returns a module that `relaxvm.build` compiles.  docs/relay.md has the
grammar, and says what differs from Relay's own parser.
"""

from __future__ import annotations

from ...relay_isa.stored import load_executable
from .params import read_params, save_params
from .printer import to_text
from .program import SUFFIXES, from_text

__all__ = ["SUFFIXES", "from_text", "load_executable", "read_params", "save_params", "to_text"]
