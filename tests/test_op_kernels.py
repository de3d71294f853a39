"""Every operator computes what an expression of numpy does: legalized, compiled and run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import relaxvm
from relaxvm import op
from relaxvm.ir import (
    BlockBuilder,
    Expr,
    IRModule,
    TensorType,
    Var,
)
from relaxvm.op import OPERATORS
from relaxvm.vm_build import build

from .op_cases import evaluate, lines, operators_in

RESULTS = """
abs(f(2, 3)) | np.abs(a)
acos(f(9)) | np.arccos(a)
acosh(exp(f(9))) | np.arccosh(np.exp(a))
asin(f(9)) | np.arcsin(a)
asinh(f(9)) | np.arcsinh(a)
atan(f(9)) | np.arctan(a)
atanh(f(9)) | np.arctanh(a)
bitwise_not(i(9)) | ~a
bitwise_not(b(9)) | ~a
ceil(f(9)) | np.ceil(a)
ceil(i(9)) | a
cos(f(9)) | np.cos(a)
cosh(f(9)) | np.cosh(a)
erf(f(9)) | erf(a)
exp(f(9)) | np.exp(a)
exp(h(9)) | np.exp(a)
floor(f(9)) | np.floor(a)
log(f(9)) | np.log(a)
negative(i(9)) | -a
round(f(9)) | np.round(a)
rsqrt(exp(f(9))) | 1 / np.sqrt(np.exp(a))
sigmoid(f(9)) | 1 / (1 + np.exp(-a))
sign(f(9)) | np.sign(a)
sin(f(9)) | np.sin(a)
sinh(f(9)) | np.sinh(a)
sqrt(f(9)) | np.sqrt(a)
square(i(9)) | a * a
tan(f(9)) | np.tan(a)
tanh(f(9)) | np.tanh(a)
trunc(f(9)) | np.trunc(a)
isfinite(log(f(9))) | np.isfinite(np.log(a))
isinf(f(9)) | np.isinf(a)
isnan(sqrt(f(9))) | np.isnan(np.sqrt(a))
logical_not(i(9)) | a == 0
nn.relu(f(9)) | np.maximum(a, 0)
nn.relu6(i(9)) | np.clip(a, 0, 6)
nn.gelu(f(9)) | a * (1 + erf(a / np.sqrt(2))) / 2
nn.gelu_tanh(f(9)) | a * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3))) / 2
nn.silu(f(9)) | a / (1 + np.exp(-a))

add(f(2, 3), f(3)) | a + b
add(f(2, 1), f(1, 3)) | a + b
add(i(4), 2) | a + 2
add(b(4), b(4)) | a | b
1.0 - f(3) | 1 - a
atan2(f(9), f(9)) | np.arctan2(a, b)
divide(f(9), f(9)) | a / b
divide(i(9), full((9,), 2, "int64")) | np.trunc(a / 2).astype("int64")
floor_divide(i(9), 2) | a // 2
floor_mod(i(9), 3) | a % 3
log_add_exp(f(9), f(9)) | np.logaddexp(a, b)
maximum(f(9), f(9)) | np.maximum(a, b)
minimum(f(9), 0.0) | np.minimum(a, 0)
mod(i(9), 3) | np.fmod(a, 3)
multiply(f(2, 3), f()) | a * b
power(f(9), 2.0) | a**2
subtract(h(3), h(2, 1)) | a - b
bitwise_and(i(9), 3) | a & 3
bitwise_or(b(9), b(9)) | a | b
bitwise_xor(u8(9), u8(9)) | a ^ b
left_shift(i(9), 2) | a << 2
right_shift(i(9), 1) | a >> 1
equal(i(9), i(9)) | a == b
greater(f(9), f(9)) | a > b
greater_equal(f(9), 0.0) | a >= 0
less(f(9), f(9)) | a < b
less_equal(i(9), i(9)) | a <= b
not_equal(b(9), b(9)) | a != b
logical_and(b(9), b(9)) | a & b
logical_or(i(9), i(9)) | (a != 0) | (b != 0)
logical_xor(b(9), b(9)) | a ^ b
where(b(2, 1), f(3), f()) | np.where(a, b, c)
where(b(3), f(3), 0.5) | np.where(a, b, np.float32(0.5))
clip(f(9), -0.5, 0.25) | np.clip(a, -0.5, 0.25)
astype(f(9), "int32") | a.astype("int32")
wrap_param(f(9), "float64") | a.astype("float64")

