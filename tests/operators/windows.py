"""Cases of convolutions and pools along one and three axes, transposed ones and adaptive ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from .nn import convolved, in_layout, pooled
from .table import ROUNDED, cases

SUMS = {"float16": ROUNDED, "float32": 16, "float64": 16}
MEANS = {"float16": ROUNDED, "float32": 4, "float64": 4}


def spread(spatial: str) -> Any:
    """A transposed convolution by plain loops."""

    def spread(
        data: Any, weight: Any, strides: Any, padding: Any, output_padding: Any, dilation: Any,
        groups: int = 1, data_layout: str = "", kernel_layout: str = "", out_layout: str = "",
        out_dtype: str | None = None,
    ) -> Any:  # fmt: skip
        plain, axes = f"NC{spatial}", len(spatial)
        x = in_layout(data, data_layout or plain, plain)
        weight = in_layout(weight, kernel_layout or f"IO{spatial}", f"IO{spatial}")
        inputs, outputs = x.shape[1] // groups, weight.shape[1]
        whole = [
            (x.shape[2 + i] - 1) * strides[i] + dilation[i] * (weight.shape[2 + i] - 1) + 1
            + output_padding[i]
            for i in range(axes)
        ]  # fmt: skip
        out = np.zeros((len(x), outputs * groups, *whole), x.dtype)
        for c, *at in np.ndindex(*x.shape[1:]):
            for o, *tap in np.ndindex(*weight.shape[1:]):
                place = [at[i] * strides[i] + tap[i] * dilation[i] for i in range(axes)]
                out[(slice(None), c // inputs * outputs + o, *place)] += (
                    x[(slice(None), c, *at)] * weight[(c, o, *tap)]
                )
        kept = [slice(padding[i], whole[i] - padding[axes + i]) for i in range(axes)]
        return in_layout(out[(..., *kept)], plain, out_layout or data_layout or plain)

    return spread


def divided(spatial: str) -> Any:
    """An adaptive pool by plain loops."""

    def pool(
        data: Any, output_size: Any = None, layout: str = "", out_layout: str = ""
    ) -> Any:
        plain, axes = f"NC{spatial}", len(spatial)
        x = in_layout(data, layout or plain, plain)
        size = x.shape[2:] if output_size is None else output_size
        out = np.zeros((*x.shape[:2], *size), x.dtype)
        for at in np.ndindex(*size):
            part = [
                slice(at[i] * n // size[i], -(-(at[i] + 1) * n // size[i]))
                for i, n in enumerate(x.shape[2:])
            ]
            out[(..., *at)] = x[(..., *part)].mean(tuple(range(2, 2 + axes)))
        return in_layout(out, plain, out_layout or layout or plain)

    return pool


cases(
    "nn.conv3d",
    """
