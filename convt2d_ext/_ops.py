"""Loads the compiled library, and gives its ops what only Python can: tags, fake kernels, FLOPs.

The inner ops (schemas in csrc/torch/library.cpp) know nothing of autograd, vmap or autocast:
`_autograd` and `_dispatch` put those on top. They are building blocks, not an interface.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

importlib.import_module("convt2d_ext._C")  # its static initialisers register the inner ops

_library: Any = torch.library  # torch does not annotate it
LIBRARY = _library.Library("convt2d", "FRAGMENT")
ATEN = _library.Library("aten", "IMPL")

# int[2] and not SymInt[2], because only int[2] takes a bare int. An output_padding that follows
# from a symbolic output_size is guarded on instead, and the sizes themselves stay symbolic.
LIBRARY.define(
    "conv_transpose2d(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, "
    "int[2] padding=0, int[2] output_padding=0, int groups=1, int[2] dilation=1, *, "
    'str algorithm="auto") -> Tensor',
    tags=(torch.Tag.flexible_layout, torch.Tag.pt2_compliant_tag),
)

conv_transpose2d: Callable[..., Tensor] = torch.ops.convt2d.conv_transpose2d.default


def implement_public_op(function: Callable[..., Tensor]) -> None:
    """Registers what conv_transpose2d does, on every device and under every transform.

    CompositeImplicitAutograd: whatever derivative, batching or tracing is under way sees through
    the op to the inner ones. torch.func would unwrap its tensors before it gets there; registered
    for its own key as well, the op meets them as the Python function does.
    """
    for key in ("CompositeImplicitAutograd", "FuncTorchDynamicLayerFrontMode"):
        LIBRARY.impl("conv_transpose2d", function, key)


def implement_gradients(function: Callable[..., Any], of_aten: Callable[..., Any]) -> None:
    """Registers the backward of torch's node wherever Python has a say in it.

    Transforms, and whoever records what is called (modes, compiled autograd), meet the inner ops.
    """

    def called_from_c(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            _raise_after_the_pass(error)
            return None, None, None

    LIBRARY.impl("gradients", called_from_c, "CompositeImplicitAutograd")
    LIBRARY.impl("backward", function, "Python")
    ATEN.impl("convolution_backward_overrideable", of_aten, "FuncTorchDynamicLayerFrontMode")


def _raise_after_the_pass(error: Exception) -> None:
    """Ends the engine's pass with it: on the way through the stable ABI it would lose its type."""

    def fail() -> None:
        raise error

    torch.autograd.Variable._execution_engine.queue_callback(fail)


def _out_of_memory(like: Tensor, sizes: Sequence[int]) -> None:
    """Of a gradient. torch is asked for the memory once more, since it says it best."""
    try:
        torch.empty(sizes, dtype=like.dtype, device=like.device)
        refusal = torch.OutOfMemoryError(f"no memory for a gradient of sizes {list(sizes)}")
    except torch.OutOfMemoryError as torchs_own:
        refusal = torchs_own
    _raise_after_the_pass(refusal)


LIBRARY.impl("out_of_memory", _out_of_memory, "CompositeExplicitAutograd")


def _refuse_transforms(*_: Any, **__: Any) -> None:
    raise RuntimeError(
        "torch.func transforms do not reach through the inner ops of convt2d: they would see a "
        "constant. Transform torch.ops.convt2d.conv_transpose2d or convt2d_ext.conv_transpose2d"
    )


def _result(like: Tensor, shape: tuple[int, ...], channels_last: bool) -> Tensor:
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=memory_format)


def _check_dtypes(*tensors: Tensor | None) -> None:
    dtypes = {tensor.dtype for tensor in tensors if tensor is not None}
    torch._check(len(dtypes) == 1, lambda: f"convt2d: the operands are of mixed dtypes: {dtypes}")


