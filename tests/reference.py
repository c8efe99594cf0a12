"""The operator in float64, slow and obvious: a loop over the taps, each a slice that is added.

Independent of csrc/ (no phases, no tap table) and of torch's convolutions. The three directions
take `near_pad` and the extent of the result, so they cover output_size and second derivatives too.
NaN and Inf reach exactly the elements whose taps touch them: what falls outside is not multiplied.
"""

from __future__ import annotations

import torch
from cases import Case, Pair
from torch import Tensor


def _landing(extent_in: int, extent_out: int, stride: int, shift: int) -> tuple[slice, slice]:
    """The inputs whose tap lands inside the output, and where: output = input * stride + shift."""
    inside = [i for i in range(extent_in) if 0 <= i * stride + shift < extent_out]
    if not inside:
        return slice(0, 0), slice(0, 0)
    first, last = inside[0], inside[-1]
    return slice(first, last + 1), slice(first * stride + shift, last * stride + shift + 1, stride)


def _taps(size: Pair, out_size: Pair, kernel: Pair, stride: Pair, near_pad: Pair, dilation: Pair):
    """Every tap with the slices of x and of y that it connects."""
    for row in range(kernel[0]):
        x_rows, y_rows = _landing(size[0], out_size[0], stride[0], row * dilation[0] - near_pad[0])
        for column in range(kernel[1]):
            x_columns, y_columns = _landing(
                size[1], out_size[1], stride[1], column * dilation[1] - near_pad[1]
            )
            whole = slice(None)
            yield (
                (row, column),
                (whole, whole, whole, x_rows, x_columns),
                (whole, whole, whole, y_rows, y_columns),
            )


def _grouped(tensor: Tensor, groups: int) -> Tensor:
    """[N, C, H, W] -> float64 [N, groups, C / groups, H, W]."""
    batch, channels, height, width = tensor.shape
    return tensor.double().reshape(batch, groups, channels // groups, height, width)


def forward(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Pair,
    near_pad: Pair,
    out_size: Pair,
    dilation: Pair,
    groups: int,
) -> Tensor:
    x5 = _grouped(x, groups)
    w5 = w.double().reshape(groups, w.shape[0] // groups, *w.shape[1:])
    y = x5.new_zeros(x.shape[0], groups, w.shape[1], *out_size)
    for (row, column), x_part, y_part in _taps(
        x.shape[2:], out_size, w.shape[2:], stride, near_pad, dilation
    ):
        y[y_part] += torch.einsum("ngihw,gio->ngohw", x5[x_part], w5[..., row, column])
    y = y.reshape(x.shape[0], -1, *out_size)
    return y if bias is None else y + bias.double()[:, None, None]


def grad_input(
    grad_y: Tensor,
    w: Tensor,
    stride: Pair,
    near_pad: Pair,
    size: Pair,
    dilation: Pair,
    groups: int,
) -> Tensor:
    grad_y5 = _grouped(grad_y, groups)
    w5 = w.double().reshape(groups, w.shape[0] // groups, *w.shape[1:])
    grad_x = grad_y5.new_zeros(grad_y.shape[0], groups, w5.shape[1], *size)
    for (row, column), x_part, y_part in _taps(
        size, grad_y.shape[2:], w.shape[2:], stride, near_pad, dilation
    ):
        grad_x[x_part] += torch.einsum("ngohw,gio->ngihw", grad_y5[y_part], w5[..., row, column])
    return grad_x.reshape(grad_y.shape[0], -1, *size)


def grad_weight(
    grad_y: Tensor,
    x: Tensor,
    stride: Pair,
    near_pad: Pair,
    kernel: Pair,
    dilation: Pair,
    groups: int,
) -> Tensor:
    grad_y5, x5 = _grouped(grad_y, groups), _grouped(x, groups)
    grad_w = x5.new_zeros(groups, x5.shape[2], grad_y5.shape[2], *kernel)
    for (row, column), x_part, y_part in _taps(
        x.shape[2:], grad_y.shape[2:], kernel, stride, near_pad, dilation
    ):
        grad_w[..., row, column] = torch.einsum("ngihw,ngohw->gio", x5[x_part], grad_y5[y_part])
    return grad_w.flatten(0, 1)


def grad_bias(grad_y: Tensor) -> Tensor:
    return grad_y.double().sum((0, 2, 3))


def result(
    direction: str, case: Case, first: Tensor, second: Tensor, bias: Tensor | None
) -> Tensor:
    """One direction of a case; (first, second) are (x, w), (grad_y, w) or (grad_y, x)."""
    place, tail = (case.stride, case.padding), (case.dilation, case.groups)
    if direction == "forward":
        return forward(first, second, bias, *place, case.out_size, *tail)
    if direction == "grad_input":
        return grad_input(first, second, *place, case.size, *tail)
    return grad_weight(first, second, *place, case.kernel, *tail)
