"""Tools that watch a virtual machine at work, built on the one hook of the core."""

from __future__ import annotations

from .profiler import Profile, profile

__all__ = ["Profile", "profile"]
