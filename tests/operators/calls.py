"""Cases of operators that call functions, allocate memory, return shapes or have effects."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxvm.values import Shape

from .table import cases


def same(x: Any, *others: Any, **attributes: Any) -> Any:
    return x


def viewed(x: Any, shape: Any = None, dtype: Any = None, offset: Any = None) -> Any:
    """Reinterpret the bytes of the tensor."""
    kind = x.dtype if isinstance(dtype, tuple) or dtype is None else np.dtype(dtype)
    content = x.tobytes()[offset if isinstance(offset, int) else 0 :]
    if isinstance(shape, Shape):
        dims = shape
    else:
        dims = x.shape
    count = int(np.prod(dims, dtype=int))
    return np.frombuffer(content, kind, count).reshape(dims)


PASSES = "test_transform_lowering"
INSPECTED = "test_inspect_operators"
DATA = "test_adt_programs"


cases(
    "call_tir",
    """
call_tir(func(), f(n), T((n,), "float32")) | R.Tensor((n,), "float32")
call_tir(func(), (f(n), 1), [T((n,), "int8"), T((2,), "int8")], shape(n)) |
    R.Tuple(R.Tensor((n,), "int8"), R.Tensor((2,), "int8"))
""",
    """
call_tir(func(), (f(3),), T(None, "float32", ndim=1)) | ValueError: relax.call_tir: out_ty: expected
    a tensor type with shape, as it is allocated
call_tir(func(), (f(3),), shape(3).ty) | TypeError: relax.call_tir: out_ty: expected a tensor type
""",
    elsewhere=PASSES,
)
cases(
    "call_tir_inplace",
    """
call_tir_inplace(func(), (f(n), f(2)), [0, -1], [T((n,), "float32"), T((3,), "float32")]) |
    R.Tuple(R.Tensor((n,), "float32"), R.Tensor((3,), "float32"))
""",
    """
call_tir_inplace(func(), (f(3),), 1, T((3,), "float32")) | ValueError: relax.call_tir_inplace:
    inplace_indices: expected -1 to 0, got 1
call_tir_inplace(func(), (f(3),), -1, T((3,), "float32")) | ValueError: relax.call_tir_inplace:
    inplace_indices: all are -1
call_tir_inplace(func(), (f(3),), [0, 0], [T((3,), "float32")] * 2) | ValueError:
    relax.call_tir_inplace: inplace_indices: expected each argument once, got [0, 0]
