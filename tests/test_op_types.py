"""The type rule of every operator: what a call gives, and what is said of a wrong one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from relaxvm.ir import Call, Op, ShapeType, TensorType, Var, infer_type, is_base_of
from relaxvm.op import OPERATORS

from .op_cases import evaluate, lines, operators_in, type_named

TYPES = """
abs(f(n, 3)) | R.Tensor((n, 3), "float32")
abs(i(2)) | R.Tensor((2,), "int64")
acos(f(n)) | R.Tensor((n,), "float32")
acosh(f(n)) | R.Tensor((n,), "float32")
asin(f(n)) | R.Tensor((n,), "float32")
asinh(f(n)) | R.Tensor((n,), "float32")
atan(f(n)) | R.Tensor((n,), "float32")
atanh(f(n)) | R.Tensor((n,), "float32")
bitwise_not(i(n)) | R.Tensor((n,), "int64")
bitwise_not(b(n)) | R.Tensor((n,), "bool")
ceil(f(n)) | R.Tensor((n,), "float32")
cos(f(n)) | R.Tensor((n,), "float32")
cosh(f(n)) | R.Tensor((n,), "float32")
erf(f(n)) | R.Tensor((n,), "float32")
exp(f(n)) | R.Tensor((n,), "float32")
exp(h()) | R.Tensor((), "float16")
exp(rank(2)) | R.Tensor(dtype="float32", ndim=2)
exp(tensor(None)) | R.Tensor()
exp(t(n)) | R.Tensor((n,))
exp(on(here, n)) | R.Tensor((n,), "float32", vdevice=here)
floor(j(n)) | R.Tensor((n,), "int32")
log(f(n)) | R.Tensor((n,), "float32")
negative(i(n)) | R.Tensor((n,), "int64")
round(f(n)) | R.Tensor((n,), "float32")
rsqrt(f(n)) | R.Tensor((n,), "float32")
sigmoid(f(n)) | R.Tensor((n,), "float32")
sign(i(n)) | R.Tensor((n,), "int64")
sin(f(n)) | R.Tensor((n,), "float32")
sinh(f(n)) | R.Tensor((n,), "float32")
sqrt(d(n)) | R.Tensor((n,), "float64")
square(i(n)) | R.Tensor((n,), "int64")
tan(f(n)) | R.Tensor((n,), "float32")
tanh(f(n)) | R.Tensor((n,), "float32")
trunc(f(n)) | R.Tensor((n,), "float32")
isfinite(f(n)) | R.Tensor((n,), "bool")
isinf(f(n)) | R.Tensor((n,), "bool")
isnan(f(n)) | R.Tensor((n,), "bool")
logical_not(i(n)) | R.Tensor((n,), "bool")
nn.relu(f(n)) | R.Tensor((n,), "float32")
nn.relu6(f(n)) | R.Tensor((n,), "float32")
nn.gelu(f(n)) | R.Tensor((n,), "float32")
nn.gelu_tanh(f(n)) | R.Tensor((n,), "float32")
nn.silu(f(n)) | R.Tensor((n,), "float32")
-f(n) | R.Tensor((n,), "float32")
~b(n) | R.Tensor((n,), "bool")

add(f(n, 3), f(n, 3)) | R.Tensor((n, 3), "float32")
add(f(n, 3), f(3)) | R.Tensor((n, 3), "float32")
add(f(3), f(n, 3)) | R.Tensor((n, 3), "float32")
add(f(n, 1), f(1, m)) | R.Tensor((n, m), "float32")
add(f(n, m), f()) | R.Tensor((n, m), "float32")
add(f(2 * n), f(n + n)) | R.Tensor((2 * n,), "float32")
# Whatever n is, the result has 3: n is 1 or 3.
add(f(n, 4), f(3, 4)) | R.Tensor((3, 4), "float32")
add(f(n), f(m)) | R.Tensor(dtype="float32", ndim=1)
add(f(n, 3), rank(2)) | R.Tensor(dtype="float32", ndim=2)
add(rank(1), rank(3)) | R.Tensor(dtype="float32", ndim=3)
add(f(n, 3), tensor()) | R.Tensor(dtype="float32")
add(f(n), t(n)) | R.Tensor((n,))
add(f(0), f(1)) | R.Tensor((0,), "float32")
add(b(n), b(n)) | R.Tensor((n,), "bool")
add(f(n), 1) | R.Tensor((n,), "float32")
add(2, h(n)) | R.Tensor((n,), "float16")
add(i(n), m) | R.Tensor((n,), "int64")
add(f(n), const(1.0)) | R.Tensor((n,), "float32")
add(on(here, n), f(n)) | R.Tensor((n,), "float32", vdevice=here)
f(n) + f(n) | R.Tensor((n,), "float32")
1.0 - f(n) | R.Tensor((n,), "float32")
f(n) < 1 | R.Tensor((n,), "bool")
i(n) % 3 | R.Tensor((n,), "int64")
f(n).astype("int8") | R.Tensor((n,), "int8")
atan2(f(n), f(n)) | R.Tensor((n,), "float32")
divide(i(n), i(n)) | R.Tensor((n,), "int64")
floor_divide(i(n), 2) | R.Tensor((n,), "int64")
floor_mod(i(n), 2) | R.Tensor((n,), "int64")
log_add_exp(f(n), f(n)) | R.Tensor((n,), "float32")
maximum(f(n, 1), f(3)) | R.Tensor((n, 3), "float32")
minimum(b(n), b(n)) | R.Tensor((n,), "bool")
mod(f(n), f(n)) | R.Tensor((n,), "float32")
multiply(f(n), f(n)) | R.Tensor((n,), "float32")
power(f(n), 2.0) | R.Tensor((n,), "float32")
subtract(i(n), i(n)) | R.Tensor((n,), "int64")
bitwise_and(b(n), b(n)) | R.Tensor((n,), "bool")
bitwise_or(i(n), 1) | R.Tensor((n,), "int64")
bitwise_xor(u8(n), u8(n)) | R.Tensor((n,), "uint8")
left_shift(i(n), 1) | R.Tensor((n,), "int64")
right_shift(i(n), i(n)) | R.Tensor((n,), "int64")
equal(f(n), f(n)) | R.Tensor((n,), "bool")
equal(f(n), t(n)) | R.Tensor((n,), "bool")
greater(f(n), f(n)) | R.Tensor((n,), "bool")
greater_equal(f(n), f(n)) | R.Tensor((n,), "bool")
less(f(n), 0) | R.Tensor((n,), "bool")
less_equal(f(n), f(n)) | R.Tensor((n,), "bool")
not_equal(b(n), b(n)) | R.Tensor((n,), "bool")
logical_and(b(n), b(n)) | R.Tensor((n,), "bool")
logical_or(b(n), b(n)) | R.Tensor((n,), "bool")
logical_xor(b(n), b(n)) | R.Tensor((n,), "bool")
where(b(n, 1), f(3), f()) | R.Tensor((n, 3), "float32")
where(b(n), h(n), 0.0) | R.Tensor((n,), "float16")
clip(f(n), 0, 1) | R.Tensor((n,), "float32")
clip(i(n), n, m) | R.Tensor((n,), "int64")
astype(f(n), "int32") | R.Tensor((n,), "int32")
astype(tensor(), "int32") | R.Tensor(dtype="int32")
wrap_param(f(3), "float16") | R.Tensor((3,), "float16")

