"""The front door: one path for the function, the module and the raw torch.ops call.

autocast -> served? -> geometry (checked once a shape) -> _autograd -> inner op
              else ATen
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _autograd, _ops
from ._checks import check, check_ranks, integer, pair
from ._shape import Geometry, is_channels_last

# CONVT2D_DISABLE=1 sends everything through ATen. Read once, when the package is imported.
DISABLED = os.environ.get("CONVT2D_DISABLE") == "1"

SERVED_DTYPES = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
_AUTOCAST_DTYPES = SERVED_DTYPES - {torch.float64}

# What torch.einsum comes to for one operand. (torch does not declare it.)
_variable_functions: Any = torch._C._VariableFunctions
_einsum: Callable[..., Tensor] = _variable_functions.einsum

# From everything that decides a geometry to the geometry. Emptied when full: most models see few
# shapes, and the others must not leak.
_geometries: dict[tuple[Any, ...], Geometry] = {}
_MOST_GEOMETRIES = 4096


def _families(device_type: str) -> tuple[str, ...]:
    try:
        return tuple(torch.ops.convt2d.families(device_type).split(","))
    except RuntimeError:  # built without CUDA kernels
        return ()


# Asked now and not during a call, where a tracer might record the question.
FAMILIES = {device_type: _families(device_type) for device_type in ("cpu", "cuda")}


def algorithm_index(algorithm: str, device_type: str) -> int:
    """The number of a family; -1 for "auto", and for the only one there is."""
    if algorithm == "auto":
        return -1
    families = FAMILIES.get(device_type, ())
    if algorithm not in families:
        known = ", ".join(f'"{name}"' for name in ("auto", *families))
        raise ValueError(
            f'this build has no algorithm "{algorithm}" on {device_type}; it has {known}'
        )
    return families.index(algorithm) if len(families) > 1 else -1


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
    algorithm: str,
) -> Tensor:
    on_cuda = getattr(input, "is_cuda", False)
    if DISABLED or (algorithm == "auto" and not on_cuda):
        return F.conv_transpose2d(
            input, weight, bias, stride, padding, output_padding, groups, dilation
        )
    device_type = "cuda" if on_cuda else "cpu"
    if torch.is_autocast_enabled(device_type):
        input, weight, bias = _autocast(device_type, input, weight, bias)
    key: tuple[Any, ...] | None
    geometry: Geometry | None
    try:
        key = (
            input.shape,
            weight.shape,
            None if bias is None else (bias.shape, bias.dtype),
            input.stride(),
            weight.stride(),
            input.dtype,
            weight.dtype,
            stride,
            padding,
            output_padding,
            groups,
            dilation,
            algorithm,
            on_cuda,
        )
        geometry = _geometries.get(key)
    except (TypeError, AttributeError, RuntimeError):
        # Something has no hash (a list, a symbolic size), or is not even a dense tensor.
        lists = stride, padding, output_padding, dilation
        if list in map(type, lists):
            stride, padding, output_padding, dilation = (
                tuple(item) if type(item) is list else item for item in lists
            )
            return conv_transpose2d(
                input, weight, bias, stride, padding, output_padding, groups, dilation, algorithm
            )
        key = geometry = None
    if geometry is None:
        if not _served(input, weight, bias, algorithm):
            return F.conv_transpose2d(
                input, weight, bias, stride, padding, output_padding, groups, dilation
            )
        geometry = _check_call(
            input, weight, bias, stride, padding, output_padding, groups, dilation, algorithm
        )
        if key is not None:
            if len(_geometries) >= _MOST_GEOMETRIES:
                _geometries.clear()
            _geometries[key] = geometry
    if geometry.unbatched:
        return _autograd.forward(input.unsqueeze(0), weight, bias, geometry).squeeze(0)
    return _autograd.forward(input, weight, bias, geometry)


def _autocast(
    device_type: str, input: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The operands as ATen's autocast casts those of a convolution."""
    dtype = torch.get_autocast_dtype(device_type)
    if input.dtype is not dtype:
        input = _cast(device_type, input, dtype)
    if weight.dtype is not dtype:
        weight = _cast(device_type, weight, dtype)
    if bias is not None and bias.dtype is not dtype:
        bias = _cast(device_type, bias, dtype)
    return input, weight, bias


