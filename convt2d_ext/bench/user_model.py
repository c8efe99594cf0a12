"""The transposed convolutions of somebody's model, with the shapes they really see."""

from __future__ import annotations

import importlib
from typing import cast

import torch
from torch import Tensor, nn

from .layers import Layer, Pair


def layers_of(model_path: str, input_shape: str) -> list[Layer]:
    """`model_path` is "package.module:name", a model or a function that makes one."""
    model = _load(model_path).eval()
    shape = tuple(int(size) for size in input_shape.split("x"))
    found: list[Layer] = []

    def record(name: str, module: nn.ConvTranspose2d, x: Tensor, y: Tensor) -> None:
        found.append(_layer(name, module, x, y))

    handles = [
        module.register_forward_hook(
            lambda module, inputs, y, name=name: record(name, module, inputs[0], y)
        )
        for name, module in model.named_modules()
        if isinstance(module, nn.ConvTranspose2d)
    ]
    with torch.no_grad():
        model(torch.randn(shape))
    for handle in handles:
        handle.remove()
    if not found:
        raise SystemExit(f"{model_path} ran without a ConvTranspose2d")
    return found


def _load(model_path: str) -> nn.Module:
    package, _, name = model_path.partition(":")
    if not name:
        raise SystemExit(f"--model {model_path}: expected package.module:name")
    made = getattr(importlib.import_module(package), name)
    model = made if isinstance(made, nn.Module) else made()
    if not isinstance(model, nn.Module):
        raise SystemExit(f"--model {model_path} gave a {type(model).__name__}, not a module")
    return model


def _layer(name: str, module: nn.ConvTranspose2d, x: Tensor, y: Tensor) -> Layer:
    stride, padding = cast(Pair, module.stride), cast(Pair, module.padding)
    kernel, dilation = cast(Pair, module.kernel_size), cast(Pair, module.dilation)

    def output_padding(axis: int) -> int:
        """Read off the result: forward may have been given an output_size."""
        reach = dilation[axis] * (kernel[axis] - 1) + 1
        least = (x.shape[axis - 2] - 1) * stride[axis] - 2 * padding[axis] + reach
        return y.shape[axis - 2] - least

    return Layer(
        name=name,
        batch=x.shape[0] if x.dim() == 4 else 1,
        in_channels=module.in_channels,
        out_channels=module.out_channels,
        height=x.shape[-2],
        width=x.shape[-1],
        kernel=kernel,
        stride=stride,
        padding=padding,
        output_padding=(output_padding(0), output_padding(1)),
        dilation=dilation,
        groups=module.groups,
        bias=module.bias is not None,
        source="user model",
    )
