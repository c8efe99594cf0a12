"""How fp32 may be multiplied: torch.backends.cudnn.conv.fp32_precision, the switch ATen obeys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ._ops import LIBRARY

# The `precision` argument of the inner ops. The last one is for graphs, which outlive the flag's
# present value.
IEEE, TF32, ASK_WHEN_RUN = 0, 1, 2

_float32 = torch.float32
_cudnn: Any = torch.backends.cudnn


def _public_getter(_backend: str, _op: str) -> str:
    precision: str = _cudnn.conv.fp32_precision
    return precision


# The public attribute is one that __getattr__ makes up: it costs eight times what it looks up.
_fp32_precision: Callable[[str, str], str] = getattr(
    torch._C, "_get_fp32_precision_getter", _public_getter
)


def ambient_precision() -> int:
    """The flag now. (Reading the older cudnn.allow_tf32 raises once this one was set.)"""
    return TF32 if _fp32_precision("cuda", "conv") == "tf32" else IEEE


LIBRARY.impl("ambient_precision", ambient_precision, "CompositeExplicitAutograd")


def precision_of(tensor: Tensor) -> int:
    """The `precision` argument of a call now."""
    if tensor.dtype is _float32 and tensor.is_cuda:
        return ambient_precision()
    return IEEE


def precision_when_run(tensor: Tensor) -> int:
    """The `precision` argument in a graph."""
    return ASK_WHEN_RUN if tensor.dtype is _float32 and tensor.is_cuda else IEEE