call_tir_inplace(func(), (f(3),), 0, T((3,), "int8")) | ValueError: relax.call_tir_inplace:
    inplace_indices: result 0 is of type R.Tensor((3,)
call_tir_inplace(func(), (f(3),), [0, -1], T((3,), "float32")) | ValueError: relax.call_tir_inplace:
    inplace_indices: expected one for each of 1 results
""",
    elsewhere=PASSES,
)
cases(
    "call_dps_packed",
    """
call_dps_packed("packed", (f(n), "text"), T((n,), "int8")) | R.Tensor((n,), "int8")
""",
    """
call_dps_packed(3, (f(3),), T((3,), "float32")) | TypeError: expected a packed function or its name
""",
    elsewhere=PASSES,
)
cases(
    "call_pure_packed",
    """
call_pure_packed("packed", f(n), ty_args=T((n,), "int8")) | R.Tensor((n,), "int8")
call_pure_packed(packed, ty_args=[T((n,), "int8"), T((n,), "int8")]) |
    R.Tuple(R.Tensor((n,), "int8"), R.Tensor((n,), "int8"))
""",
    """
call_pure_packed("packed", ty_args=None) | TypeError: relax.call_pure_packed: ty_args: expected the
    type of the result, got nothing
""",
    elsewhere=PASSES,
)
cases(
    "call_inplace_packed",
    """
call_inplace_packed("packed", f(n), inplace_indices=0, ty_args=T((n,), "float32")) |
    R.Tensor((n,), "float32")
""",
    """
call_inplace_packed("packed", f(3), inplace_indices=1, ty_args=T((3,), "float32")) | ValueError:
    relax.call_inplace_packed:
""",
    elsewhere=PASSES,
)
cases(
    "call_builtin_with_ctx",
    """
call_builtin_with_ctx("packed", (1,), ty_args=T((1,), "int64")) | R.Tensor((1,), "int64")
call_builtin_with_ctx("packed", ()) | R.Any
""",
    """
call_builtin_with_ctx(3, ()) | TypeError: expected a packed function or its name
""",
    elsewhere=PASSES,
)
cases(
    "call_py_func",
    """
call_py_func("name", (f(n),), T((n,), "int8")) | R.Tensor((n,), "int8")
""",
    """
call_py_func('x', 'y', 'z') | TypeError: relax.call_py_func: out_ty: expected a tensor type or a
    tuple
""",
    elsewhere=PASSES,
)
cases(
    "make_closure",
    """
make_closure(func(), (f(n),)) | R.Any
""",
    """
make_closure(func()) | TypeError: make_closure() missing 1 required positional argument: 'args'
""",
    elsewhere=PASSES,
)
cases(
    "invoke_closure",
    """
invoke_closure(any(), (f(n),), T((n,), "int8")) | R.Tensor((n,), "int8")
""",
    """
invoke_closure(any(), ()) | TypeError: invoke_closure() missing 1 required positional argument
""",
    elsewhere=PASSES,
)
cases(
    "invoke_pure_closure",
    """
invoke_pure_closure(any(), (), T((n,), "int8")) | R.Tensor((n,), "int8")
""",
    """
invoke_pure_closure(any(), ()) | TypeError: invoke_pure_closure() missing 1 required positional
""",
    elsewhere=PASSES,
)
cases(
    "null_value",
    """
null_value() | R.Any
""",
    """
null_value(3) | TypeError: relax.null_value: expected at most 0 arguments, got 1
""",
    "",
    reference=lambda: None,
    elsewhere=PASSES,
)
cases(
    "call_packed",
    """
call_packed("packed", f(n), 1, ty_args=T((n,), "int8")) | R.Tensor((n,), "int8")
call_packed(packed) | R.Any
""",
    "call_packed(3) | TypeError: expected a packed function or its name",
    elsewhere=PASSES,
)
cases(
    "shape_of",
    """
shape_of(f(n, 3)) | R.Shape([n, 3])
shape_of(rank(2)) | R.Shape(ndim=2)
""",
    """
shape_of(shape(3)) | TypeError: relax.shape_of: expr: expected a tensor, got R.shape([3])
""",
    "",
    reference=lambda expr: Shape(expr.shape),
    elsewhere="shape_to_tensor, whose cases ask for shapes",
)
cases(
    "tensor_to_shape",
    """
tensor_to_shape(i(3)) | R.Shape(ndim=3)
tensor_to_shape(i(n)) | R.Shape()
""",
    """
tensor_to_shape(f(3)) | ValueError: relax.tensor_to_shape: expr: expected signed integers
tensor_to_shape(i(3, 1)) | ValueError: relax.tensor_to_shape: expr: expected a tensor of rank 1
""",
    elsewhere=PASSES,
)
cases(
    "shape_to_tensor",
    """
shape_to_tensor(shape(n, 3)) | R.Tensor((2,), "int64")
shape_to_tensor(shape_var(-1)) | R.Tensor(dtype="int64", ndim=1)
""",
    """
shape_to_tensor(f(3)) | TypeError: relax.shape_to_tensor: expr: expected a shape
""",
    """
shape_to_tensor(shape_of(f(3, 4)))
shape_to_tensor(shape_of(f()))
shape_to_tensor(shape_of(f(2, 0, 3)))
""",
    reference=lambda expr: np.array(expr, object),
)
cases(
    "ref",
    """
ref(f(n, 3)) | R.Ref(R.Tensor((n, 3), "float32"))
ref(cell(f(3))) | R.Ref(R.Ref(R.Tensor((3,), "float32")))
""",
    """
ref() | TypeError: relax.ref: argument 'value' is missing
""",
    in_tvm=False,
    elsewhere=DATA,
)
cases(
    "ref_read",
    """
ref_read(cell(f(n, 3))) | R.Tensor((n, 3), "float32")
ref_read(any()) | R.Any
""",
    """
ref_read(f(3)) | TypeError: relax.ref_read: ref: expected a reference, got a of type R.Tensor
""",
    in_tvm=False,
    elsewhere=DATA,
)
cases(
    "ref_write",
    """
ref_write(cell(f(n, 3)), f(n, 3)) | R.Tuple()
""",
    """
ref_write(f(3), f(3)) | TypeError: relax.ref_write: ref: expected a reference, got a of type
ref_write(cell(f(3)), i(3)) | TypeError: relax.ref_write: value: expected R.Tensor((3,),
    dtype="float32"), which the reference holds, got b of type R.Tensor((3,), dtype="int64")
""",
    in_tvm=False,
    elsewhere=DATA,
)
cases(
    "print",
    """
print(f(n), format="{}") | R.Tuple()
""",
    """
print(f(3), form='') | TypeError: print_() got an unexpected keyword argument 'form'
""",
    elsewhere="test_values",
)
cases(
    "assert_op",
    """
assert_op(b(), f(n), format="{}") | R.Tuple()
assert_op(n > 3) | R.Tuple()
""",
    """
assert_op(f(3)) | TypeError: relax.assert_op: condition: expected a bool of rank 0
""",
    elsewhere="test_values",
)
cases(
    "to_vdevice",
    """
to_vdevice(f(n), there) | R.Tensor((n,), "float32", vdevice=there)
""",
    """
to_vdevice(f(3), "cpu") | TypeError: relax.to_vdevice: dst_vdevice: expected a VDevice
""",
    """
to_vdevice(f(3), here)
""",
    reference=same,
)
cases(
    "hint_on_device",
    """
hint_on_device(f(n), "cuda:1") | R.Tensor((n,), "float32")
""",
    """
hint_on_device(f(3), 'y') | ValueError: device: unknown type 'y', expected one of cpu, cuda
""",
    """
hint_on_device(f(3), "cpu")
""",
    reference=same,
)
cases(
    "builtin.alloc_tensor",
    """
builtin.alloc_tensor((n, 2), "float32", 0) | R.Tensor((n, 2), "float32")
""",
    """
builtin.alloc_tensor('x', 'int8') | TypeError: a shape is a sequence of dimensions, got 'x'
""",
    elsewhere=PASSES,
)
cases(
    "builtin.stop_lift_params",
    """
builtin.stop_lift_params(f(n)) | R.Tensor((n,), "float32")
""",
    """
builtin.stop_lift_params(shape(3)) | TypeError: relax.builtin.stop_lift_params: x: expected a tensor
""",
    """
builtin.stop_lift_params(f(3))
""",
    reference=same,
)
cases(
    "size",
    """
size(f(n, 3)) | R.Tensor((), "int64")
""",
    """
size(shape(3)) | TypeError: relax.size: expr: expected a tensor
""",
    """
size(f(3, 4))
size(f())
""",
    reference=lambda expr: np.asarray(expr.size, object),
)
cases(
    "memory.alloc_storage",
    """
memory.alloc_storage([n * 4], 0, "global", "float32") | R.Any
""",
    """
memory.alloc_storage('x', 0, 'global', 'int8') | TypeError: relax.memory.alloc_storage: size:
    expected a shape, got str 'x'
""",
    elsewhere=PASSES,
)
cases(
    "memory.alloc_tensor",
    """
memory.alloc_tensor(any(), 0, [n], "float32") | R.Tensor((n,), "float32")
""",
    """
memory.alloc_tensor(any(), 'y', [n], 'int8') | TypeError: relax.memory.alloc_tensor: offset:
    expected a
    scalar, got str 'y'
""",
    elsewhere=PASSES,
)
cases(
    "memory.kill_storage",
    """
memory.kill_storage(any()) | R.Tuple()
""",
    """
memory.kill_storage() | TypeError: relax.memory.kill_storage: argument 'storage' is missing
""",
    elsewhere=PASSES,
)
cases(
    "memory.kill_tensor",
    """
memory.kill_tensor(f(n)) | R.Tuple()
""",
    """
memory.kill_tensor(shape(3)) | TypeError: relax.memory.kill_tensor: tensor: expected a tensor, got
""",
    elsewhere=PASSES,
)
cases(
    "memory.ensure_zero_offset",
    """
memory.ensure_zero_offset(f(n)) | R.Tensor((n,), "float32")
""",
    """
memory.ensure_zero_offset(3) | TypeError: relax.memory.ensure_zero_offset: data: expected an
    expression, got int 3
""",
    """
memory.ensure_zero_offset(f(3))
""",
    reference=same,
)
cases(
    "memory.view",
    """
memory.view(f(3), [1, 3]) | R.Tensor((1, 3), "float32")
memory.view(f(n), dtype="int32") | R.Tensor((n,), "int32")
memory.view(f(3), [2], relative_byte_offset=4) | R.Tensor((2,), "float32")
memory.view(f(n), dtype=shape_var(1)) | R.Tensor((n,))
memory.view(f(n), [(n + 3) // 4, 4]) | R.Tensor(((n + 3) // 4, 4), "float32")
""",
    """
memory.view(f(3), [4]) | ValueError: relax.memory.view: a view of 16 bytes from byte 0 on reaches
    beyond 12 bytes
memory.view(f(3), [3], relative_byte_offset=4) | ValueError: relax.memory.view: a view of 12 bytes
    from byte 4 on
memory.view(f(n), [n + 1]) | ValueError: relax.memory.view: a view of n * 4 + 4 bytes from byte 0 on
    reaches beyond n * 4 bytes
memory.view(tensor(), relative_byte_offset=16) | ValueError: relax.memory.view: a view of the whole
    tensor from byte 16 on reaches beyond it
""",
    """
memory.view(f(2, 3), [3], "int64")
memory.view(f(4), [2], relative_byte_offset=8)
memory.view(d(3), [6], 'int32')
memory.view(f(3))
""",
    reference=viewed,
    raw=True,
)
for _name, _dtype in (
    ("ndim", "int32"),
    ("dtype_code", "uint8"),
    ("dtype_bits", "uint8"),
    ("dtype_lanes", "uint16"),
    ("byte_offset", "uint64"),
    ("elem_offset", "uint64"),
):
    cases(
        f"inspect.tensor_{_name}",
        f"""
inspect.tensor_{_name}(f(n, 3)) | R.Prim("{_dtype}")
inspect.tensor_{_name}(tensor()) | R.Prim("{_dtype}")
""",
        f"""
inspect.tensor_{_name}(scalar("int64")) | TypeError: relax.inspect.tensor_{_name}: tensor: expected
    a tensor, got
""",
        elsewhere=INSPECTED,
        in_tvm=False,
    )
for _name in ("shape_i", "stride_i"):
    cases(
        f"inspect.tensor_{_name}",
        f"""
inspect.tensor_{_name}(f(n, 3), 1) | R.Prim("int64")
inspect.tensor_{_name}(tensor(), n) | R.Prim("int64")
""",
        f"""
inspect.tensor_{_name}(f(n, 3), 2) | ValueError: relax.inspect.tensor_{_name}: axis: expected one of
    the axes of R.Tensor((n, 3), dtype="float32"), from 0 on, got 2
inspect.tensor_{_name}(f(n, 3), -1) | ValueError: relax.inspect.tensor_{_name}: axis: expected one
inspect.tensor_{_name}(f(n, 3), 1.5) | TypeError: relax.inspect.tensor_{_name}: axis: expected an
    integer, got T.float64(1.5)
""",
        elsewhere=INSPECTED,
        in_tvm=False,
    )
cases(
    "vm.alloc_storage",
    """
vm.alloc_storage([12], 0, "uint8") | R.Any
""",
    """
vm.alloc_storage('x', 0, 'int8') | TypeError: relax.vm.alloc_storage: shape: expected a shape, got
    str
""",
    elsewhere=PASSES,
)
cases(
    "vm.alloc_tensor",
    """
vm.alloc_tensor(any(), 0, [n], "float32") | R.Tensor((n,), "float32")
vm.alloc_tensor(any(), 0, shape_var(2), "float32") | R.Tensor(dtype="float32", ndim=2)
""",
    """
vm.alloc_tensor(any(), 'y', [n], 'int8') | TypeError: relax.vm.alloc_tensor: offset: expected a
    scalar
""",
    elsewhere=PASSES,
)
cases(
    "vm.kill_object",
    """
vm.kill_object(any()) | R.Tuple()
""",
    """
vm.kill_object() | TypeError: relax.vm.kill_object: argument 'obj' is missing
""",
    elsewhere=PASSES,
)
cases(
    "vm.call_tir_dyn",
    """
vm.call_tir_dyn(func(), (f(n), shape(n))) | R.Tuple()
""",
    """
vm.call_tir_dyn(func(), (f(3),)) | TypeError: relax.vm.call_tir_dyn: args: expected a shape as the
    last
""",
    elsewhere=PASSES,
)
