"""Errors of both sides against float64, element by element.

error = max |y - y64| / (unit * (|x| * |w| + |y64|)),  unit = spacing of the mode's numbers

The denominator is what rounding alone may cost that element, so one small wrong pixel counts as
much as a wrong image. The gradients are held to the same rule with their own operands.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .modes import Mode
from .operands import Convolution, Operands, torch_convolution
from .results import error_acceptable

SAMPLES = 1


@dataclass(frozen=True)
class Errors:
    ours: float
    torch: float | None  # None for fp64, where torch's result is the reference

    @property
    def acceptable(self) -> bool:
        return error_acceptable(self.ours, self.torch)


def measure_errors(
    operands: Operands, mode: Mode, convolution: Convolution, samples: int = SAMPLES
) -> dict[str, Errors]:
    """Errors by pass. Both sides run the whole batch, hence the plan that is timed; float64 runs
    the first `samples`. The others get a zero gradient, so that grad_weight can be compared."""
    samples = min(samples, operands.x.shape[0])
    grad_y = operands.grad_y.clone()
    grad_y[samples:] = 0
    exact, magnitude = _reference(operands, grad_y, samples)
    ours = _results(operands, grad_y, samples, convolution)
    theirs = _results(operands, grad_y, samples, torch_convolution)

    def worst(results: dict[str, Tensor], name: str) -> float:
        return _worst(results[name], exact[name], magnitude[name], mode.rounding_unit)

    is_reference = mode.dtype is torch.float64
    return {
        name: Errors(worst(ours, name), None if is_reference else worst(theirs, name))
        for name in exact
    }


def _results(
    operands: Operands, grad_y: Tensor, samples: int, convolution: Convolution
) -> dict[str, Tensor]:
    x, weight = operands.x, operands.weight
    bias = None if operands.bias is None else operands.bias.detach().requires_grad_()
    y = convolution(x, weight, bias, *operands.layer.arguments)
    wanted = [x, weight] if bias is None else [x, weight, bias]
    grads = torch.autograd.grad(y, wanted, grad_y)
    results = {"fwd": y.detach()[:samples], "grad_input": grads[0][:samples]}
    return results | dict(zip(("grad_weight", "grad_bias"), grads[1:], strict=False))


def _reference(
    operands: Operands, grad_y: Tensor, samples: int
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """float64 results, and the same operator on absolute values without the bias."""

    def wide(tensor: Tensor) -> Tensor:
        return tensor.detach().double()

    bias = None if operands.bias is None else wide(operands.bias)
    small = Operands(
        operands.layer,
        wide(operands.x[:samples]).requires_grad_(),
        wide(operands.weight).requires_grad_(),
        bias,
        wide(grad_y[:samples]),
    )
    absolute = Operands(
        operands.layer,
        small.x.detach().abs().requires_grad_(),
        small.weight.detach().abs().requires_grad_(),
        None if bias is None else torch.zeros_like(bias),
        small.grad_y.abs(),
    )
    return (
        _results(small, small.grad_y, samples, torch_convolution),
        _results(absolute, absolute.grad_y, samples, torch_convolution),
    )


def _worst(result: Tensor, exact: Tensor, magnitude: Tensor, unit: float) -> float:
    allowed = unit * (magnitude + exact.abs()).clamp_min(torch.finfo(torch.float32).tiny)
    error = (result.double() - exact).abs() / allowed
    return float(error.nan_to_num(nan=math.inf).max())