nn.conv3d(f(n, 3, m, 9, 8), f(5, 3, 3, 3, 1), (2, 1, 1), 1) |
    R.Tensor((n, 5, (m - 1) // 2 + 1, 9, 10), "float32")
nn.conv3d(f(2, 8, 9, 7, 3), f(3, 3, 2, 3, 5), data_layout="NDHWC", kernel_layout="DHWIO") |
    R.Tensor((2, 6, 7, 6, 5), "float32")
nn.conv3d(rank(5), f(5, 3, 3, 3, 3)) | R.Tensor(dtype="float32", ndim=5)
""",
    """
nn.conv3d(f(2, 3, 8, 9, 9), f(5, 4, 3, 3, 3)) | ValueError: relax.nn.conv3d: data has 3 channels,
    weight takes 4 in each of 1 groups
nn.conv3d(f(2, 3, 8, 9), f(5, 3, 3, 3, 3)) | ValueError: relax.nn.conv3d: data: expected a tensor of
    layout 'NCDHW'
""",
    """
nn.conv3d(x(1, 2, 4, 5, 4), x(3, 2, 2, 3, 1), (2, 1, 1), (1, 0, 0, 0, 2, 0), (1, 2, 1))
nn.conv3d(x(2, 4, 3, 3, 4), x(2, 2, 2, 2, 3), groups=2)
nn.conv3d(x(1, 4, 3, 4, 3), x(4, 1, 3, 3, 3), padding=1, groups=4)
nn.conv3d(x(1, 3, 2, 3, 2), x(2, 3, 1, 1, 1))
nn.conv3d(x(1, 1, 3, 3, 3), x(1, 1, 2, 2, 2))
nn.conv3d(x(1, 3, 4, 3, 2), x(2, 2, 2, 2, 2), data_layout="NDHWC", kernel_layout="DHWOI")
""",
    reference=convolved("DHW"),
    dtypes="fhd",
    ulps=SUMS,
    of_largest=True,
)
cases(
    "nn.conv1d_transpose",
    """
nn.conv1d_transpose(f(2, 4, 7), f(4, 3, 3), 2, 1, 1) | R.Tensor((2, 3, 14), "float32")
nn.conv1d_transpose(f(n, 4, m), f(4, 3, 5), 3) | R.Tensor((n, 3, (m - 1) * 3 + 5), "float32")
""",
    """
nn.conv1d_transpose(f(2, 4, 7), f(4, 3, 3), 2, 1, 2) | ValueError: relax.nn.conv1d_transpose:
    output_padding: expected 0 or more each, and less than strides [2], got [2]
nn.conv1d_transpose(f(2, 4, 2), f(4, 3, 3), 1, 3) | ValueError: relax.nn.conv1d_transpose: padding:
    expected at most the 4 elements of the result along W, got 6
""",
    """
nn.conv1d_transpose(x(2, 4, 5), x(4, 3, 2), 2, (1, 0), 1, 2, 2)
nn.conv1d_transpose(x(1, 2, 4), x(2, 3, 3))
""",
    reference=spread("W"),
    dtypes="fhd",
    ulps=SUMS,
    of_largest=True,
)
cases(
    "nn.conv2d_transpose",
    """
nn.conv2d_transpose(f(n, 4, m, 7), f(4, 3, 3, 3), (2, 3), 1, 1) |
    R.Tensor((n, 3, m * 2, 20), "float32")
nn.conv2d_transpose(f(n, 4, 7, 7), f(4, 3, 3, 3), 2, groups=2) |
    R.Tensor((n, 6, 15, 15), "float32")
nn.conv2d_transpose(f(2, 7, 8, 4), f(3, 3, 4, 5), data_layout="NHWC", kernel_layout="HWIO") |
    R.Tensor((2, 9, 10, 5), "float32")
nn.conv2d_transpose(h(1, 4, 8, 8), h(4, 5, 3, 3), out_layout="NHWC", out_dtype="float32") |
    R.Tensor((1, 10, 10, 5), "float32")
nn.conv2d_transpose(rank(4), f(4, 3, 3, 3), 2) | R.Tensor(dtype="float32", ndim=4)
""",
    """
nn.conv2d_transpose(f(2, 4, 7, 7), f(5, 3, 3, 3)) | ValueError: relax.nn.conv2d_transpose: data has
    4 channels, weight takes 5
nn.conv2d_transpose(f(2, 4, 7, 7), f(4, 3, 3, 3), groups=3) | ValueError:
    relax.nn.conv2d_transpose: groups: expected a divisor of the 4 channels of data, got 3
nn.conv2d_transpose(f(2, 4, 7), f(4, 3, 3, 3)) | ValueError: relax.nn.conv2d_transpose: data:
    expected a tensor of layout 'NCHW'
nn.conv2d_transpose(f(2, 4, 7, 7), f(4, 3, 3, 3), kernel_layout="OIHX") | ValueError:
    relax.nn.conv2d_transpose: kernel_layout: expected an order of the letters of 'IOHW', got 'OIHX'
""",
    """
nn.conv2d_transpose(x(1, 2, 4, 3), x(2, 3, 2, 3), (2, 3), (1, 0, 0, 2), (1, 0), (1, 2))
nn.conv2d_transpose(x(2, 4, 3, 4), x(4, 2, 2, 2), 2, groups=2)
nn.conv2d_transpose(x(1, 4, 3, 3), x(4, 1, 3, 3), 2, 1, 1, groups=4)
nn.conv2d_transpose(x(1, 4, 3, 2), x(3, 2, 2, 2), 1, data_layout="NHWC", kernel_layout="HOWI")
nn.conv2d_transpose(x(0, 2, 4, 4), x(2, 3, 2, 2))
nn.conv2d_transpose(h(1, 3, 3, 3), h(3, 2, 2, 2), out_dtype='float32')
""",
    reference=spread("HW"),
    dtypes="fhd",
    ulps=SUMS,
    of_largest=True,
)
cases(
    "nn.conv3d_transpose",
    """
nn.conv3d_transpose(f(n, 4, 7, m, 7), f(4, 3, 3, 3, 2), 2, 1, 1) |
    R.Tensor((n, 3, 14, m * 2, 13), "float32")
""",
    """
nn.conv3d_transpose(f(2, 4, 7, 7, 7), f(4, 3, 3, 3, 3), (1, 2)) | ValueError:
    relax.nn.conv3d_transpose: strides: expected one number or 3, got [1, 2]
""",
    """
nn.conv3d_transpose(x(1, 2, 3, 2, 3), x(2, 3, 2, 3, 1), (2, 1, 2), (1, 0, 0, 0, 2, 0), (1, 0, 0))
nn.conv3d_transpose(x(2, 4, 2, 3, 2), x(4, 1, 2, 2, 2), 1, groups=2)
""",
    reference=spread("DHW"),
    dtypes="fhd",
    ulps=SUMS,
    of_largest=True,
)
cases(
    "nn.max_pool1d",
    """
nn.max_pool1d(f(n, 3, m), 3, 2, 1) | R.Tensor((n, 3, (m - 1) // 2 + 1), "float32")
""",
    """
nn.max_pool1d(f(1, 1, 2), 3) | ValueError: relax.nn.max_pool1d: no window fits along W
""",
    """
nn.max_pool1d(x(1, 2, 7), 3, 2, (1, 0), 1, True)
nn.max_pool1d(x(1, 5, 2), 2, layout="NWC")
""",
    reference=pooled(False, "W"),
    dtypes="fhd",
)
cases(
    "nn.max_pool3d",
    """
nn.max_pool3d(f(n, 3, 8, 9, m), (2, 3, 1), 2, 1) |
    R.Tensor((n, 3, 5, 5, (m + 1) // 2 + 1), "float32")
""",
    """
nn.max_pool3d(f(1, 1, 4, 4, 4), 2, layout="NCHW") | ValueError: relax.nn.max_pool3d: layout:
    expected an order of the letters of 'NCDHW', got 'NCHW'
""",
    """
nn.max_pool3d(x(1, 2, 3, 4, 5), (2, 3, 2), 2, (1, 0, 0, 0, 1, 0), ceil_mode=True)
nn.max_pool3d(x(2, 3, 4, 5, 1), 2, 1, 1, (1, 2, 1), layout="NDHWC")
nn.max_pool3d(x(1, 1, 3, 2, 3), 2)
""",
    reference=pooled(False, "DHW"),
    dtypes="fhd",
)
cases(
    "nn.avg_pool1d",
    """
nn.avg_pool1d(f(n, 3, 9), 3, 2) | R.Tensor((n, 3, 4), "float32")
""",
    """
nn.avg_pool1d(i(1, 1, 4), 2) | TypeError: relax.nn.avg_pool1d: data: expected floats
""",
    """
nn.avg_pool1d(x(1, 2, 7), 3, 2, (1, 0), 1, True)
nn.avg_pool1d(x(1, 2, 7), 3, 2, 1, count_include_pad=False)
""",
    reference=pooled(True, "W", True),
    dtypes="fhd",
    ulps=MEANS,
    of_largest=True,
)
cases(
    "nn.avg_pool3d",
    """
nn.avg_pool3d(f(n, 3, 8, 9, 7), 3, 2, ceil_mode=True) | R.Tensor((n, 3, 4, 4, 3), "float32")
""",
    """
nn.avg_pool3d(f(1, 1, 4, 4, 4), (2, 2)) | ValueError: relax.nn.avg_pool3d: pool_size: expected one
    number or 3, got [2, 2]
""",
    """
nn.avg_pool3d(x(1, 2, 3, 4, 5), (2, 3, 2), 2, (1, 0, 0, 0, 1, 0), ceil_mode=True)
nn.avg_pool3d(x(2, 3, 4, 5, 1), 2, 1, 1, (1, 2, 1), False, False, "NDHWC")
nn.avg_pool3d(x(1, 1, 3, 2, 3), 2)
""",
    reference=pooled(True, "DHW", True),
    dtypes="fhd",
    ulps=MEANS,
    of_largest=True,
)
cases(
    "nn.adaptive_avg_pool1d",
    """
nn.adaptive_avg_pool1d(f(n, 3, m), 4) | R.Tensor((n, 3, 4), "float32")
nn.adaptive_avg_pool1d(rank(3), 3) | R.Tensor(dtype="float32", ndim=3)
""",
    """
nn.adaptive_avg_pool1d(f(2, 3, 4), 0) | ValueError: relax.nn.adaptive_avg_pool1d: output_size:
    expected 1 or more each, got [0]
""",
    """
nn.adaptive_avg_pool1d(x(2, 3, 7), 3)
nn.adaptive_avg_pool1d(x(2, 1, 4), 7)
nn.adaptive_avg_pool1d(x(2, 5, 2), 1, "NWC")
""",
    reference=divided("W"),
    dtypes="fhd",
    ulps=MEANS,
    of_largest=True,
)
cases(
    "nn.adaptive_avg_pool2d",
    """
nn.adaptive_avg_pool2d(f(n, 4, 7, 7), (3, 5)) | R.Tensor((n, 4, 3, 5), "float32")
nn.adaptive_avg_pool2d(f(n, 4, 7, m)) | R.Tensor((n, 4, 7, m), "float32")
nn.adaptive_avg_pool2d(f(n, 7, 7, 4), 1, "NHWC") | R.Tensor((n, 1, 1, 4), "float32")
""",
    """
nn.adaptive_avg_pool2d(f(2, 4, 7), 1) | ValueError: relax.nn.adaptive_avg_pool2d: data: expected a
    tensor of layout 'NCHW'
nn.adaptive_avg_pool2d(i(2, 4, 7, 7), 1) | TypeError: relax.nn.adaptive_avg_pool2d: data: expected
    floats
""",
    """
nn.adaptive_avg_pool2d(x(2, 3, 7, 6), (3, 2))
nn.adaptive_avg_pool2d(x(2, 1, 3, 5), (5, 5))
nn.adaptive_avg_pool2d(x(1, 4, 6, 2), 3, "NHWC", "NCHW")
nn.adaptive_avg_pool2d(x(1, 40, 30, 20), 1)
""",
    reference=divided("HW"),
    dtypes="fhd",
    ulps=MEANS,
    of_largest=True,
)
cases(
    "nn.adaptive_avg_pool3d",
    """
nn.adaptive_avg_pool3d(f(n, 4, 7, 7, 7), 3) | R.Tensor((n, 4, 3, 3, 3), "float32")
""",
    """
nn.adaptive_avg_pool3d(f(2, 4, 7, 7, 7), (1, 2)) | ValueError: relax.nn.adaptive_avg_pool3d:
    output_size: expected one number or 3, got [1, 2]
""",
    """
nn.adaptive_avg_pool3d(x(2, 2, 3, 4, 5), (2, 2, 3))
""",
    reference=divided("DHW"),
    dtypes="fhd",
    ulps=MEANS,
    of_largest=True,
)
