"""What people write around programs; no type checker objects to it."""

from __future__ import annotations

import io
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import relaxvm
from relaxvm.frontend import nn

Array = NDArray[np.float32]
X: Array = np.ones((3, 4), np.float32)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.relu(self.first(x))


def by_builder(rows: int) -> relaxvm.IRModule:
    bb = relaxvm.BlockBuilder()
    x = relaxvm.Var("x", relaxvm.TensorType((rows, 4), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(relaxvm.op.nn.relu(x))
            z = bb.emit_output(relaxvm.op.add(y, y))
        bb.emit_func_output(z)
    return bb.get()


@relaxvm.transform.function_pass(opt_level=0)
def same(
    func: relaxvm.Function, mod: relaxvm.IRModule, ctx: relaxvm.transform.PassContext
) -> relaxvm.Function:
    return func


@relaxvm.transform.module_pass(opt_level=0, name="Nothing")
def nothing(mod: relaxvm.IRModule, ctx: relaxvm.transform.PassContext) -> relaxvm.IRModule:
    return mod


def double(x: Array) -> Array:
    return np.add(x, x)


def by_hand() -> relaxvm.VirtualMachine:
    ib = relaxvm.ExecBuilder()
    with ib.function("main", num_inputs=1):
        ib.emit_call("double", [ib.r(0)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    return relaxvm.VirtualMachine(ib.get(), functions={"double": double})


def main() -> None:
    module = relaxvm.transform.Sequential([same, nothing, relaxvm.transform.FoldConstant()])(
        by_builder(3)
    )
    executable = relaxvm.build(module)
    data = executable.to_bytes()
    limits = relaxvm.Limits.untrusted()
    back = relaxvm.load(io.BytesIO(data), limits=limits)
    assert relaxvm.verify(back).ok
    print(back.as_text(), back.as_python(), back.stats())
    assert_type(back.data_types, dict[str, relaxvm.adt.DataType])

    vm = relaxvm.VirtualMachine(back, limits=limits)
    first: Any = vm.main(X)
    assert np.array_equal(first, vm["main"](X))
    for name, function in vm.functions.items():
        print(name, function.signature, function.num_args)
    run = vm["main"].start(X)
    run.resume()
    assert np.array_equal(run.result(), first)
    assert [frame.function for frame in run.frames] == []

    with relaxvm.profile(vm) as p:
        vm.main(X)
    print(p.table(by="site"))
    print(relaxvm.trace(vm, "main", X).counts())
    assert relaxvm.compare(executable, back, [X]).same

    model, _ = Net().export_tvm({"forward": {"x": nn.spec.Tensor((3, 4), "float32")}})
    assert relaxvm.compile(model, cache=False).function("forward").num_args == 3
    assert np.array_equal(by_hand().main(X), X + X)


async def wait(vm: relaxvm.VirtualMachine) -> None:
    await vm["main"].async_call(X)


if __name__ == "__main__":
    main()
