"""The number of threads of numpy's BLAS, and what sets it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import relaxvm
from relaxvm.core import blas
from relaxvm.core.blas import get_blas_threads, set_blas_threads

pytestmark = pytest.mark.skipif(
    get_blas_threads() is None, reason="numpy's BLAS has no such functions"
)


@pytest.fixture(autouse=True)
def same_afterwards() -> Iterator[None]:
    before, threads = get_blas_threads(), relaxvm.get_num_threads()
    yield
    relaxvm.set_num_threads(threads)
    set_blas_threads(before or 1)


def test_the_number_is_set() -> None:
    for count in (1, 2, 1):
        set_blas_threads(count)
        assert get_blas_threads() == count


def test_set_num_threads_sets_it_too() -> None:
    set_blas_threads(2)
    relaxvm.set_num_threads(1)
    assert get_blas_threads() == 1


def test_nothing_is_set_without_such_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    set_blas_threads(2)
    monkeypatch.setattr(blas, "_functions", lambda: None)
    assert get_blas_threads() is None
    set_blas_threads(1)
    monkeypatch.undo()
    assert get_blas_threads() == 2
