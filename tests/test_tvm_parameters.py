"""Parameters that came with TVM's signatures: what they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxvm import build, ir, te, transform
from relaxvm.errors import DiagnosticError
from relaxvm.ir import IRModule, const, prim_value, structural_equal, structural_hash
from relaxvm.script import from_source
from relaxvm.script import tir as T
from relaxvm.te import topi
from relaxvm.tir.build import build_prim_funcs
from relaxvm.transform import DumpIR, PassContext, Sequential, function_pass, module_pass

from .test_as_tvm_names import as_tvm

HEADER = "from relaxvm.script import ir as I, relax as R, tir as T\n"


def module(text: str = "y = R.exp(x)\n    return y") -> IRModule:
    head = "@R.function\ndef main(x: R.Tensor((2,), 'float32')):\n    "
    return IRModule.from_expr(from_source(f"{HEADER}{head}{text}\n"))


def test_a_sequence_runs_the_passes_that_a_pass_requires() -> None:
    seen: list[str] = []

    @module_pass(required=["ToNonDataflow", "relax.transform.LegalizeOps"])
    def last(mod: IRModule, ctx: PassContext) -> IRModule:
        seen.append(mod["main"].script())
        return mod

    Sequential([last])(module())
    assert "relaxvm.kernel.exp" in seen[0]
    last(module())  # alone it requires nothing, as in TVM
    assert "R.exp" in seen[1]
    assert last.required == ("ToNonDataflow", "relax.transform.LegalizeOps")


def test_a_pass_that_does_not_exist_is_named() -> None:
    @function_pass(required=["LegalizeOp"])
    def last(func: ir.Function, mod: IRModule, ctx: PassContext) -> ir.Function:
        return func

    with pytest.raises(ValueError, match=r"LegalizeOp: there is no such pass.*LegalizeOps"):
        Sequential([last])(module())


def test_a_folder_of_dumps_is_refreshed(tmp_path: Path) -> None:
    (tmp_path / "07-Old.py").write_text("old")
    (tmp_path / "notes.py").write_text("mine")
    with PassContext(instruments=[DumpIR(dump_dir=tmp_path, refresh=True)]):
        transform.LegalizeOps()(module())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00-LegalizeOps.py", "notes.py"]
    with PassContext(instruments=[DumpIR(tmp_path)]):
        transform.ToNonDataflow()(module())
    assert len(list(tmp_path.iterdir())) == 2 + 1


def test_scalars_of_a_data_type() -> None:
    assert prim_value(3).ty.dtype == "int64"
    for value, dtype in ((3, "int32"), (3, "float32"), (True, "bool"), (np.int8(3), "int64")):
        assert prim_value(value, dtype=dtype).ty.dtype == dtype
    variable = ir.Var("n", "int64")
    assert prim_value(variable, "int64") is variable
    with pytest.raises(TypeError, match=r"prim_value: n is of int64, got dtype int32"):
        prim_value(variable, "int32")


def test_elements_of_constants_may_not_count() -> None:
    one, two = const([1.0, 2.0]), const([3.0, 4.0])
    assert not structural_equal(one, two)
    assert structural_equal(one, two, skip_tensor_content=True)
    assert structural_hash(one, skip_tensor_content=True) == structural_hash(
        two, skip_tensor_content=True
    )
    assert structural_hash(one) != structural_hash(two)
    for other in (const([1.0]), const([1, 2])):
        assert not structural_equal(one, other, skip_tensor_content=True)
    changed = [module(f"return R.add(x, R.const([{a}, 2.0], 'float32'))") for a in (1.0, 5.0)]
    assert structural_equal(*changed, skip_tensor_content=True)


LOOPS = """
@T.prim_func
def main(x: T.Buffer((4, 4), "float32"), y: T.Buffer((4, 4), "float32")):
    for i, j in T.grid(4, 4, dtype="int64"):
        {body}