def _unpacked(scalars: tuple[Any, ...]) -> tuple[Any, ...]:
    return scalars if len(scalars) > 1 else tuple(map(int, scalars[0].split(",")))


def _forward_fake(x: Tensor, w: Tensor, bias: Tensor | None, *scalars: Any) -> Tensor:
    _, _, _, _, out_h, out_w, _, _, groups, channels_last, _, _ = _unpacked(scalars)
    _check_dtypes(x, w, bias)
    return _result(x, (x.shape[0], w.shape[1] * groups, out_h, out_w), channels_last)


def _grad_input_fake(grad_y: Tensor, w: Tensor, *scalars: Any) -> Tensor:
    _, _, _, _, in_h, in_w, _, _, _, channels_last, _, _ = _unpacked(scalars)
    _check_dtypes(grad_y, w)
    return _result(grad_y, (grad_y.shape[0], w.shape[0], in_h, in_w), channels_last)


def _grad_weight_fake(grad_y: Tensor, x: Tensor, *scalars: Any) -> tuple[Tensor, Tensor]:
    numbers = _unpacked(scalars)
    _, _, _, _, kernel_h, kernel_w, _, _, groups, channels_last, with_bias, _, _ = numbers
    _check_dtypes(grad_y, x)
    out_channels = grad_y.shape[1]
    shape = (x.shape[1], out_channels // groups, kernel_h, kernel_w)
    return _result(x, shape, channels_last), grad_y.new_empty(out_channels if with_bias else 0)


def _grad_bias_fake(grad_y: Tensor) -> Tensor:
    return grad_y.new_empty(grad_y.shape[1])


def _grad_weight_alone_fake(grad_y: Tensor, x: Tensor, scalars: str) -> Tensor:
    return _grad_weight_fake(grad_y, x, scalars)[0]


_fakes: dict[str, Callable[..., Any]] = {
    "forward": _forward_fake,
    "forward.packed": _forward_fake,
    "grad_input": _grad_input_fake,
    "grad_input.packed": _grad_input_fake,
    "grad_weight": _grad_weight_fake,
    "grad_weight.packed": _grad_weight_alone_fake,
    "grad_weight.packed_with_bias": _grad_weight_fake,
    "grad_bias": _grad_bias_fake,
}

for _name, _fake in _fakes.items():
    _library.register_fake(f"convt2d::{_name}", _fake, lib=LIBRARY)
    LIBRARY.impl(_name, _refuse_transforms, "FuncTorchDynamicLayerFrontMode")
    # Any strides are welcome. Without this tag Inductor copies inputs back to the traced strides.
    # (The stable ABI's schema registration has no room for tags.)
    _op, _, _overload = _name.partition(".")
    _tags = getattr(getattr(torch.ops.convt2d, _op), _overload or "default").tags
    _tags.extend((torch.Tag.flexible_layout, torch.Tag.pt2_compliant_tag))


def _macs(x_shape: Any, w_shape: Any) -> int:
    """Counted like torch counts a convolution: a multiply for every input pixel and tap."""
    batch, _, height, width = x_shape
    in_channels, group_out, kernel_h, kernel_w = w_shape
    return int(batch * height * width * in_channels * group_out * kernel_h * kernel_w)


@register_flop_formula(torch.ops.convt2d.forward)
def _forward_flops(x_shape: Any, w_shape: Any, *_: Any, **__: Any) -> int:
    return 2 * _macs(x_shape, w_shape)


@register_flop_formula(torch.ops.convt2d.grad_input)
def _grad_input_flops(_: Any, w_shape: Any, *__: Any, out_shape: Any, **___: Any) -> int:
    return 2 * _macs(out_shape, w_shape)


@register_flop_formula(torch.ops.convt2d.grad_weight)
def _grad_weight_flops(_: Any, x_shape: Any, *__: Any, out_shape: Any, **___: Any) -> int:
    return 2 * _macs(x_shape, out_shape[0])
