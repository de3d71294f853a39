"""Tools that observe a virtual machine: on the hook of the core, and on runs that are stepped."""

from __future__ import annotations

from .debugger import Debugger, debug
from .profiler import Profile, profile

__all__ = ["Debugger", "Profile", "debug", "profile"]