"""


def test_the_data_type_of_variables_of_loops() -> None:
    func = from_source(HEADER + LOOPS.format(body="y[i, j] = x[i, j]"))
    loops = [func.body, func.body.body]
    assert [loop.loop_var.ty.dtype for loop in loops] == ["int64", "int64"]
    stepped = from_source(HEADER + LOOPS.format(body="y[i, j] = x[i, j]").replace(
        'T.grid(4, 4, dtype="int64")', "T.grid(4, 4)").replace(
        "        y[i", '        for k in T.serial(0, 4, step=2, dtype="int64"):\n            y[i'))
    text = stepped.script()
    assert "T.int64(4), T.int64(2)" in text or "step=" in text
    assert structural_equal(from_source(text), stepped)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("data=x", "data: expected None, since a buffer has memory of its own"),
        ("byte_offset=4", "byte_offset: expected None; use elem_offset"),
    ],
)
def test_buffers_over_other_memory_are_refused(arguments: str, message: str) -> None:
    body = f'z = T.alloc_buffer((4,), "float32", {arguments})\n        y[i, j] = x[i, j]'
    with pytest.raises(DiagnosticError, match=message):
        from_source(HEADER + LOOPS.format(body=body))


def test_folders_of_programs_for_tvm(tmp_path: Path) -> None:
    code = f"""
import gc, os
from tvm.support import utils
kept = utils.tempdir(keep_for_debug=True)
made = utils.tempdir(custom_path={str(tmp_path / "made")!r})
plain = utils.tempdir()
paths = [kept.path, made.path, plain.path]
print([os.path.isdir(path) for path in paths], made.path == {str(tmp_path / "made")!r})
del kept, made, plain
gc.collect()
print([os.path.isdir(path) for path in paths])
os.rmdir(paths[0])
with utils.tempdir() as folder:
    open(folder.relpath("a"), "w").close()
    print(folder.listdir())
print(os.path.isdir(folder.path))
"""
    assert as_tvm(code).splitlines() == [
        "[True, True, True] True", "[True, True, False]", "['a']", "False"
    ]  # fmt: skip


def test_memory_of_other_packages_may_have_to_fit() -> None:
    code = """
import numpy as np, tvm_ffi
a = np.zeros((4, 4), "float32")
print(tvm_ffi.from_dlpack(a, require_contiguous=True).shape)
for make in (lambda: tvm_ffi.from_dlpack(a.T[1:], require_contiguous=True),
             lambda: tvm_ffi.from_dlpack(a.reshape(-1)[1:], require_alignment=1 << 20)):
    try:
        make()
    except RuntimeError as error:
        print(error)
"""
    assert as_tvm(code).splitlines() == [
        "(4, 4)", "from_dlpack: the tensor is not contiguous",
        "from_dlpack: the memory is not aligned to 1048576 bytes",
    ]  # fmt: skip


def test_a_call_of_a_packed_function_begins_with_its_name() -> None:
    for arguments in ((), (1, 2)):
        with pytest.raises(TypeError, match="expected the name of a function first, got"):
            T.call_packed(*arguments)
    assert build(module()) is not None  # any program still builds


def test_take_outside_of_the_axis() -> None:
    a = te.placeholder((4,), "float32", name="a")
    i = te.placeholder((3,), "int32", name="i")
    expected: dict[str, Any] = {"clip": [0, 3, 2], "wrap": [3, 1, 2], "nan": [np.nan, np.nan, 2]}
    for mode, values in expected.items():
        func = te.create_prim_func([a, i, topi.take(a, i, axis=0, mode=mode)])
        out = np.zeros(3, "float32")
        kernels = build_prim_funcs({"main": func})
        kernels["main"](np.arange(4, dtype="float32"), np.array([-1, 5, 2], "int32"), out)
        np.testing.assert_array_equal(out, values)
    message = "take: mode: expected fast, clip, wrap, nan or python, got .x."
    with pytest.raises(ValueError, match=message):
        topi.take(a, i, axis=0, mode="x")
    with pytest.raises(ValueError, match="take: batch_dims: expected at most the axis, 0"):
        topi.take(a, i, axis=0, batch_dims=1)
