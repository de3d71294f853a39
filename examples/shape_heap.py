"""Shapes that are known only at run time, on the shape heap.

The shape heap is an int64 tensor with a slot for each dimension that a function needs.  Here the
dimensions of an argument are stored in it, a new one is computed, and the result is allocated with
dimensions read from it.
"""

from __future__ import annotations

import numpy as np

import relaxvm

# The `main` of the Relax VM's design document: it stores a shape on the heap and loads it again.

x = np.zeros((32, 16))
ib = relaxvm.ExecBuilder()
with ib.function("main", num_inputs=0):
    # A heap of size 2.
    ib.emit_call("vm.builtin.alloc_shape_heap", args=[ib.imm(2)], dst=ib.r(0))
    # The shape of x, which is a constant of the program.
    ib.emit_call("vm.builtin.shape_of", args=[x], dst=ib.r(1))
    # heap[0] = 32, heap[1] = 16
    ib.emit_call("vm.builtin.store_shape", args=[ib.r(1), ib.r(0), ib.imm(0), ib.imm(1)])
    # The shape (heap[0], heap[1]).
    ib.emit_call("vm.builtin.load_shape", args=[ib.r(0), ib.imm(0), ib.imm(1)], dst=ib.r(2))
    ib.emit_ret(ib.r(2))

vm = relaxvm.VirtualMachine(ib.get())
print("main:", vm.main())


# What the compiler emits today: `stack_twice(x)` takes float32[n, m] and returns float32[2 * n, m].
# Each dimension is a pair of arguments: a code, and a number that the code tells how to use.

STORE_TO_SLOT = 1  # a code of match_shape
FROM_SLOT = 1  # a code of make_shape
N, M, TWICE_N = 0, 1, 2  # the slots


@relaxvm.register_func("example.shape_func")
def shape_func(heap: np.ndarray) -> None:
    """Shape arithmetic is a function on the heap: one call computes all dimensions."""
    heap[TWICE_N] = 2 * heap[N]


@relaxvm.register_func("example.stack")
def stack(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """A kernel writes its result into a tensor that the program allocated."""
    np.concatenate([a, b], out=out)


ib = relaxvm.ExecBuilder()
float32 = ib.convert_constant(np.dtype("float32"))
error_context = ib.convert_constant("stack_twice, x: ")
with ib.function("stack_twice", num_inputs=1, param_names=["x"]):
    x, heap, shape, storage, out = (ib.r(i) for i in range(5))
    ib.emit_call("vm.builtin.alloc_shape_heap", [ib.vm_state(), ib.imm(3)], dst=heap)

    ib.emit_call("vm.builtin.check_tensor_info", [x, ib.imm(2), float32, error_context])
    store = ib.imm(STORE_TO_SLOT)
    dims = [store, ib.imm(N), store, ib.imm(M)]
    ib.emit_call("vm.builtin.match_shape", [x, heap, ib.imm(2), *dims, error_context])

    ib.emit_call("example.shape_func", [heap])
    read = ib.imm(FROM_SLOT)
    dims = [read, ib.imm(TWICE_N), read, ib.imm(M)]
    ib.emit_call("vm.builtin.make_shape", [heap, ib.imm(2), *dims], dst=shape)

    where = [ib.imm(0), float32, ib.convert_constant("global")]  # device, unit of size, scope
    ib.emit_call("vm.builtin.alloc_storage", [ib.vm_state(), shape, *where], dst=storage)
    ib.emit_call("vm.builtin.alloc_tensor", [storage, ib.imm(0), shape, float32], dst=out)
    ib.emit_call("example.stack", [x, x, out])
    ib.emit_ret(out)

vm = relaxvm.VirtualMachine(ib.get())
for rows in (1, 3):
    result = vm.stack_twice(np.ones((rows, 2), np.float32))
    print(f"stack_twice: {rows} rows in, {len(result)} out")

try:
    vm.stack_twice(np.ones(3, np.float32))
except ValueError as error:
    print(error)