full((2, 3), 1.5) | np.full((2, 3), 1.5, "float32")
full((2, 3), f(), "float64") | np.full((2, 3), a, "float64")
full_like(i(3), 7) | np.full(3, 7)
ones((2, 3), "float32") | np.ones((2, 3), "float32")
ones_like(f(3), "int8") | np.ones(3, "int8")
zeros((2, 0), "bool") | np.zeros((2, 0), bool)
zeros_like(i(3)) | np.zeros(3, "int64")
arange(1, 10, 4) | np.arange(1, 10, 4)
arange(10, 0, -3, "float32") | np.arange(10, 0, -3, "float32")

matmul(f(2, 3), f(3, 4)) | a @ b
matmul(f(2, 1, 2, 3), f(5, 3, 4)) | a @ b
matmul(f(3), f(3)) | a @ b
matmul(h(2, 3), h(3, 4), "float32") | a.astype("float32") @ b.astype("float32")
linear(f(2, 3), f(4, 3), f(4)) | a @ b.T + c
einsum((f(2, 3), f(3, 4)), "ij,jk->ki") | (a @ b).T
einsum((f(5, 2, 3), f(5, 3, 4)), "...ij,...jk") | a @ b

reshape(f(3, 4), (2, -1)) | a.reshape(2, 6)
expand_dims(f(3, 4), [0, -1]) | a.reshape(1, 3, 4, 1)
squeeze(f(1, 3, 1)) | a.reshape(3)
flatten(f(3, 4)) | a.reshape(12)
permute_dims(f(2, 3, 4)) | a.transpose()
permute_dims(f(2, 3, 4), [1, -1, 0]) | a.transpose(1, 2, 0)
flip(f(3, 4), -1) | a[:, ::-1]
concat([f(2, 3), f(2, 1)], -1) | np.concatenate([a, b], 1)
concat([f(2), f(3)], None) | np.concatenate([a, b])
stack([f(2, 3), f(2, 3)], -1) | np.stack([a, b], -1)
split(f(3, 7), 3, -1) | np.split(a, [3, 6], 1)
split(f(7), [2, 2]) | np.split(a, [2, 2])
split(f(7), 1) | a
broadcast_to(f(3, 1), (2, 3, 4)) | np.broadcast_to(a, (2, 3, 4))
repeat(f(2, 3), 2) | np.repeat(a, 2)
repeat(f(2, 3), 2, -1) | np.repeat(a, 2, 1)
tile(f(2, 3), (2, 1, 2)) | np.tile(a, (2, 1, 2))

take(f(5, 3), abs(i(2, 2)) % 5, 0) | a[np.abs(b) % 5]
take(f(2, 5), i(3), 1, "wrap") | np.take(a, b, 1, mode="wrap")
take(f(5, 3), 4, 0) | a[4]
strided_slice(f(5, 6), [0, -1], [-4, 5], [5, -100], [2, -2]) | a[-4:5:2, 5:-100:-2]
strided_slice(f(5), [0], [1], [3]) | a[1:3]

max(f(2, 3)) | a.max()
max(i(2, 3), -1, True) | a.max(1, keepdims=True)
mean(f(2, 3, 4), [0, -1]) | a.mean((0, 2))
min(f(2, 3), 0) | a.min(0)
prod(i(2, 3), 0) | a.prod(0)
sum(f(2, 3)) | a.sum()
sum(f(2, 3), []) | a
sum(i(2, 3, 4), [1, 2], True) | a.sum((1, 2), keepdims=True)
argmax(f(2, 3)) | np.asarray(a.argmax())
argmax(f(2, 3), 1, True) | a.argmax(1, keepdims=True)
argmin(f(2, 3), 0) | a.argmin(0)
cumsum(f(2, 3)) | a.cumsum(dtype="float32")
cumsum(j(2, 3), -1, "int64", True) | a.cumsum(1, "int64") - a
cumprod(i(2, 3), 0) | a.cumprod(0)
sort(f(2, 5), -1, True) | -np.sort(-a)
argsort(f(2, 5), 0) | np.argsort(a, 0).astype("int32")
topk(f(2, 5), 2) | [-np.sort(-a)[:, :2], np.argsort(-a)[:, :2].astype("int32")]
topk(f(2, 5), 9, 0, "values", False) | np.sort(a, 0)
topk(f(2, 5), 2, 1, "indices", dtype="int64") | np.argsort(-a)[:, :2]

