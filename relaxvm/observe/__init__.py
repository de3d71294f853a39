"""Tools that observe a running virtual machine, built on the hook of the core."""

from __future__ import annotations

from .profiler import Profile, profile

__all__ = ["Profile", "profile"]
