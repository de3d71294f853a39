"""ConvertLayout.  docs/passes.md has a program before and after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxvm.ir import Call
from relaxvm.transform import ConvertLayout, ToMixedPrecision

from .passes import apply, module, run, unchanged

NHWC = ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})
RNG = np.random.default_rng(7)


def program(body: str, result: str = "r", params: str = "") -> str:
    """A program that does something with a convolution, c: R.Tensor((2, 4, 6, 6), "float32")."""
    lines = "\n".join(f"        {line.strip()}" for line in body.strip().split("\n"))
    return f"""
@R.function
def main(x: R.Tensor((2, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32"){params}):
    with R.dataflow():
        c = R.nn.conv2d(x, w)
{lines}
        R.output({result})
    return {result}
"""


def arguments(mod: Any) -> list[np.ndarray]:
    shapes = [[dim.value for dim in param.ty.dims] for param in mod["main"].params]
    types = [param.ty.dtype for param in mod["main"].params]
    return [
        (RNG.integers(0, 2, s) if t == "int64" else RNG.uniform(0.5, 1.5, s)).astype(t)
        for s, t in zip(shapes, types, strict=True)
    ]


def converted(text: str, pass_: Any = NHWC) -> str:
    """Apply the pass, and check that the results are the same."""
    before, after = module(text), apply(pass_, text)
    args = arguments(before)
    for a, b in zip(leaves(run(before, *args)), leaves(run(after, *args)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    return str(after.script())


def leaves(value: Any) -> list[Any]:
    return [leaf for item in value for leaf in leaves(item)] if type(value) is tuple else [value]


SAME = ', b: R.Tensor((2, 4, 6, 6), "float32")'
VECTOR = ', g: R.Tensor((4,), "float32")'
FOLLOW = {
    "relu": ("r = R.nn.relu(c)", ""),
    "add": ("a = R.add(c, b)\nr = R.nn.relu(a)", SAME),
    "add a scalar": ("a = R.add(c, R.const(2.0, 'float32'))\nr = R.nn.relu(a)", ""),
    "add a number": ("a = R.add(c, R.prim_value(T.float32(2)))\nr = R.nn.relu(a)", ""),
    "sum": ("a = R.sum(c, axis=[1])\nr = R.nn.relu(a)", ""),
    "keepdims": ("a = R.mean(c, axis=[2, -1], keepdims=True)\nr = R.nn.relu(a)", ""),
    "sum of all": ("a = R.sum(c)\nr = R.nn.relu(a)", ""),
    "permute_dims": ("a = R.permute_dims(c, axes=[3, 1, 2, 0])\nr = R.nn.relu(a)", ""),
    "reversed": ("a = R.permute_dims(c)\nr = R.nn.relu(a)", ""),
    "expand_dims": ("a = R.expand_dims(c, axis=[1, -1])\nr = R.nn.relu(a)", ""),
    "squeeze": ("a = R.sum(c, axis=[1], keepdims=True)\nr = R.squeeze(a, axis=[1])", ""),
    "squeeze all": ("a = R.sum(c, axis=[2], keepdims=True)\nr = R.squeeze(a)", ""),
    "strided_slice": (
        "a = R.strided_slice(c, axes=[1, 2], begin=[0, 1], end=[2, 6], strides=[1, 2])\n"
        "r = R.nn.relu(a)",
        "",
    ),
    "concat": ("a = R.concat((c, c), axis=1)\nr = R.nn.relu(a)", ""),
    "split": ("a = R.split(c, 2, axis=1)\np = a[0]\nq = a[1]\nr = R.subtract(p, q)", ""),
    "max_pool2d": ("r = R.nn.max_pool2d(c, pool_size=[2, 2], strides=[2, 2])", ""),
    "adaptive pool": ("r = R.nn.adaptive_avg_pool2d(c, [3, 3])", ""),
    "softmax": ("a = R.nn.softmax(c, axis=1)\nr = R.nn.relu(a)", ""),
    "batch_norm": (
        "a = R.nn.batch_norm(c, g, g, g, g, axis=1, training=False)\np = a[0]\nr = R.nn.relu(p)",
        VECTOR,
    ),
    "layer_norm": (
        "a = R.nn.layer_norm(c, g, g, axes=[-2, -1])\nr = R.nn.relu(a)",
        ', g: R.Tensor((6, 6), "float32")',
    ),
    "group_norm": (
        "a = R.nn.group_norm(c, g, g, num_groups=2, channel_axis=1, axes=[2, 3])\n"
        "r = R.nn.relu(a)",
        VECTOR,
    ),
    "resize2d": ('a = R.image.resize2d(c, (12, 12), layout="NCHW")\nr = R.nn.relu(a)', ""),
    "flip": ("a = R.flip(c, axis=1)\nr = R.nn.relu(a)", ""),
    "repeat": ("a = R.repeat(c, repeats=2, axis=1)\nr = R.nn.relu(a)", ""),
    "tile": ("a = R.tile(c, (1, 2, 1, 1))\nr = R.nn.relu(a)", ""),
    "gather_elements": (
        "a = R.gather_elements(c, i, axis=1)\nr = R.nn.relu(a)",
        ', i: R.Tensor((2, 4, 6, 6), "int64")',
    ),
    "match_cast": ('a = R.match_cast(c, R.Tensor((2, 4, 6, 6), "float32"))\nr = R.nn.relu(a)', ""),
    "dropout": ("a = R.nn.dropout(c, 0.0)\np = a[0]\nr = R.nn.relu(p)", ""),
}
"""Programs that transpose the result of the convolution at most once, at their end."""

STOP = {
    "another name": ("a = c\nr = R.nn.relu(a)", ""),
    "reshape": ("a = R.reshape(c, (8, 36))\nr = R.nn.relu(a)", ""),
    "cumsum": ("a = R.cumsum(c, axis=1)\nr = R.nn.relu(a)", ""),
    "clip": ("a = R.clip(c, 0, 1)\nr = R.nn.relu(a)", ""),
    "broadcast": ("a = R.add(c, g)\nr = R.nn.relu(a)", ', g: R.Tensor((6,), "float32")'),
    "weights across axes": (
        "a = R.nn.layer_norm(c, g, g, axes=[1, 2])\nr = R.nn.relu(a)",
        ', g: R.Tensor((4, 6), "float32")',
    ),
    "scatter_elements": (
        "a = R.scatter_elements(c, i, b, axis=1)\nr = R.nn.relu(a)",
        SAME + ', i: R.Tensor((2, 4, 6, 6), "int64")',
    ),
    "matmul": ("a = R.matmul(c, g)\nr = R.nn.relu(a)", ', g: R.Tensor((6, 6), "float32")'),
}
"""Programs in which an operator needs its operand as it was."""


def transposed(script: str, names: str) -> list[str]:
    """The variables of the program, of these names, that are transposed."""
    lines = [line for line in script.split("\n") if "R.permute_dims(" in line]
    found = [line.split("R.permute_dims(")[1].split(",")[0].rstrip(")") for line in lines]
    return [name for name in found if name in names]


@pytest.mark.parametrize("name", FOLLOW)
def test_operators_that_follow(name: str) -> None:
    body, params = FOLLOW[name]
    script = converted(program(body, params=params))
    assert '"NHWC", "OHWI", "NHWC"' in script
    if not name.startswith(("permute", "reversed")):
        assert not transposed(script, "ac")


@pytest.mark.parametrize("name", STOP)
def test_operators_that_do_not(name: str) -> None:
    body, params = STOP[name]
    script = converted(program(body, params=params))
    assert '"NHWC", "OHWI", "NHWC"' in script
    assert transposed(script, "ac") == ["c"]


def test_a_convolution_follows_another() -> None:
    body = "a = R.nn.relu(c)\nr = R.nn.conv2d(a, v, padding=(1, 1))"
    params = ', v: R.Tensor((5, 4, 3, 3), "float32")'
    script = converted(program(body, params=params))
    assert script.count('"NHWC", "OHWI", "NHWC"') == 2
    assert transposed(script, "acxwv") == ["x", "w", "v"]
    assert script.count("R.permute_dims") == 4


def test_axes_of_one_length() -> None:
    """The types say nothing of the order of axes."""
    text = """
    @R.function
    def main(x: R.Tensor((4, 4, 4, 4), "float32"), w: R.Tensor((4, 4, 1, 1), "float32")):
        with R.dataflow():
            c = R.nn.conv2d(x, w)
            a = R.nn.relu(c)
            r = R.nn.softmax(a, axis=1)
            R.output(r)
        return r
    """
    assert "axis=3" in converted(text)


def test_tuples() -> None:
    converted(program("t = (c, x)\na = t[0]\nb = t[1]\nr = (a, b)"))
    converted(program("r = (c, (c, x))"))
    script = converted(program("t = (c, c)\na = t[1]\nr = R.nn.relu(a)"))
    assert not transposed(script, "act")


def test_the_layout_of_the_result() -> None:
    script = converted(
        program("r = R.nn.relu(c)"), ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI", "NCHW"]})
    )
    assert '"NHWC", "OHWI", "NCHW"' in script
    assert len(transposed(script, "abcrxwlv")) == 2


def test_a_layout_for_each_call() -> None:
    seen: list[str] = []

    def choose(call: Call) -> dict[str, list[str]]:
        seen.append(call.op.name)  # type: ignore[attr-defined]
        return {"relax.nn.conv2d": ["NHWC", "HWIO"]}

    script = converted(program("r = R.nn.relu(c)"), ConvertLayout({}, choose))
    assert seen == ["relax.nn.conv2d", "relax.nn.relu"]
    assert '"NHWC", "HWIO", "NHWC"' in script


def test_other_convolutions() -> None:
    converted(
        """
@R.function
def main(x: R.Tensor((2, 3, 9), "float32"), w: R.Tensor((4, 3, 3), "float32"),
         v: R.Tensor((4, 2, 3), "float32")):
    with R.dataflow():
        a = R.nn.conv1d(x, w)
        b = R.nn.relu(a)
        r = R.nn.conv1d_transpose(b, v)
        R.output(r)
    return r
""",
        ConvertLayout({"relax.nn.conv1d": ["NWC", "WIO"]}),
    )


def test_with_mixed_precision() -> None:
    before = module(program("r = R.nn.relu(c)"))
    after = NHWC(ToMixedPrecision()(before))
    args = arguments(before)
    np.testing.assert_allclose(run(after, *args), run(before, *args), rtol=2e-2, atol=2e-2)


def test_nothing_to_do() -> None:
    text = program("a = R.nn.relu(c)\nr = R.sum(a, axis=[3])")
    unchanged(ConvertLayout({}), text)
    unchanged(ConvertLayout({"relax.nn.conv2d": ["NCHW", "OIHW"]}), text)
    outside = text.replace("    with R.dataflow():\n", "").replace("        R.output(r)\n", "")
    unchanged(NHWC, outside.replace("\n        ", "\n    "))


@pytest.mark.parametrize(
    ("desired", "message"),
    [
        ({"relax.nn.conv2d": ["NCHW4c", "OIHW"]}, "with the axes of NCHW, got 'NCHW4c'"),
        ({"relax.nn.conv2d": ["NHWC"]}, r"layouts of data and weight.*got \['NHWC'\]"),
        ({"relax.nn.relu": ["NHWC"]}, "relax.nn.relu: layouts may be desired of convolutions"),
    ],
)
def test_layouts_that_are_refused(desired: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConvertLayout(desired)(module(program("r = R.nn.relu(c)")))
