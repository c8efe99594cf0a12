"""The tensors of one layer in one mode, and its passes as calls that can be timed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

import convt2d_ext

from .layers import Layer, Pair
from .modes import Mode
from .timing import Call


class Convolution(Protocol):
    """The positional signature of F.conv_transpose2d."""

    def __call__(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: Pair,
        padding: Pair,
        output_padding: Pair,
        groups: int,
        dilation: Pair,
        /,
    ) -> Tensor: ...


def torch_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Pair,
    padding: Pair,
    output_padding: Pair,
    groups: int,
    dilation: Pair,
) -> Tensor:
    return F.conv_transpose2d(
        input, weight, bias, stride, padding, output_padding, groups, dilation
    )


def our_convolution(algorithm: str) -> Convolution:
    def convolution(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: Pair,
        padding: Pair,
        output_padding: Pair,
        groups: int,
        dilation: Pair,
    ) -> Tensor:
        return convt2d_ext.conv_transpose2d(
            input,
            weight,
            bias,
            stride,
            padding,
            output_padding,
            groups,
            dilation,
            algorithm=algorithm,
        )

    return convolution


@dataclass(frozen=True)
class Operands:
    layer: Layer
    x: Tensor
    weight: Tensor
    bias: Tensor | None
    grad_y: Tensor

    @classmethod
    def random(cls, layer: Layer, mode: Mode, device: torch.device) -> Operands:
        """Normal values from a fixed seed; weights scaled so that outputs are of order one."""
        generator = torch.Generator(device).manual_seed(1)

        def normal(shape: tuple[int, ...]) -> Tensor:
            values = torch.randn(shape, device=device, generator=generator).to(mode.dtype)
            is_image = len(shape) == 4
            return values.contiguous(memory_format=mode.memory_format) if is_image else values

        taps_per_output = math.prod(layer.kernel) / math.prod(layer.stride)
        terms = layer.in_channels / layer.groups * max(1.0, taps_per_output)
        weight = normal(layer.weight_shape) / math.sqrt(terms)
        return cls(
            layer,
            normal(layer.input_shape).requires_grad_(),
            weight.requires_grad_(),
            normal((layer.out_channels,)) if layer.bias else None,
            normal(layer.output_shape),
        )

    def run(self, convolution: Convolution) -> Tensor:
        return convolution(self.x, self.weight, self.bias, *self.layer.arguments)

    def call(self, convolution: Convolution, pass_name: str) -> Call:
        """One pass. The backward passes replay a graph that was recorded once, outside the call."""
        if pass_name == "fwd":
            return torch.no_grad()(lambda: self.run(convolution))
        if pass_name == "step":
            return self._step(convolution)
        if pass_name == "grad_bias":
            return self._bias_alone(convolution)
        wanted = self.x if pass_name == "grad_input" else self.weight
        y = self.run(convolution)
        return lambda: torch.autograd.grad(y, wanted, self.grad_y, retain_graph=True)

    def _bias_alone(self, convolution: Convolution) -> Call:
        """Whether the layer has a bias or not."""
        bias = self.grad_y.new_zeros(self.layer.out_channels).requires_grad_()
        y = convolution(self.x.detach(), self.weight.detach(), bias, *self.layer.arguments)
        return lambda: torch.autograd.grad(y, bias, self.grad_y, retain_graph=True)

    def _step(self, convolution: Convolution) -> Call:
        """Forward and every gradient, as a layer in the middle of a network does it."""
        bias = None if self.bias is None else self.bias.detach().requires_grad_()
        wanted = [self.x, self.weight] if bias is None else [self.x, self.weight, bias]

        def step() -> tuple[Tensor, ...]:
            y = convolution(self.x, self.weight, bias, *self.layer.arguments)
            return torch.autograd.grad(y, wanted, self.grad_y)

        return step
