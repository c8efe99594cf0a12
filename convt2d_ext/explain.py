"""Which family would run, at what predicted time, and why the others would not."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ._checks import check, check_ranks, integer, pair
from ._dispatch import DISABLED, SERVED_DTYPES, algorithm_index, channels_last_result
from ._precision import ambient_precision

DIRECTIONS = ("fwd", "grad_input", "grad_weight")
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_NCHW, _NHWC, _STRIDED = 0, 1, 2


def explain(
    input: Tensor | Sequence[int],
    weight: Tensor | Sequence[int],
    bias: Tensor | bool | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
    *,
    algorithm: str = "auto",
    device: str | None = None,
    dtype: torch.dtype = torch.float32,
    directions: Sequence[str] = DIRECTIONS,
) -> str:
    """The plan of a call, as text, a paragraph a direction. Nothing is computed.

    `input` and `weight` are tensors or just shapes; for shapes `dtype` and `device` say the rest.
    `device` may be "cpu", "cuda:0", or the name of a GPU that need not be there: "h200", "a100".
    float32 is planned for what torch.backends.cudnn.conv.fp32_precision says now.
    """
    x, w = _as_tensor(input, dtype), _as_tensor(weight, dtype)
    device = device or (str(input.device) if isinstance(input, Tensor) else "cpu")
    backend = "cpu" if device == "cpu" else "cuda"
    if DISABLED:
        return "ATen: CONVT2D_DISABLE=1 sends every call there\n"
    if x.dtype not in SERVED_DTYPES or w.dtype != x.dtype:
        return f"ATen: input of {x.dtype} with weight of {w.dtype} is not served by this package\n"
    stride, padding = pair("stride", stride), pair("padding", padding)
    output_padding, dilation = pair("output_padding", output_padding), pair("dilation", dilation)
    groups = integer("groups", groups)
    check_ranks(x.shape, w.shape, stride)
    x = x.unsqueeze(0) if x.dim() == 3 else x
    bias_shape = bias.shape if isinstance(bias, Tensor) else None
    out_size = check(
        x.shape, w.shape, bias_shape, stride, padding, output_padding, groups, dilation
    )
    sizes = [*x.shape[:2], w.shape[1] * groups, groups]
    for axis in (0, 1):
        sizes += [x.shape[2 + axis], out_size[axis], w.shape[2 + axis]]
        sizes += [stride[axis], padding[axis], dilation[axis]]
    result = _NHWC if channels_last_result(x, w) else _NCHW
    precision = ambient_precision() if x.dtype is torch.float32 and backend == "cuda" else 0
    text = ""
    if backend == "cpu" and algorithm == "auto":
        text = 'ATen: "auto" leaves CPU tensors to it; this is what algorithm="direct" would do:\n'
    for direction in directions:
        # The tensor that the direction writes has the layout of a result, whatever it has here.
        layouts = [_layout(x, result), _layout(w, result), result]
        layouts[(2, 0, 1)[DIRECTIONS.index(direction)]] = result
        text += torch.ops.convt2d.explain(
            DIRECTIONS.index(direction),
            _DTYPES.index(x.dtype),
            precision,
            sizes,
            layouts,
            int(bias is not None and bias is not False),
            device,
            algorithm_index(algorithm, backend),
        )
    return text


def _as_tensor(operand: Tensor | Sequence[int], dtype: torch.dtype) -> Tensor:
    if isinstance(operand, Tensor):
        return operand
    return torch.empty(tuple(operand), dtype=dtype, device="meta")


def _layout(tensor: Tensor, result: int) -> int:
    """As the kernels are told: dense in both orders counts as the order of the result."""
    formats = (torch.contiguous_format, torch.channels_last)
    for layout in (result, 1 - result):
        if tensor.is_contiguous(memory_format=formats[layout]):
            return layout
    return _STRIDED
