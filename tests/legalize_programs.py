"""Programs of one operator, whose loops are compared with those that apache-tvm makes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

__all__ = ["PROGRAMS"]

_UNARY: Final = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp floor isfinite isinf isnan log "
    "negative round rsqrt sigmoid sign sin sinh sqrt square tan tanh nn.relu nn.gelu nn.gelu_tanh "
    "nn.silu nn.softplus nn.selu nn.softmax"
)
_BINARY: Final = {
    "float32": "add subtract multiply divide floor_divide power mod floor_mod equal greater "
    "greater_equal less less_equal not_equal maximum minimum log_add_exp",
    "bool": "logical_and logical_or logical_xor",
    "int32": "bitwise_and bitwise_or bitwise_xor left_shift right_shift floor_divide floor_mod",
}


def _type(text: str) -> str:
    """``float32[2, n]`` as a type of script."""
    return re.sub(r"(\w+)\[([^\]]*)\]", _tensor, text)


def _tensor(match: re.Match[str]) -> str:
    dims = [dim if dim.isdigit() else f'"{dim}"' for dim in re.findall(r"\w+", match[2])]
    return f'R.Tensor(({"".join(dim + ", " for dim in dims)}), "{match[1]}")'


def _program(params: str, value: str) -> str:
    return f"""
@I.ir_module
class Module:
    @R.function
    def main({_type(params)}):
        gv = {value}
        return gv
"""


def _listed() -> dict[str, tuple[str, str]]:
    found = {}
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        name, rest = line.split(": ", 1)
        params, value = rest.split("-> ", 1)
        found[name] = params.strip(), value
    return found


def _all() -> dict[str, str]:
    found: dict[str, tuple[str, str]] = {}
    for op in _UNARY.split():
        found[op] = "x: float32[2, 3]", f"R.{op}(x)"
        found[f"{op} of symbols"] = "x: float32[m, n]", f"R.{op}(x)"
    found["bitwise_not"] = "x: int32[2, 3]", "R.bitwise_not(x)"
    found["logical_not"] = "x: bool[2, 3]", "R.logical_not(x)"
    found["clip"] = "x: float32[2, 3]", "R.clip(x, 5, 8)"
    for dtype, ops in _BINARY.items():
        for op in ops.split():
            both = f"x: {dtype}[1, 2, 3], y: {dtype}[4, 3, 2, 1]", f"R.{op}(x, y)"
            found[f"{op} of {dtype}"] = both
            found[f"{op} of {dtype} and a constant"] = (
                f"x: {dtype}[2, 3]", f'R.{op}(x, R.const(1, "{dtype}"))'
            )  # fmt: skip
            found[f"{op} of {dtype} and symbols"] = (
                f"x: {dtype}[1, c, d], y: {dtype}[a, b, c, 1]", f"R.{op}(x, y)"
            )  # fmt: skip
    found.update(_listed())
    return {name: _program(*parts) for name, parts in found.items()}


PROGRAMS: Final[dict[str, str]] = _all()
