"""What relaxvm tells the standard library's ``logging``.

Loggers are children of ``relaxvm``: ``relaxvm.cache`` (INFO), ``relaxvm.compiler`` (one record for
each C compiler that runs, INFO) and ``relaxvm.passes`` (one record for each pass, DEBUG).  Nothing
is shown unless the program has configured ``logging``, which is not even imported here: without it
nobody listens.
"""

from __future__ import annotations

import sys
from typing import Any, Final

__all__ = ["DEBUG", "INFO", "is_on", "log"]

DEBUG: Final = 10
INFO: Final = 20
"""Levels of ``logging``."""


def is_on(area: str, level: int) -> bool:
    """Whether somebody listens to the logger ``relaxvm.<area>`` at a level."""
    logging = sys.modules.get("logging")
    # A module that another thread is importing may not have everything yet.
    if logging is None or not hasattr(logging, "getLogger"):
        return False
    on: bool = logging.getLogger(f"relaxvm.{area}").isEnabledFor(level)
    return on


def log(area: str, level: int, message: str, *args: Any) -> None:
    """Write to the logger ``relaxvm.<area>``; the arguments are formatted as in ``logging``."""
    if is_on(area, level):
        # The record names the caller.
        sys.modules["logging"].getLogger(f"relaxvm.{area}").log(level, message, *args, stacklevel=2)