nn.softmax(f(2, 3), 0) | np.exp(a) / np.exp(a).sum(0)
nn.log_softmax(f(2, 3)) | a - np.log(np.exp(a).sum(1, keepdims=True))
nn.dropout(f(3), 0.5) | [a, np.ones(3, "float32")]
nn.layer_norm(f(2, 3, 4), f(3, 4), f(3, 4), [1, -1]) |
    (a - a.mean((1, 2), keepdims=True)) / np.sqrt(a.var((1, 2), keepdims=True) + 1e-5) * b + c
nn.rms_norm(f(2, 4), f(4), epsilon=0.5) | a / np.sqrt((a * a).mean(-1, keepdims=True) + 0.5) * b
nn.batch_norm(f(2, 3), f(3), f(3), f(3), square(f(3)), -1, training=False) |
    [(a - d) / np.sqrt(e * e + 1e-5) * b + c, d, e * e]
nn.batch_norm(f(4, 3, 2), f(3), f(3), f(3), f(3), 1, momentum=0.25) |
    [(a - a.mean((0, 2), keepdims=True)) / np.sqrt(a.var((0, 2), keepdims=True) + 1e-5)
    * b[:, None] + c[:, None], 0.75 * d + 0.25 * a.mean((0, 2)), 0.75 * e + 0.25 * a.var((0, 2))]
nn.pad(f(2, 3), (1, 0, 0, 2), pad_value=7.0) | np.pad(a, [(1, 0), (0, 2)], constant_values=7)
nn.pad(f(3, 3), (1, 1, 2, 0), "reflect") | np.pad(a, [(1, 1), (2, 0)], "reflect")
nn.cross_entropy_with_logits(f(4, 3), f(4, 3)) | -(a * b).sum() / 4
nn.conv1d(f(2, 4, 9), f(6, 2, 3), 2, 1, 1, 2) | convolve(a[:, :, None], b[:, :, None], (1, 2),
    (0, 1, 0, 1), (1, 1), 2)[:, :, 0]
nn.conv2d(f(1, 2, 6, 7), f(3, 2, 2, 3), (2, 1), (1, 0, 0, 2), (1, 2)) |
    convolve(a, b, (2, 1), (1, 0, 0, 2), (1, 2), 1)
nn.conv2d(f(1, 6, 7, 2), f(2, 3, 2, 3), data_layout="NHWC", kernel_layout="HWIO", out_layout="NCHW")
    | convolve(a.transpose(0, 3, 1, 2), b.transpose(3, 2, 0, 1), (1, 1), (0,) * 4, (1, 1), 1)
nn.max_pool2d(f(1, 2, 5, 6), (2, 3), 2, (1, 0), ceil_mode=True) |
    pool(a, np.max, (2, 3), (2, 2), (1, 0, 1, 0), True)
nn.max_pool2d(f(1, 1, 4, 4), 2, 3, 1, ceil_mode=True) |
    pool(a, np.max, (2, 2), (3, 3), (1, 1, 1, 1), False)
nn.avg_pool2d(f(1, 4, 6, 2), 2, 2, layout="NHWC") |
    pool(a.transpose(0, 3, 1, 2), np.mean, (2, 2), (2, 2), (0,) * 4, False).transpose(0, 2, 3, 1)
nn.attention(f(2, 3, 2, 4), f(2, 5, 2, 4), f(2, 5, 2, 6)) | attend(a, b, c, 0, 0.5)
nn.attention(f(2, 3, 2, 4), f(2, 5, 2, 4), f(2, 5, 2, 6), scale=0.25, causal_mask="BottomRight") |
    attend(a, b, c, np.where(np.arange(5) > np.arange(3)[:, None] + 2, -np.inf, 0), 0.25)
nn.attention(f(2, 3, 2, 4), f(2, 5, 2, 4), f(2, 5, 2, 6), f(2, 1, 3, 5)) | attend(a, b, c, d, 0.5)

