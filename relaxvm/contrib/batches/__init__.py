"""Models over tables: a `Predictor` computes the outputs of a model for batches of rows.

A batch is a dict of numpy arrays, a pandas DataFrame, or a pyarrow Table or RecordBatch, and so is
the result.  `relaxvm.contrib.ray` and `relaxvm.contrib.dask` run it on many machines; it is as
useful without them.
"""

from __future__ import annotations

from .columns import BatchError
from .long_runs import run_to_end
from .predictor import Predictor

__all__ = ["BatchError", "Predictor", "run_to_end"]