def _cast(device_type: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    if tensor.dtype not in _AUTOCAST_DTYPES:
        return tensor
    if device_type == "cpu" or not (tensor.is_leaf and tensor.requires_grad):
        return tensor.to(dtype)
    # A parameter, which ATen casts once a region and from then on takes out of autocast's cache.
    # einsum is on its list of ops to cast for, and this one is a view of what was cast; which
    # spares the backward the view.
    view: Tensor = _einsum("...->...", (tensor,))
    cast = view._base if _autograd.plain_eager(view) else None
    return view if cast is None or cast.shape != tensor.shape else cast


def _served(input: Any, weight: Any, bias: Any, algorithm: str) -> bool:
    """Whether the inner ops take these operands. The rest is ATen's, results and errors alike."""
    tensors = [input, weight] if bias is None else [input, weight, bias]
    if any(not isinstance(tensor, Tensor) for tensor in tensors):
        return False
    if any(tensor.dtype != input.dtype or tensor.device != input.device for tensor in tensors):
        return False
    dense = all(tensor.layout == torch.strided and not tensor.is_nested for tensor in tensors)
    if dense and input.dtype in SERVED_DTYPES and input.device.type in ("cpu", "cuda", "meta"):
        return True
    if algorithm != "auto":
        raise ValueError(
            f'algorithm "{algorithm}" does not serve {input.layout} tensors of {input.dtype} on '
            f'{input.device}; "auto" leaves them to ATen'
        )
    return False


def _check_call(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
    algorithm: str,
) -> Geometry:
    """What is worked out once a shape: the checks, the sizes, the memory format of the result."""
    given = {
        "stride": stride,
        "padding": padding,
        "output_padding": output_padding,
        "groups": groups,
        "dilation": dilation,
    }
    try:
        stride, padding = pair("stride", stride), pair("padding", padding)
        output_padding = pair("output_padding", output_padding)
        groups, dilation = integer("groups", groups), pair("dilation", dilation)
    except TypeError:
        F.conv_transpose2d(input, weight, bias, **given)  # torch's own parser words it best
        raise
    check_ranks(input.shape, weight.shape, stride)
    unbatched = input.dim() == 3
    if unbatched:
        input = input.unsqueeze(0)
    out_size = check(
        input.shape,
        weight.shape,
        None if bias is None else bias.shape,
        stride,
        padding,
        output_padding,
        groups,
        dilation,
    )
    return Geometry(
        stride,
        padding,
        (input.shape[2], input.shape[3]),
        out_size,
        (weight.shape[2], weight.shape[3]),
        dilation,
        groups,
        channels_last_result(input, weight),
        algorithm_index(algorithm, input.device.type),
        unbatched,
    )


def channels_last_result(input: Tensor, weight: Tensor) -> bool:
    """ATen's rule on CUDA: either operand decides; float64 and empty batches never."""
    if input.dtype is torch.float64:
        return False
    strides = (*input.stride(), *weight.stride(), *input.shape)
    holds: Any = bool
    if any(isinstance(number, torch.SymInt) for number in strides):
        # Imported late: it brings in sympy, and only tracing needs it.
        from torch.fx.experimental.symbolic_shapes import guard_or_false

        holds = guard_or_false
    if holds(input.shape[0] == 0):
        return False
    return is_channels_last(input.shape, input.stride(), holds) or is_channels_last(
        weight.shape, weight.stride(), holds
    )


def _gradients(
    grad_y: Tensor, x: Tensor, w: Tensor, *scalars: int
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """convt2d::gradients: differentiable, and under every transform."""
    stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, *wanted = scalars
    geometry = Geometry(
        (stride_h, stride_w),
        (pad_h, pad_w),
        (x.shape[2], x.shape[3]),
        (grad_y.shape[2], grad_y.shape[3]),
        (w.shape[2], w.shape[3]),
        (dilation_h, dilation_w),
        groups,
        channels_last_result(x, w),
        -1,
    )
    return _autograd.gradients(grad_y, x, w, geometry, *map(bool, wanted))


def _convolution_backward(
    grad_y: Tensor,
    x: Tensor,
    w: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    _transposed: bool,
    _output_padding: Sequence[int],
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """aten::convolution_backward_overrideable likewise."""
    return _gradients(grad_y, x, w, *stride, *padding, *dilation, groups, *wanted)


def _raw_call(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    output_padding: Sequence[int] = (0, 0),
    groups: int = 1,
    dilation: Sequence[int] = (1, 1),
    algorithm: str = "auto",
) -> Tensor:
    """torch.ops.convt2d.conv_transpose2d: trailing defaults are left out, pairs come as lists."""
    return conv_transpose2d(
        input,
        weight,
        bias,
        tuple(stride),
        tuple(padding),
        tuple(output_padding),
        groups,
        tuple(dilation),
        algorithm,
    )


_ops.implement_public_op(_raw_call)
_ops.implement_gradients(_gradients, _convolution_backward)