full((2, n), 1.0) | R.Tensor((2, n), "float32")
full((2, n), const(1, "int8")) | R.Tensor((2, n), "int8")
full((2, n), const(1.0), "float16") | R.Tensor((2, n), "float16")
full(shape_var(2), n, "int32") | R.Tensor(a, "int32")
full_like(f(n), 0) | R.Tensor((n,), "float32")
full_like(f(n), 0, "int8") | R.Tensor((n,), "int8")
ones((n,), "float32") | R.Tensor((n,), "float32")
ones_like(f(n)) | R.Tensor((n,), "float32")
zeros(shape(n, 2), "int8") | R.Tensor((n, 2), "int8")
zeros_like(rank(2), "bool") | R.Tensor(dtype="bool", ndim=2)
arange(10) | R.Tensor((10,), "int64")
arange(1, 10, 2) | R.Tensor((5,), "int64")
arange(10, 0, -3) | R.Tensor((4,), "int64")
arange(3, 0) | R.Tensor((0,), "int64")
arange(0.0, 1.0, 0.25) | R.Tensor((4,), "float32")
arange(n) | R.Tensor((n,), "int64")
arange(1, n, 3) | R.Tensor(((n + 1) // 3,), "int64")
arange(n, 0, -1, "int32") | R.Tensor((n,), "int32")

matmul(f(3, 4), f(4, 5)) | R.Tensor((3, 5), "float32")
matmul(f(n, m), f(m, 5)) | R.Tensor((n, 5), "float32")
# The reduced dimensions are checked when the program runs.
matmul(f(n, m), f(4, 5)) | R.Tensor((n, 5), "float32")
matmul(f(4), f(4, 5)) | R.Tensor((5,), "float32")
matmul(f(n, 4), f(4)) | R.Tensor((n,), "float32")
matmul(f(4), f(4)) | R.Tensor((), "float32")
matmul(f(2, 1, 3, 4), f(n, 4, 5)) | R.Tensor((2, n, 3, 5), "float32")
matmul(f(n, 3, 4), f(m, 4, 5)) | R.Tensor(dtype="float32", ndim=3)
matmul(h(3, 4), h(4, 5), "float32") | R.Tensor((3, 5), "float32")
matmul(rank(2), f(4)) | R.Tensor(dtype="float32", ndim=1)
matmul(tensor(), f(4, 5)) | R.Tensor(dtype="float32")
linear(f(n, 4), f(5, 4)) | R.Tensor((n, 5), "float32")
linear(f(n, 4), f(5, 4), f(5)) | R.Tensor((n, 5), "float32")
einsum((f(n, 4), f(4, m)), "ij,jk->ik") | R.Tensor((n, m), "float32")
einsum((f(n, 4), f(4, m)), "ij,jk") | R.Tensor((n, m), "float32")
einsum([f(n, n)], "ii") | R.Tensor((), "float32")
einsum((f(n, 3, 4), f(n, 4, 5)), "...ij, ...jk -> ...ik") | R.Tensor((n, 3, 5), "float32")
einsum((rank(2), f(3)), "ij,j->i") | R.Tensor(dtype="float32", ndim=1)

reshape(f(3, 4), (2, -1)) | R.Tensor((2, 6), "float32")
reshape(f(n, m), -1) | R.Tensor((n * m,), "float32")
reshape(f(n, m), (m, -1)) | R.Tensor((m, n), "float32")
reshape(f(n, 4), (0, 2, -1)) | R.Tensor((n, 2, 2), "float32")
reshape(f(n, m), shape_var(2)) | R.Tensor(b, "float32")
reshape(tensor(), (n, 2)) | R.Tensor((n, 2), "float32")
expand_dims(f(n, m), 0) | R.Tensor((1, n, m), "float32")
expand_dims(f(n, m), [0, -1]) | R.Tensor((1, n, m, 1), "float32")
expand_dims(rank(2), 0) | R.Tensor(dtype="float32", ndim=3)
expand_dims(tensor(), 0) | R.Tensor(dtype="float32")
squeeze(f(1, 3, 1)) | R.Tensor((3,), "float32")
squeeze(f(1, n, 1), [0, -1]) | R.Tensor((n,), "float32")
squeeze(f(1, 3), 1) | R.Tensor((1, 3), "float32")
squeeze(f(1, n)) | R.Tensor(dtype="float32")
squeeze(rank(3), 0) | R.Tensor(dtype="float32", ndim=2)
flatten(f(n, 4)) | R.Tensor((n * 4,), "float32")
flatten(f()) | R.Tensor((1,), "float32")
flatten(tensor()) | R.Tensor(dtype="float32", ndim=1)
permute_dims(f(n, m, 2)) | R.Tensor((2, m, n), "float32")
permute_dims(f(n, m), [-1, 0]) | R.Tensor((m, n), "float32")
permute_dims(tensor(), [1, 0]) | R.Tensor(dtype="float32", ndim=2)
flip(f(n, m), -1) | R.Tensor((n, m), "float32")
concat([f(3, 4), f(n, 4)]) | R.Tensor((n + 3, 4), "float32")
concat([f(n, 3), f(n, m)], -1) | R.Tensor((n, m + 3), "float32")
concat((f(3), f(4)), None) | R.Tensor((7,), "float32")
concat(pair(f(n, 2), f(m, 2)), 0) | R.Tensor((n + m, 2), "float32")
concat([f(n, 2), f(m, 3)], 1) | R.Tensor(dtype="float32", ndim=2)
concat([f(n, 2), rank(2)], 1) | R.Tensor(dtype="float32", ndim=2)
stack([f(n, 2), f(n, 2)]) | R.Tensor((2, n, 2), "float32")
stack([f(n, 2), f(n, 2)], -1) | R.Tensor((n, 2, 2), "float32")
stack([f(n), rank(1)]) | R.Tensor(dtype="float32", ndim=2)
split(f(3, 4), 2, 1) | R.Tuple(R.Tensor((3, 2), "float32"), R.Tensor((3, 2), "float32"))
split(f(7), 3) | R.Tuple(R.Tensor((3,), "float32"), R.Tensor((3,), "float32"),
    R.Tensor((1,), "float32"))
split(f(n, 4), [1, 3], 1) | R.Tuple(R.Tensor((n, 1), "float32"), R.Tensor((n, 2), "float32"),
    R.Tensor((n, 1), "float32"))
split(f(n), 1) | R.Tensor((n,), "float32")
split(f(2 * n), 2) | R.Tuple(R.Tensor((n,), "float32"), R.Tensor((n,), "float32"))
split(f(n), 2) | R.Tuple(R.Tensor(((n + 1) // 2,), "float32"),
    R.Tensor((n - (n + 1) // 2,), "float32"))
split(rank(2), [2]) | R.Tuple(R.Tensor(dtype="float32", ndim=2), R.Tensor(dtype="float32", ndim=2))
broadcast_to(f(n, 1), (2, n, m)) | R.Tensor((2, n, m), "float32")
broadcast_to(f(3), shape_var(2)) | R.Tensor(b, "float32")
repeat(f(n, m), 2, 0) | R.Tensor((n * 2, m), "float32")
repeat(f(n, m), 2) | R.Tensor((n * m * 2,), "float32")
repeat(tensor(), 2) | R.Tensor(dtype="float32", ndim=1)
tile(f(n, m), 2) | R.Tensor((n, m * 2), "float32")
tile(f(n, m), (2, 3, 1)) | R.Tensor((2, n * 3, m), "float32")
tile(rank(2), (2,)) | R.Tensor(dtype="float32", ndim=2)

take(f(n, m), i(5), 0) | R.Tensor((5, m), "float32")
take(f(n, m), j(k, 2), -1) | R.Tensor((n, k, 2), "float32")
take(f(n), i(5, 2)) | R.Tensor((5, 2), "float32")
take(f(n, m), i(), 0, "wrap") | R.Tensor((m,), "float32")
take(f(n, m), k, 0) | R.Tensor((m,), "float32")
take(rank(2), i(5), 0) | R.Tensor(dtype="float32", ndim=2)
take(tensor(), i(5), 0) | R.Tensor(dtype="float32")
strided_slice(f(3, 4), [0, 1], [0, 1], [3, 4], [1, 2]) | R.Tensor((3, 2), "float32")
strided_slice(f(3, 4), [1], [-1], [-100], [-1]) | R.Tensor((3, 4), "float32")
strided_slice(f(3, 4), [-1], [0], [100]) | R.Tensor((3, 4), "float32")
strided_slice(f(n, m), [0], [1], [n]) | R.Tensor((T.max(n - 1, 0), m), "float32")
strided_slice(f(n), [0], [0], [m], assume_inbound=True) | R.Tensor((m,), "float32")
strided_slice(f(n), [0], [0], [n], [2], True) | R.Tensor(((n + 1) // 2,), "float32")
strided_slice(rank(2), [0], [0], [1]) | R.Tensor(dtype="float32", ndim=2)

max(f(n, m), 1, True) | R.Tensor((n, 1), "float32")
mean(f(n, m), -1) | R.Tensor((n,), "float32")
min(b(n, m), 1) | R.Tensor((n,), "bool")
prod(i(n), 0) | R.Tensor((), "int64")
sum(f(n, m)) | R.Tensor((), "float32")
sum(f(n, m), [0, -1], True) | R.Tensor((1, 1), "float32")
sum(f(n, m), []) | R.Tensor((n, m), "float32")
sum(rank(2), 1) | R.Tensor(dtype="float32", ndim=1)
sum(rank(2), keepdims=True) | R.Tensor((1, 1), "float32")
sum(tensor(), 1) | R.Tensor(dtype="float32")
sum(tensor()) | R.Tensor((), "float32")
argmax(f(n, m)) | R.Tensor((), "int64")
argmax(f(n, m), 1, True) | R.Tensor((n, 1), "int64")
argmin(rank(2), 1) | R.Tensor(dtype="int64", ndim=1)
cumsum(f(n, m)) | R.Tensor((n * m,), "float32")
cumsum(f(n, m), 1, "float64", True) | R.Tensor((n, m), "float64")
cumsum(b(n), 0, "int32") | R.Tensor((n,), "int32")
cumprod(rank(2)) | R.Tensor(dtype="float32", ndim=1)
sort(f(n, m), 0, True) | R.Tensor((n, m), "float32")
argsort(f(n, m)) | R.Tensor((n, m), "int32")
argsort(f(n, m), dtype="int64") | R.Tensor((n, m), "int64")
topk(f(n, 5), 2) | R.Tuple(R.Tensor((n, 2), "float32"), R.Tensor((n, 2), "int32"))
topk(f(n, 5), 7, ret_type="values") | R.Tensor((n, 5), "float32")
topk(f(n, 5), 2, 0, "indices", False, "int64") | R.Tensor((2, 5), "int64")
topk(f(n, 5), 0, 0, "values") | R.Tensor((n, 5), "float32")
topk(rank(2), 2, ret_type="values") | R.Tensor(dtype="float32", ndim=2)

nn.softmax(f(n, m)) | R.Tensor((n, m), "float32")
nn.log_softmax(tensor(), 0) | R.Tensor(dtype="float32")
nn.dropout(f(n), 0.1) | R.Tuple(R.Tensor((n,), "float32"), R.Tensor((n,), "float32"))
nn.layer_norm(f(n, 4), f(4), f(4), -1) | R.Tensor((n, 4), "float32")
nn.layer_norm(f(n, m), f(n, m), f(n, m), [0, 1]) | R.Tensor((n, m), "float32")
nn.layer_norm(f(n, m), f(4), f(4), [-1]) | R.Tensor(dtype="float32", ndim=2)
nn.rms_norm(f(n, m), f(m)) | R.Tensor((n, m), "float32")
nn.batch_norm(f(n, 3, 8), f(3), f(3), f(3), f(3), 1) |
    R.Tuple(R.Tensor((n, 3, 8), "float32"), R.Tensor((3,), "float32"), R.Tensor((3,), "float32"))
nn.pad(f(n, m), (1, 2, 0, 3)) | R.Tensor((n + 3, m + 3), "float32")
nn.pad(tensor(), (1, 1), "reflect") | R.Tensor(dtype="float32", ndim=1)
nn.cross_entropy_with_logits(f(n, 3), f(n, 3)) | R.Tensor((), "float32")
nn.conv1d(f(2, 3, 10), f(5, 3, 4)) | R.Tensor((2, 5, 7), "float32")
nn.conv1d(f(n, 3, m), f(5, 3, 4), 2, 1, 2) | R.Tensor((n, 5, (m - 5) // 2 + 1), "float32")
nn.conv2d(f(n, 3, m, 9), f(5, 3, 3, 3), (2, 1), (1, 2), (1, 2)) |
    R.Tensor((n, 5, (m + 1) // 2, 9), "float32")
nn.conv2d(f(1, 3, m, k), f(5, 3, 3, 3), padding=(1, 2, 3, 4)) |
    R.Tensor((1, 5, m + 2, k + 4), "float32")
nn.conv2d(f(1, 6, 8, 8), f(9, 2, 3, 3), groups=3) | R.Tensor((1, 9, 6, 6), "float32")
nn.conv2d(f(2, 8, 9, 3), f(3, 3, 3, 5), data_layout="NHWC", kernel_layout="HWIO") |
    R.Tensor((2, 6, 7, 5), "float32")
nn.conv2d(h(1, 3, 8, 8), h(5, 3, 3, 3), out_layout="NHWC", out_dtype="float32") |
    R.Tensor((1, 6, 6, 5), "float32")
nn.conv2d(rank(4), f(5, 3, 3, 3)) | R.Tensor(dtype="float32", ndim=4)
nn.max_pool2d(f(n, 3, 8, 9), (2, 3), 2, 1) | R.Tensor((n, 3, 5, 5), "float32")
nn.max_pool2d(f(1, 3, m, 9), 3, 2, 1, ceil_mode=True) |
    R.Tensor((1, 3, m // 2 + 1, 5), "float32")
# A window that would begin in the padding behind is none.
nn.max_pool2d(f(1, 1, 4, 4), 2, 3, 1, ceil_mode=True) | R.Tensor((1, 1, 2, 2), "float32")
nn.avg_pool2d(f(2, 8, 9, 3), 2, 2, layout="NHWC") | R.Tensor((2, 4, 4, 3), "float32")
nn.attention(f(n, 5, 4, 8), f(n, m, 4, 8), f(n, m, 4, 7)) | R.Tensor((n, 5, 4, 7), "float32")
nn.attention(f(n, 5, 4, 8), f(n, m, 4, 8), f(n, m, 4, 8), f(n, 1, 5, m)) |
    R.Tensor((n, 5, 4, 8), "float32")
nn.attention_bias(rank(4), f(2, 6, 4, 8), f(2, 6, 4, 8), f(1, 1, 1, 6), 0.5, "TopLeft") |
    R.Tensor(dtype="float32", ndim=4)

call_tir(func(), f(n), T((n,), "float32")) | R.Tensor((n,), "float32")
call_tir(func(), (f(n), 1), [T((n,), "int8"), T((2,), "int8")], shape(n)) |
    R.Tuple(R.Tensor((n,), "int8"), R.Tensor((2,), "int8"))
call_tir_inplace(func(), (f(n), f(2)), [0, -1], [T((n,), "float32"), T((3,), "float32")]) |
    R.Tuple(R.Tensor((n,), "float32"), R.Tensor((3,), "float32"))
call_dps_packed("packed", (f(n), "text"), T((n,), "int8")) | R.Tensor((n,), "int8")
call_packed("packed", f(n), 1, ty_args=T((n,), "int8")) | R.Tensor((n,), "int8")
call_packed(packed) | R.Any
call_pure_packed("packed", f(n), ty_args=T((n,), "int8")) | R.Tensor((n,), "int8")
call_pure_packed(packed, ty_args=[T((n,), "int8"), T((n,), "int8")]) |
    R.Tuple(R.Tensor((n,), "int8"), R.Tensor((n,), "int8"))
call_inplace_packed("packed", f(n), inplace_indices=0, ty_args=T((n,), "float32")) |
    R.Tensor((n,), "float32")
call_builtin_with_ctx("packed", (1,), ty_args=T((1,), "int64")) | R.Tensor((1,), "int64")
call_builtin_with_ctx("packed", ()) | R.Any
call_py_func("name", (f(n),), T((n,), "int8")) | R.Tensor((n,), "int8")
make_closure(func(), (f(n),)) | R.Any
invoke_closure(any(), (f(n),), T((n,), "int8")) | R.Tensor((n,), "int8")
invoke_pure_closure(any(), (), T((n,), "int8")) | R.Tensor((n,), "int8")
null_value() | R.Any
shape_of(f(n, 3)) | R.Shape([n, 3])
shape_of(rank(2)) | R.Shape(ndim=2)
size(f(n, 3)) | R.Tensor((), "int64")
tensor_to_shape(i(3)) | R.Shape(ndim=3)
tensor_to_shape(i(n)) | R.Shape()
shape_to_tensor(shape(n, 3)) | R.Tensor((2,), "int64")
shape_to_tensor(shape_var(-1)) | R.Tensor(dtype="int64", ndim=1)
print(f(n), format="{}") | R.Tuple()
assert_op(b(), f(n), format="{}") | R.Tuple()
assert_op(n > 3) | R.Tuple()
to_vdevice(f(n), there) | R.Tensor((n,), "float32", vdevice=there)
hint_on_device(f(n), "cuda:1") | R.Tensor((n,), "float32")
builtin.alloc_tensor((n, 2), "float32", 0) | R.Tensor((n, 2), "float32")
builtin.stop_lift_params(f(n)) | R.Tensor((n,), "float32")
memory.alloc_storage([n * 4], 0, "global", "float32") | R.Any
memory.alloc_tensor(any(), 0, [n], "float32") | R.Tensor((n,), "float32")
memory.kill_storage(any()) | R.Tuple()
memory.kill_tensor(f(n)) | R.Tuple()
memory.ensure_zero_offset(f(n)) | R.Tensor((n,), "float32")
memory.view(f(3), [1, 3]) | R.Tensor((1, 3), "float32")
memory.view(f(n), dtype="int32") | R.Tensor((n,), "int32")
memory.view(f(3), [2], relative_byte_offset=4) | R.Tensor((2,), "float32")
vm.alloc_storage([12], 0, "uint8") | R.Any
vm.alloc_tensor(any(), 0, [n], "float32") | R.Tensor((n,), "float32")
vm.alloc_tensor(any(), 0, shape_var(2), "float32") | R.Tensor(dtype="float32", ndim=2)
vm.kill_object(any()) | R.Tuple()
vm.call_tir_dyn(func(), (f(n), shape(n))) | R.Tuple()
"""

ERRORS = r"""
exp(i(3)) | TypeError: relax.exp: x: expected floats, got R.Tensor((3,)
exp(shape(3)) | TypeError: relax.exp: x: expected a tensor, got R.shape([3]) of type R.Shape([3])
exp(any()) | TypeError: relax.exp: x: expected a tensor, got a of type R.Any; R.match_cast narrows
exp(3) | TypeError: relax.exp: x: expected an expression, got int 3
exp() | TypeError: relax.exp: argument 'x' is missing
exp(f(3), f(3)) | TypeError: relax.exp: expected at most 1 arguments, got 2
exp(y=f(3)) | TypeError: relax.exp: argument 'x' is missing
negative(b(3)) | TypeError: relax.negative: x: expected numbers, got R.Tensor((3,)
bitwise_not(f(3)) | TypeError: relax.bitwise_not: x: expected integers or bools, got R.Tensor((3,)
add(f(n, 3), f(n, 4)) | ValueError: relax.add: shapes (n, 3) and (n, 4) do not broadcast:
    dimension 1 is 3 and 4
add(f(3), i(3)) | TypeError: relax.add: expected operands of one data type, got x1 float32,
    x2 int64; R.astype converts
add(f(3), n) | TypeError: relax.add: expected operands of one data type, got x1 float32, x2 int64
add(i(3), 1.5) | TypeError: relax.add: expected operands of one data type, got x1 int64, x2 float32
add(u8(3), 300) | ValueError: relax.add: expected a number within uint8, got 300
add(1, 2) | TypeError: relax.add: expected a tensor among the operands
add(n, m) | TypeError: relax.add: expected a tensor among x1, x2, got scalars only
add(on(here, 3), on(there, 3)) | ValueError: relax.add: expected operands on one device, got x1, x2
    on llvm:0:global and llvm:1:global; R.to_vdevice copies
add(f(3), f(3), x2=f(3)) | TypeError: relax.add: argument 'x2' is given twice
subtract(b(3), b(3)) | TypeError: relax.subtract: x1: expected numbers
left_shift(b(3), b(3)) | TypeError: relax.left_shift: x1: expected integers
where(i(3), f(3), f(3)) | TypeError: relax.where: condition: expected bools
clip(f(3), f(3), 1) | TypeError: relax.clip: min: expected a scalar, got b of type
astype(f(3), "float33") | TypeError: relax.astype: dtype: expected a data type, got str 'float33'
full((2,), f(3)) | ValueError: relax.full: fill_value: expected a scalar or a tensor of rank 0
full(f(3), 1.0) | TypeError: relax.full: shape: expected a shape, got a of type
zeros(("x",), "int8") | TypeError: relax.zeros: shape[0]: expected an integer, got str 'x'
zeros(1.5, "int8") | TypeError: relax.zeros: shape: expected a shape, got float 1.5
arange(0, 4, 0) | ValueError: relax.arange: step: expected a number other than 0, got 0
matmul(f(n, 3), f(4, 5)) | ValueError: relax.matmul: shapes (n, 3) and (4, 5) do not multiply: the
    last dimension of x1 is 3, that of x2 before its last is 4
matmul(f(), f(4, 5)) | ValueError: relax.matmul: x1: expected a tensor of rank 1 or more
matmul(f(2, 3, 4), f(3, 4, 5)) | ValueError: relax.matmul: shapes (2,) and (3,) do not broadcast
einsum((f(3), f(4)), "i,i->") | ValueError: relax.einsum: subscripts: 'i' of 'i,i->' is 3 and 4
einsum((f(3),), "i,i->") | ValueError: relax.einsum: subscripts: 'i,i->' is for 2 operands, got 1
einsum((f(3),), "ij->i") | ValueError: relax.einsum: operands[0]: 'ij' does not fit
einsum((f(3),), "i->j") | ValueError: relax.einsum: subscripts: expected each letter of the result
einsum((f(3),), "1->1") | ValueError: relax.einsum: subscripts: expected letters and '...'
reshape(f(3, 4), (5, 2)) | ValueError: relax.reshape: shape: a tensor of shape (3, 4) has 12
    elements, one of shape (5, 2) has 10
reshape(f(3, 4), (5, -1)) | ValueError: relax.reshape: shape: a tensor of shape (3, 4) cannot be
    made of shape (5, -1)
reshape(f(3, 4), (-1, -1)) | ValueError: relax.reshape: shape: expected dimensions, of which one
    may be -1, got (-1, -1)
reshape(tensor(), (2, -1)) | ValueError: relax.reshape: shape: (2, -1) depends on the shape of x,
    which is not known
reshape(f(3), (3, 0)) | ValueError: relax.reshape: shape: 0 at place 1 of (3, 0), but x has 1
    dimensions
expand_dims(f(n, m), [0, 0]) | ValueError: relax.expand_dims: axis: expected each axis once
expand_dims(f(n, m), 5) | ValueError: relax.expand_dims: axis: expected an axis in -3 to 2, got 5
squeeze(f(1, 1), 2) | ValueError: relax.squeeze: axis: expected an axis in -2 to 1, got 2
permute_dims(f(n, m), [0]) | ValueError: relax.permute_dims: axes: expected 2, as x is R.Tensor
permute_dims(f(n, m), [0, 0]) | ValueError: relax.permute_dims: axes: expected each axis once
flip(f(n, m), 2) | ValueError: relax.flip: axis: expected an axis in -2 to 1, got 2
flip(f(n, m), 1.5) | TypeError: relax.flip: axis: expected an int, got float 1.5
flip(f(), 0) | ValueError: relax.flip: axis: expected an axis in none, as the rank is 0, got 0
concat([], 0) | ValueError: relax.concat: tensors: expected one or more, got none
concat([f(2, 3), f(3)], 0) | ValueError: relax.concat: tensors: expected tensors of one rank, got
    ranks 2, 1
concat([f(2, 3), f(2, 4)], 0) | ValueError: relax.concat: dimension 1 differs: it is 3 in
    tensors[0] and 4 in tensors[1]
concat([f(2), i(2)], 0) | TypeError: relax.concat: expected operands of one data type, got
    tensors[0] float32, tensors[1] int64
concat([f(2), 1], 0) | TypeError: relax.concat: tensors[1]: expected an expression, got int 1
concat([f(2, 2)], None) | ValueError: relax.concat: axis: None is for tensors of rank 1
stack([f(2, 3), f(2, 4)]) | ValueError: relax.stack: dimension 1 differs: it is 3 in tensors[0]
split(f(4), 0) | ValueError: relax.split: indices_or_sections: expected one part or more, got 0
split(f(4), [3, 1]) | ValueError: relax.split: indices_or_sections: expected indices in increasing
    order, got [3, 1]
split(f(4), [n]) | TypeError: relax.split: indices_or_sections[0]: expected an int, got n of type
broadcast_to(f(3, 4), (5, 4)) | ValueError: relax.broadcast_to: shape: (3, 4) does not broadcast to
    (5, 4): dimension 0 is 3 and shall be 5
broadcast_to(f(3, 4), (4,)) | ValueError: relax.broadcast_to: shape: expected 2 dimensions or more
repeat(f(3), -1) | ValueError: relax.repeat: repeats: expected 0 or more, got -1
tile(f(3), (1, -1)) | ValueError: relax.tile: repeats: expected 0 or more each, got [1, -1]
take(f(n, m), i(5)) | ValueError: relax.take: axis: it may be left out for tensors of rank 1 only
take(f(n), f(5)) | TypeError: relax.take: indices: expected integers
take(f(n), i(5), 0, "foo") | ValueError: relax.take: mode: expected 'fast' or 'wrap' or 'clip' or
    'nan', got str 'foo'
strided_slice(f(3), [0], [0], [1, 2]) | ValueError: relax.strided_slice: end: expected 1, one for
    each of axes, got 2
strided_slice(f(3), [1], [0], [1]) | ValueError: relax.strided_slice: axes: expected an axis in
strided_slice(f(3), [0], [0], [1], [0]) | ValueError: relax.strided_slice: strides: expected numbers
    other than 0, got [0]
strided_slice(f(3), [0], [0], [1], [n]) | TypeError: relax.strided_slice: strides: expected known
    integers, got n
strided_slice(f(3), [0], [1.5], [2]) | TypeError: relax.strided_slice: begin[0]: expected an
    integer, got T.float64(1.5)
sum(b(3)) | TypeError: relax.sum: x: expected numbers, got R.Tensor((3,)
sum(f(3), [0, 0]) | ValueError: relax.sum: axis: expected each axis once, got [0, 0]
mean(i(3)) | TypeError: relax.mean: x: expected floats
argmax(f(3), 1) | ValueError: relax.argmax: axis: expected an axis in -1 to 0, got 1
argmax(f(3), [0]) | TypeError: relax.argmax: axis: expected an int, got
cumsum(b(3)) | TypeError: relax.cumsum: data: expected numbers
sort(f(3), 1) | ValueError: relax.sort: axis: expected an axis in -1 to 0, got 1
sort(f(3), descending="yes") | TypeError: relax.sort: descending: expected a bool, got str 'yes'
topk(f(3), 1, ret_type="all") | ValueError: relax.topk: ret_type: expected 'both' or 'values' or
    'indices', got str 'all'
nn.softmax(f(3), 1) | ValueError: relax.nn.softmax: axis: expected an axis in -1 to 0, got 1
nn.softmax(i(3)) | TypeError: relax.nn.softmax: data: expected floats
nn.dropout(f(3), 1.5) | ValueError: relax.nn.dropout: rate: expected 0 to 1, got 1.5
nn.layer_norm(f(3, 4), f(4), f(5), -1) | ValueError: relax.nn.layer_norm: beta: expected the shape
    (4,) that data has in axes [-1], got (5,)
nn.layer_norm(f(3, 4), f(4), f(4), [0, 1]) | ValueError: relax.nn.layer_norm: gamma: expected a
    tensor of rank 2
nn.rms_norm(f(3, 4), h(4)) | TypeError: relax.nn.rms_norm: expected operands of one data type
nn.batch_norm(f(2, 3), f(3), f(3), f(3), f(4), 1) | ValueError: relax.nn.batch_norm: moving_var:
    expected the shape (3,)
nn.pad(f(3, 4), (1, 1)) | ValueError: relax.nn.pad: pad_width: expected 4 numbers, got 2
nn.pad(f(3), (1, 1), "foo") | ValueError: relax.nn.pad: pad_mode: expected 'constant' or
nn.cross_entropy_with_logits(f(3), f(4)) | ValueError: relax.nn.cross_entropy_with_logits: expected
    predictions and labels of one shape, got (3,) and (4,)
nn.conv2d(f(2, 3, 8, 9), f(5, 4, 3, 3)) | ValueError: relax.nn.conv2d: data has 3 channels, weight
    takes 4 in each of 1 groups
nn.conv2d(f(2, 3, 8, 9), f(5, 3, 20, 3)) | ValueError: relax.nn.conv2d: no window fits along H
nn.conv2d(f(2, 3, 8), f(5, 3, 3, 3)) | ValueError: relax.nn.conv2d: data: expected a tensor of
    layout 'NCHW'
nn.conv2d(f(2, 3, 8, 9), f(5, 3, 3, 3), data_layout="NCH") | ValueError: relax.nn.conv2d:
    data_layout: expected an order of the letters of 'NCHW', got 'NCH'
nn.conv2d(f(2, 3, 8, 9), f(5, 3, 3, 3), (1, 2, 3)) | ValueError: relax.nn.conv2d: strides: expected
    one number or 2, got [1, 2, 3]
nn.conv2d(f(2, 3, 8, 9), f(5, 3, 3, 3), 1, (1, 2, 3)) | ValueError: relax.nn.conv2d: padding:
    expected 1, 2 or 4 numbers, got [1, 2, 3]
nn.conv2d(f(2, 3, 8, 9), f(5, 3, 3, 3), groups=0) | ValueError: relax.nn.conv2d: groups: expected 1
    or more each, got [0]
nn.conv1d(f(2, 4, 8), f(3, 2, 3), groups=2) | ValueError: relax.nn.conv1d: groups: expected a
    divisor of weight's 3 channels, got 2
nn.max_pool2d(f(8, 9, 3), 2) | ValueError: relax.nn.max_pool2d: data: expected a tensor of layout
nn.avg_pool2d(f(1, 1, 2, 2), 3) | ValueError: relax.nn.avg_pool2d: no window fits along H: it is 3
    long, the padded data 2
nn.attention(f(2, 5, 4, 8), f(2, 6, 4, 8), f(2, 7, 4, 8)) | ValueError: relax.nn.attention: the
    length (dimension 1) differs: it is 6 in key and 7 in value
nn.attention(f(2, 5, 4), f(2, 6, 4, 8), f(2, 6, 4, 8)) | ValueError: relax.nn.attention: query:
    expected a tensor of rank 4
nn.attention(f(2, 5, 4, 8), f(2, 6, 4, 8), f(2, 6, 4, 8), f(2, 4, 5, 7)) | ValueError:
    relax.nn.attention_bias: the length of key differs: it is 6 in key and 7 in bias
nn.attention(f(2, 5, 4, 8), f(2, 6, 4, 8), f(2, 6, 4, 8), causal_mask="foo") | ValueError:
    relax.nn.attention: causal_mask: expected 'TopLeft' or 'BottomRight', got str 'foo'
call_tir(func(), (f(3),), T(None, "float32", ndim=1)) | ValueError: relax.call_tir: out_ty: expected
    a tensor type with shape and data type
call_tir(func(), (f(3),), shape(3).ty) | TypeError: relax.call_tir: out_ty: expected a tensor type
call_tir_inplace(func(), (f(3),), 1, T((3,), "float32")) | ValueError: relax.call_tir_inplace:
    inplace_indices: expected -1 to 0, got 1
call_tir_inplace(func(), (f(3),), -1, T((3,), "float32")) | ValueError: relax.call_tir_inplace:
    inplace_indices: all are -1
call_tir_inplace(func(), (f(3),), [0, 0], [T((3,), "float32")] * 2) | ValueError:
    relax.call_tir_inplace: inplace_indices: expected each argument once, got [0, 0]
call_tir_inplace(func(), (f(3),), 0, T((4,), "float32")) | ValueError: relax.call_tir_inplace:
    inplace_indices: result 0 is of type R.Tensor((4,)
call_tir_inplace(func(), (f(3),), [0, -1], T((3,), "float32")) | ValueError: relax.call_tir_inplace:
    inplace_indices: expected one for each of 1 results
call_dps_packed(3, (f(3),), T((3,), "float32")) | TypeError: expected a packed function or its name
call_pure_packed("packed", ty_args=None) | TypeError: relax.call_pure_packed: ty_args: expected the
    type of the result, got nothing
shape_of(shape(3)) | TypeError: relax.shape_of: expr: expected a tensor, got R.shape([3])
tensor_to_shape(f(3)) | ValueError: relax.tensor_to_shape: expr: expected signed integers
tensor_to_shape(i(3, 1)) | ValueError: relax.tensor_to_shape: expr: expected a tensor of rank 1
shape_to_tensor(f(3)) | TypeError: relax.shape_to_tensor: expr: expected a shape
assert_op(f(3)) | TypeError: relax.assert_op: condition: expected a bool of rank 0
to_vdevice(f(3), "cpu") | TypeError: relax.to_vdevice: dst_vdevice: expected a VDevice
memory.view(f(3), [4]) | ValueError: relax.memory.view: a view of 16 bytes from byte 0 on reaches
    beyond 12 bytes
memory.view(f(3), [3], relative_byte_offset=4) | ValueError: relax.memory.view: a view of 12 bytes
    from byte 4 on
vm.call_tir_dyn(func(), (f(3),)) | TypeError: relax.vm.call_tir_dyn: args: expected a shape as the
    last
"""


@pytest.mark.parametrize(("case", "expected"), list(lines(TYPES)), ids=lambda text: text)
def test_type(case: str, expected: str) -> None:
    call, made = evaluate(case)
    assert same(call.ty, type_named(expected, made)), call.ty


def same(a: Any, b: Any) -> bool:
    """Whether two types are of the same values."""
    return is_base_of(a, b) and is_base_of(b, a)


@pytest.mark.parametrize(("case", "expected"), list(lines(ERRORS)), ids=lambda text: text)
def test_error(case: str, expected: str) -> None:
    kind, _, message = expected.partition(": ")
    with pytest.raises({"TypeError": TypeError, "ValueError": ValueError}[kind]) as raised:
        evaluate(case)
    assert str(raised.value).startswith(message), str(raised.value)


def test_every_operator_has_a_type_case() -> None:
    covered = {name for case, _ in lines(TYPES) for name in operators_in(evaluate(case)[0])}
    assert set(OPERATORS) - covered == set(), "add a line to TYPES"


def test_a_call_without_type_gets_the_same_one() -> None:
    """What passes rebuild is inferred as what constructors make."""
    for case, expected in lines(TYPES):
        call, made = evaluate(case)
        if isinstance(call, Call) and type(call.op) is Op:
            again = infer_type(Call(call.op, call.args, call.attrs, call.ty_args))
            assert same(again.ty, type_named(expected, made)), case


def test_operands_of_one_shape_variable() -> None:
    shape: Any = Var("s", ShapeType(ndim=2))
    x = Var("x", TensorType(shape, "float32"))
    assert (x + x).ty.shape is shape


def test_a_call_with_too_few_operands() -> None:
    x = Var("x", TensorType((3,), "float32"))
    with pytest.raises(
        TypeError, match=re.escape("relax.add: expected 2 operands (x1, x2), got 1")
    ):
        infer_type(Call(Op.get("relax.add"), [x]))
