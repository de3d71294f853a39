"""Options of ``node.script()``, and the text of parts of programs."""

from __future__ import annotations

import pytest

from relaxvm import op
from relaxvm.ir import TensorType, Var, VarBinding, assert_structural_equal
from relaxvm.script import from_source

HEADER = "from relaxvm.script import ir as I, relax as R, tir as T\n"

FUNCTION = """
@R.function
def main(x: R.Tensor(("n", 4), "float32"), s: R.Prim("int64")):
    y = R.add(x, x)
    z: R.Tensor(ndim=2, dtype="float32") = R.exp(y)
    t = s + 1
    w = R.match_cast(z, R.Tensor((t, 4), "float32"))
    return w
"""


def test_types_that_the_parser_infers_can_be_left_out() -> None:
    func = from_source(HEADER + FUNCTION)
    short = func.script(show_all_ty=False)
    assert "    y = R.add(x, x)\n" in short
    assert 'z: R.Tensor(dtype="float32", ndim=2) = R.exp(y)' in short
    assert "t: T.int64 = s + 1" in short
    assert 'y: R.Tensor((n, 4), dtype="float32") = R.add(x, x)' in func.script()
    assert_structural_equal(from_source(HEADER + short), func)


def test_bindings_alone_begin_with_their_free_variables() -> None:
    n = Var("n", "int64")
    x, scale = Var("x", TensorType((n, 4), "float32")), Var("scale", TensorType((), "float32"))
    y = Var("y", x.ty)
    binding = VarBinding(y, op.multiply(x, scale))
    line = 'y: R.Tensor((n, 4), dtype="float32") = R.multiply(x, scale)'
    assert binding.script().splitlines() == [
        "n = T.int64()",
        'x: R.Tensor((n, 4), dtype="float32")',
        'scale: R.Tensor((), dtype="float32")',
        line,
    ]
    assert str(binding) == line
    func = from_source(HEADER + FUNCTION)
    block = func.body.blocks[0].script().splitlines()
    assert block[:3] == ["n = T.int64()", 'x: R.Tensor((n, 4), dtype="float32")', "s = T.int64()"]
    assert op.add(x, x).script() == "R.add(x, x)"


def test_a_function_is_shown_with_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    from_source(HEADER + FUNCTION).show(show_all_ty=False)
    assert "    y = R.add(x, x)\n" in capsys.readouterr().out
