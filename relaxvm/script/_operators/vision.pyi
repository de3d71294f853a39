# Generated from relaxvm/op by scripts/gen_stubs.py - do not edit.
from typing import Any

__all__ = [
    "roi_align",
    "roi_pool",
]

def roi_align(data: Any, rois: Any, pooled_size: Any, spatial_scale: Any, sample_ratio: Any = ..., aligned: Any = ..., layout: Any = ..., mode: Any = ...) -> Any: ...
def roi_pool(data: Any, rois: Any, pooled_size: Any, spatial_scale: Any, layout: Any = ...) -> Any: ...