size(f(3, 4)) | np.asarray(12)
shape_to_tensor(shape_of(f(3, 4))) | np.asarray([3, 4])
hint_on_device(f(3), "cpu") | a
builtin.stop_lift_params(f(3)) | a
memory.view(f(2, 3), [3], "int64") | a.reshape(6).view("int64")
memory.view(f(4), [2], relative_byte_offset=8) | a[2:]
memory.ensure_zero_offset(f(3)) | a
to_vdevice(f(3), here) | a
"""

CHECKED_ELSEWHERE = {
    "print", "assert_op",  # in test_print, test_assert_op
    "tensor_to_shape", "shape_of",  # shapes, in the tests of lowering
}  # fmt: skip
COMPILER = (
    "call_", "invoke_", "make_closure", "null_value", "builtin.alloc", "memory.alloc",
    "memory.kill", "vm.",
)  # fmt: skip
"""What the names of operators begin with that the tests of passes are about."""

erf = np.vectorize(math.erf, otypes=["float32"])


def convolve(x: Any, w: Any, strides: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """A convolution by its definition."""
    x = np.pad(x, [(0, 0), (0, 0), (padding[0], padding[2]), (padding[1], padding[3])])
    reach = [(size - 1) * step for size, step in zip(w.shape[2:], dilation, strict=True)]
    rows = range(0, x.shape[2] - reach[0], strides[0])
    columns = range(0, x.shape[3] - reach[1], strides[1])
    out = np.zeros((len(x), len(w), len(rows), len(columns)), x.dtype)
    inputs, outputs = w.shape[1], len(w) // groups
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            part = x[:, :, row : row + reach[0] + 1 : dilation[0],
                     column : column + reach[1] + 1 : dilation[1]]  # fmt: skip
            for g in range(groups):
                out[:, g * outputs : (g + 1) * outputs, i, j] = np.einsum(
                    "nihw,oihw->no", part[:, g * inputs : (g + 1) * inputs],
                    w[g * outputs : (g + 1) * outputs],
                )  # fmt: skip
    return out


def pool(x: Any, reduce: Any, size: Any, strides: Any, padding: Any, ceil_mode: bool) -> Any:
    """A pool by its definition."""
    top, left, bottom, right = padding
    starts = []
    for n, front, behind, window, step in zip(
        x.shape[2:], (top, left), (bottom, right), size, strides, strict=True
    ):
        last = n + front + behind - window
        starts.append(range(0, min(last + step, n + front) if ceil_mode else last + 1, step))
    x = np.pad(
        x, [(0, 0), (0, 0), (top, bottom + size[0]), (left, right + size[1])],
        constant_values=-np.inf if reduce is np.max else 0,
    )  # fmt: skip
    rows = [
        [reduce(x[:, :, r : r + size[0], c : c + size[1]], (2, 3)) for c in starts[1]]
        for r in starts[0]
    ]
    return np.stack([np.stack(row, -1) for row in rows], 2)


def attend(q: Any, k: Any, v: Any, bias: Any, scale: float) -> Any:
    """Attention by its definition."""
    scores = np.exp(np.einsum("bqhd,bkhd->bhqk", q, k) * scale + bias)
    return np.einsum("bhqk,bkhd->bqhd", scores / scores.sum(-1, keepdims=True), v)


def value_of(var: Var, rng: np.random.Generator) -> NDArray[Any]:
    """A tensor of a variable's type, with numbers of both signs."""
    ty = var.ty
    assert isinstance(ty, TensorType)
    shape = tuple(int(dim) for dim in ty.dims)  # type: ignore[union-attr, call-overload]
    if ty.dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if "int" in str(ty.dtype):
        return rng.integers(0 if ty.dtype == "uint8" else -9, 10, shape).astype(ty.dtype)
    return rng.uniform(-1, 1, shape).astype(ty.dtype)


def module_of(functions: dict[str, tuple[Expr, list[Var]]]) -> IRModule:
    builder = BlockBuilder()
    for name, (result, params) in functions.items():
        with builder.function(name, params):
            with builder.dataflow():
                out = builder.emit_output(result)
            builder.emit_func_output(out)
    return builder.get()


CASES = list(lines(RESULTS))


@pytest.fixture(scope="module")
def machine() -> relaxvm.VirtualMachine:
    """All cases, compiled into one executable: function i is case i."""
    return relaxvm.VirtualMachine(
        build(module_of({f"case_{i}": evaluate(case) for i, (case, _) in enumerate(CASES)}))
    )


