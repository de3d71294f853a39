"""Virtual devices: hints that become devices, and replacement of devices."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm.ir import VDevice, assert_structural_equal
from relaxvm.script import from_source
from relaxvm.transform import RealizeVDevice, UpdateVDevice

from .passes import apply, module, run

HEAD = """
@I.ir_module
class Module:
    I.module_global_infos({"vdevice": [
        I.vdevice("llvm", 0), I.vdevice("llvm", 1), I.vdevice("llvm", 2)]})

"""


def devices(text: str) -> str:
    """A module with devices; ``@1`` is a tensor type on device 1, ``@`` one without a device."""
    for index in range(3):
        text = text.replace(f"@{index}", f'R.Tensor((2,), "float32", vdevice="llvm:{index}")')
    text = text.replace("@", 'R.Tensor((2,), "float32")').replace("F:", "@R.function")
    return HEAD + "\n".join(f"    {line}" if line else line for line in text.strip().split("\n"))


def realized(before: str, after: str) -> None:
    """Check that RealizeVDevice turns `before` into `after`."""
    result = apply(RealizeVDevice(), module(devices(before)))
    assert_structural_equal(result, module(devices(after)))
    assert_structural_equal(RealizeVDevice()(result), result)


def test_a_hint_puts_all_that_is_computed_together_on_its_device() -> None:
    realized(
        """
F:
def main(x: @, y: @, z: @):
    with R.dataflow():
        a = x
        b = R.hint_on_device(a, "cpu:1")
        c = R.add(b, y)
        d = R.multiply(c, z)
        R.output(d)
    return d
""",
        """
F:
def main(x: @1, y: @1, z: @1):
    with R.dataflow():
        a = x
        b = a
        c = R.add(b, y)
        d = R.multiply(c, z)
        R.output(d)
    return d
""",
    )


def test_a_copy_ends_the_propagation() -> None:
    realized(
        """
F:
def main(x: @, y: @):
    a = R.add(x, y)
    b = R.hint_on_device(a, "cpu:1")
    c = R.to_vdevice(b, "llvm:2")
    d = R.exp(c)
    return d
""",
        """
F:
def main(x: @1, y: @1):
    a = R.add(x, y)
    b = a
    c = R.to_vdevice(b, "llvm:2")
    d = R.exp(c)
    return d
""",
    )


def test_devices_in_types_spread_as_well() -> None:
    realized(
        """
F:
def main(x: @1, y: @) -> @:
    a = R.add(x, y)
    b = R.exp(a)
    return b
""",
        """
F:
def main(x: @1, y: @1) -> @1:
    a = R.add(x, y)
    b = R.exp(a)
    return b
""",
    )


def test_branches_and_tuples() -> None:
    realized(
        """
F:
def main(c: R.Prim("bool"), x: @, y: @, z: @) -> @:
    a = R.hint_on_device(x, "cpu:1")
    t = (y, z)
    if c:
        b = R.exp(a)
    else:
        b = t[0]
    return b
""",
        """
F:
def main(c: R.Prim("bool"), x: @1, y: @1, z: @) -> @1:
    a = x
    t = (y, z)
    if c:
        b = R.exp(a)
    else:
        b = t[0]
    return b
""",
    )


def test_a_hint_for_another_device_is_a_copy() -> None:
    before = """
F:
def main(x: @0):
    a = R.hint_on_device(x, "cpu:1")
    b = R.exp(a)
    return b
"""
    realized(
        before,
        """
F:
def main(x: @0):
    a = R.to_vdevice(x, "llvm:1")
    b = R.exp(a)
    return b
""",
    )
    x = np.array([1, 2], np.float32)
    two = [relaxvm.cpu(0), relaxvm.cpu(1)]
    assert (run(RealizeVDevice()(module(devices(before))), x, device=two) == np.exp(x)).all()


def test_functions_that_are_called() -> None:
    realized(
        """
F:
def inner(x: @) -> @:
    y = R.exp(x)
    return y

F:
def main(x: @, y: @) -> @:
    cls = Module
    a = R.hint_on_device(x, "cpu:1")
    b = cls.inner(a)
    return b
""",
        """
F:
def inner(x: @1) -> @1:
    y = R.exp(x)
    return y

F:
def main(x: @1, y: @) -> @1:
    cls = Module
    a = x
    b = cls.inner(a)
    return b
""",
    )


def test_operands_on_several_devices() -> None:
    mod = module(devices("""
F:
def main(x: @, y: @):
    a = R.hint_on_device(x, "cpu:1")
    b = R.hint_on_device(y, "cpu:2")
    c = R.add(a, b)
    return c
"""))  # fmt: skip
    with pytest.raises(ValueError, match=r"llvm:1:global.*llvm:2:global; R\.to_vdevice copies"):
        RealizeVDevice()(mod)


def test_an_unknown_device() -> None:
    mod = module(devices("""
F:
def main(x: @):
    a = R.hint_on_device(x, "cpu:7")
    return a
"""))  # fmt: skip
    with pytest.raises(ValueError, match=r"the module has no device cpu\(7\) with memory scope"):
        RealizeVDevice()(mod)


def test_a_hint_is_for_a_kind_of_device() -> None:
    """The device of a declared result spreads, too."""
    mod = from_source("""
@I.ir_module
class Module:
    I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda", 0)]})

    @R.function
    def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
        a = R.hint_on_device(x, "cuda")
        return a

    @R.function
    def f(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32", "cuda"):
        b = R.exp(x)
        return b
""")
    after = RealizeVDevice()(mod)
    for name in ("main", "f"):
        assert after[name].params[0].ty.vdevice.target == "cuda"
        assert after[name].ret_ty.vdevice.target == "cuda"
    assert after["main"].params[1].ty.vdevice is None


def test_a_device_is_exchanged_everywhere() -> None:
    mod = module(devices("""
F:
def main(x: @1, y: R.Tuple(@0, @1)):
    a = R.exp(x)
    b = y[0]
    c = R.to_vdevice(b, "llvm:1")
    d = R.add(a, c)
    return d
"""))  # fmt: skip
    new = VDevice("llvm", 7)
    result = apply(UpdateVDevice(new, 1), mod)
    assert result.global_infos["vdevice"][1] is new
    assert mod.global_infos["vdevice"][1] is not new
    func = result["main"]
    assert func.ret_ty.vdevice is new
    assert [func.params[0].ty.vdevice, func.params[1].ty.fields[1].vdevice] == [new, new]
    assert "vdevice_id" not in result.script()
    assert func.body.blocks[0].bindings[2].value.attrs["dst_vdevice"] is new
    assert result.get_global_var("main").ty.ret.vdevice is new
    assert mod.get_global_var("main").ty.ret.vdevice is mod.global_infos["vdevice"][1]
    with pytest.raises(IndexError, match="the module has 3 devices, none of index 3"):
        UpdateVDevice(new, 3)(mod)
