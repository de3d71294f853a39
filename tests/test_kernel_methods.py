"""Each method of each set, by itself; functions of elements over numbers of all sizes."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from relaxvm.kernels.cpu import SETS

from . import children, exhaustive, kernel_methods

pytestmark = pytest.mark.skipif(not SETS, reason="no kernels for this processor")


@pytest.mark.parametrize(("which", "method", "kernel"), list(kernel_methods.methods()))
def test_every_method_of_every_set_is_run(which: str, method: str, kernel: str) -> None:
    """`python -m tests.kernel_methods` lists those that are not."""
    assert kernel_methods.calls_taken(which, method, kernel, 60)


@pytest.mark.parametrize("number", kernel_methods.STRANGE)
@pytest.mark.parametrize(("which", "method", "kernel"), list(kernel_methods.methods()))
def test_strange_numbers(which: str, method: str, kernel: str, number: str) -> None:
    """NaN, infinities and denormals, in all methods that have an operand of floats."""
    value = kernel_methods.STRANGE[number]
    taken = kernel_methods.strange_numbers(which, method, kernel, value)
    # What the products of halves of bytes leave to the reference are infinite sums.
    assert taken or (method == "nbits.product" and not math.isfinite(value))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages without access")
@pytest.mark.parametrize("which", SETS)
def test_no_method_touches_what_is_beside_its_arguments(which: str) -> None:
    # The root is for the tests; relaxvm is the one that is installed.
    code = (
        f"import sys; sys.path.append({str(Path(__file__).parents[1])!r})\n"
        "from tests.kernel_methods import main; sys.exit(main())"
    )
    command = [sys.executable, "-P", "-X", "faulthandler", "-c", code, "--guarded", "--set", which]
    done = children.run(command, capture_output=True, text=True)
    wanted = "0 methods that no test runs"
    assert (done.returncode, done.stdout.strip()) == (0, wanted), done.stderr


@pytest.mark.parametrize("name", exhaustive.BOUNDS)
def test_errors_are_within_their_bounds(name: str) -> None:
    """One number in 16,411 of all; `make exhaustive` takes all of them."""
    for which, (error, x) in exhaustive.worst(name, SETS, 16411).items():
        assert error <= exhaustive.limit(name, which), f"{which}: {error} at {x!r}"


def test_a_result_of_another_kind_is_an_infinite_error() -> None:
    """The comparison finds what it is for."""
    x = np.array([1, 2, np.nan, 100], np.float32)
    bound = exhaustive.BOUNDS["exp"]
    with np.errstate(all="ignore"):
        want = bound.exact(x.astype(np.float64))
        got = want.astype(np.float32)
    assert exhaustive.errors(bound, x, got, want).max() <= 0.5
    for wrong, least in ((np.nextafter(got[0], np.float32(9)), 0.5), (np.nan, np.inf)):
        changed = got.copy()
        changed[0] = wrong
        assert exhaustive.errors(bound, x, changed, want)[0] >= least
    changed = got.copy()
    changed[2:] = 1
    assert np.isinf(exhaustive.errors(bound, x, changed, want)[2:]).all()