@pytest.mark.parametrize("index", range(len(CASES)), ids=lambda i: CASES[i][0])
def test_result(machine: relaxvm.VirtualMachine, index: int) -> None:
    case, expression = CASES[index]
    _, made = evaluate(case)
    rng = np.random.default_rng(index)
    with np.errstate(all="ignore"):
        operands = {var.name: value_of(var, rng) for var in made}
        names = {"np": np, "erf": erf, "convolve": convolve, "pool": pool, "attend": attend}
        expected = eval(expression, {**names, **operands})
        got = machine[f"case_{index}"](*operands.values())
    check(got, expected)


def check(got: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert isinstance(got, tuple)
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            check(one, other)
        return
    expected = np.asarray(expected)
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype or got.dtype.kind == expected.dtype.kind == "f"
    tolerance = {"float16": 2e-3, "float32": 2e-5}.get(got.dtype.name, 1e-12)
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def test_every_operator_has_a_result() -> None:
    covered = {name for case, _ in CASES for name in operators_in(evaluate(case)[0])}
    missing = {name for name in OPERATORS if not name.startswith(COMPILER)} - covered
    assert missing - CHECKED_ELSEWHERE == set(), "add a line to RESULTS"


NOT_SYMBOLIC = {
    "squeeze(f(1, 3, 1))": "how many axes are left is not known",
    'topk(f(2, 5), 9, 0, "values", False)': "of a length that is not known, k is taken as it is",
}


def test_symbolic_shapes() -> None:
    """Cases whose lengths are known only when they run give the same."""
    cases = {
        f"case_{index}": evaluate(case, symbolic=True)
        for index, (case, _) in enumerate(CASES)
        if case not in NOT_SYMBOLIC
    }
    machine = relaxvm.VirtualMachine(build(module_of(cases)))
    for name in cases:
        test_result(machine, int(name.removeprefix("case_")))


def test_ranks_alone() -> None:
    """Where only ranks are known, LegalizeOps asks for the dimensions when the program runs."""
    x, y = Var("x", TensorType(None, "float32", ndim=2)), Var("y", TensorType((3,), "float32"))
    module = module_of({"main": (op.nn.softmax(op.add(op.exp(x), y)), [x, y])})
    a, b = np.ones((2, 3), "float32"), np.arange(3, dtype="float32")
    e = np.exp(np.exp(a) + b)
    check(relaxvm.VirtualMachine(build(module))["main"](a, b), e / e.sum(1, keepdims=True))


def test_print(capsys: pytest.CaptureFixture[str]) -> None:
    x = Var("x", TensorType((2,), "int64"))
    machine = machine_of_effects(lambda: (op.print(x, 3, format="{}: {}"), op.print(x, "end")), x)
    machine["main"](np.array([1, 2]))
    assert capsys.readouterr().out == "[1 2]: 3\n[1 2] end\n"


def test_assert_op() -> None:
    x = Var("x", TensorType((), "bool"))
    machine = machine_of_effects(lambda: (op.assert_op(x, [x, 3], format="{} of {}"),), x)
    machine["main"](np.array(True))
    with pytest.raises(AssertionError, match="False of 3"):
        machine["main"](np.array(False))
    machine = machine_of_effects(lambda: (op.assert_op(x),), x)
    with pytest.raises(AssertionError, match="Assertion Failed"):
        machine["main"](np.array(False))


def machine_of_effects(calls: Any, x: Var) -> relaxvm.VirtualMachine:
    builder = BlockBuilder()
    with builder.function("main", [x], pure=False):
        for call in calls():
            builder.emit(call)
        builder.emit_func_output(x)
    return relaxvm.VirtualMachine(build(builder.get()))


def test_a_view_beyond_the_tensor() -> None:
    view = relaxvm.get_func("runtime.TVMTensorCreateView")
    x = np.arange(4, dtype="float32")
    assert view(x, (), None, 0).tolist() == x.tolist()
    with pytest.raises(ValueError, match="expected a view within the 16 bytes"):
        view(x, relaxvm.Shape([4]), None, 4)
    with pytest.raises(ValueError, match="expected a contiguous tensor"):
        view(x[::2], relaxvm.Shape([1]), None, 0)
