"""The programs of the document "Relax VM architecture", as they are written there.

They run through `relaxvm.contrib.as_tvm`, in the order of the document, as one program.  The
differences: the document has lost its indentation, its device is ``tvm.cuda()``, and it does not
import VMInstrumentReturnKind.
"""

from __future__ import annotations

import sys
from pathlib import Path

from . import children

PROGRAM = '''
import tvm
from tvm import relax
from tvm.script import relax as R  # not in the document
import os, tempfile  # not in the document
folder = tempfile.TemporaryDirectory()
os.chdir(folder.name)

@tvm.script.ir_module
class MyModule:
    @R.function
    def main(x: R.Tensor((3, 4), "float32")):
        return R.add(x, x)

target = tvm.target.Target("llvm")
ex = tvm.compile(MyModule, target)

# Save
ex.export_library("model.so")
# Load
loaded = tvm.runtime.load_module("model.so")
vm = relax.VirtualMachine(loaded, tvm.cpu())  # tvm.cuda() in the document
assert loaded["as_text"]() == ex.as_text()

from tvm.relax import VirtualMachine, VMInstrumentReturnKind
try:
    vm = VirtualMachine(ex, tvm.cuda())
except ValueError as error:
    print(error)

for target in ("cuda", tvm.target.Target("cuda")):
    try:
        tvm.compile(MyModule, target=target)
    except ValueError as error:
        print(error)
relax.VirtualMachine(relax.vm.build(MyModule, "llvm"), tvm.cpu())  # of "Relax Compilation"

import tvm
from tvm import relax
import numpy as np
# Compile
ex = tvm.compile(MyModule, target="llvm")
# Create VM
vm = relax.VirtualMachine(ex, tvm.cpu())
# Direct invocation
inp = tvm.runtime.tensor(np.random.rand(3, 4).astype("float32"))
result = vm["main"](inp)
# Stateful interface (useful for RPC)
vm.set_input("main", inp)
vm.invoke_stateful("main")
output = vm.get_outputs("main")
np.testing.assert_array_equal(output.numpy(), result.numpy())
np.testing.assert_array_equal(result.numpy(), 2 * inp.numpy())

# The methods that the document lists
vm.save_function("main", "saved", inp)
np.testing.assert_array_equal(vm["saved"]().numpy(), result.numpy())
assert vm.time_evaluator("main", tvm.cpu(), number=1)(inp).mean > 0

def my_instrument(func, func_symbol, before_run, ret_value, *args):
    if before_run:
        print(f"About to call: {func_symbol}")
    return VMInstrumentReturnKind.NO_OP

vm.set_instrument(my_instrument)
vm["main"](inp)

ex = tvm.compile(MyModule, target="llvm")
print(ex.as_text())    # Human-readable instruction listing
print(ex.as_python())  # Equivalent Python program
print(ex.stats())      # Summary statistics
'''


def test_the_programs(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    done = children.run(
        [sys.executable, "-m", "relaxvm.contrib.as_tvm", str(path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("VirtualMachine: cuda(0): relaxvm runs on the CPU")
    assert lines[1].startswith("target: relaxvm runs on the CPU: expected llvm, c, cpu or None")
    assert lines[2].startswith("target: relaxvm runs on the CPU: ")
    assert "About to call: relaxvm.kernel.add" in lines
    assert "@main:" in done.stdout
    assert "ib.emit_ret(" in done.stdout
    assert "Relax VM executable statistics" in done.stdout
