"""Random Relay programs: results as those of the evaluator, and texts that are read back."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest

import relaxvm
from relaxvm import analysis
from relaxvm.errors import UnreachableClauseWarning
from relaxvm.frontend.relay import from_text, to_text
from relaxvm.ir import structural_equal

from .relay_evaluator import assert_same, evaluate
from .relay_generator import random_program
from .relay_texts import HEAD, PRELUDE


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    text = random_program(random.Random(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreachableClauseWarning)
        module = from_text(HEAD + text)
        assert analysis.violations(module) == []
        printed = to_text(module)
        again = from_text(printed)
    assert to_text(again) == printed
    assert structural_equal(again, module)
    machines = [relaxvm.VirtualMachine(relaxvm.build(m)) for m in (module, again)]
    machines.append(relaxvm.VirtualMachine(relaxvm.build(module), optimize=False))
    for n in (3, -2):
        with np.errstate(all="ignore"):
            expected = evaluate(text, np.int32(n), std=PRELUDE)
            for machine in machines:
                assert_same(machine["main"](np.int32(n)), expected)
