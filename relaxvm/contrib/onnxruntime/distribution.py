"""What ``importlib.metadata`` says of onnxruntime where its names are relaxvm's."""

from __future__ import annotations

import os
from importlib.metadata import Distribution
from pathlib import Path

from .environment import VERSION

__all__ = ["OnnxRuntime"]


class OnnxRuntime(Distribution):
    """The distribution: a name and a version, and no files."""

    def read_text(self, filename: str) -> str | None:
        """The text of a file of metadata; None if there is none."""
        if filename != "METADATA":
            return None
        return f"Metadata-Version: 2.1\nName: onnxruntime\nVersion: {VERSION}\n"

    def locate_file(self, path: str | os.PathLike[str]) -> Path:
        """The place that a path of the distribution would have."""
        return Path(__file__).parent / path
