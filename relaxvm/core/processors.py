"""How many processors a control group of Linux leaves to this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

__all__ = ["quota"]

_PROCESS: Final = "/proc/self/cgroup"
_MOUNT: Final = "/sys/fs/cgroup"
_MOST_LINES: Final = 64


def quota(process: str = _PROCESS, mount: str = _MOUNT) -> int | None:
    """Return how many processors a container or another control group may use, rounded up.

    The least quota on the way to the root counts: `cpu.max` of version 2, `cpu.cfs_quota_us` of
    version 1.

    Args:
        process: the file that names the groups of the process.
        mount: the folder that the groups are mounted at.

    Returns:
        None if there is no quota, or no control group.
    """
    found = [limit for limit in _quotas(process, mount) if limit is not None]
    return min(found) if found else None


def _quotas(process: str, mount: str) -> Iterator[int | None]:
    for line in _text(process).splitlines()[:_MOST_LINES]:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            for folder in _upwards(mount, path):
                yield _rounded_up(*_text(f"{folder}/cpu.max").split())
        elif "cpu" in controllers.split(","):
            for name in dict.fromkeys((controllers, "cpu")):
                for folder in _upwards(f"{mount}/{name}", path):
                    yield _rounded_up(
                        _text(f"{folder}/cpu.cfs_quota_us"), _text(f"{folder}/cpu.cfs_period_us")
                    )


def _upwards(root: str, path: str) -> Iterator[str]:
    """The folder of a group and those above it; in a container the path may be that of the host,
    which is not there."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for count in range(len(parts), -1, -1):
        yield "/".join([root, *parts[:count]])


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""


def _rounded_up(*numbers: str) -> int | None:
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        return None  # "max", -1, or no such file
    time, period = map(int, numbers)
    return max(1, -(-time // period)) if period else None
