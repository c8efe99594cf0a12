"""The functional interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.overrides import has_torch_function_variadic

from . import _dispatch, _ops
from ._checks import integer, pair

_compiling: Callable[[], bool] = torch.compiler.is_compiling
_tracing: Callable[[], bool] = torch._C._is_tracing


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
    *,
    algorithm: str = "auto",
) -> Tensor:
    """A drop-in for torch.nn.functional.conv_transpose2d.

    input [N, C_in, H, W] or [C_in, H, W], weight [C_in, C_out / groups, kernel_h, kernel_w], bias
    [C_out]. float16, bfloat16, float32 and float64 on CUDA run on the kernels of this package;
    everything else goes to ATen. Differentiable to any order, in reverse and forward mode.

    `algorithm` forces a family by name ("direct", ...; explain() lists them); "auto" takes the one
    with the least predicted time. On a CPU "auto" means ATen.
    """
    if _compiling() or _tracing() or has_torch_function_variadic(input, weight):
        # One node in the graph of whoever is watching. AOTAutograd later looks inside it.
        return _ops.conv_transpose2d(
            input,
            weight,
            bias,
            pair("stride", stride),
            pair("padding", padding),
            pair("output_padding", output_padding),
            integer("groups", groups),
            pair("dilation", dilation),
            algorithm=algorithm,
        )
    return _dispatch.conv_transpose2d(
        input, weight, bias, stride, padding, output_padding, groups, dilation, algorithm
    )
