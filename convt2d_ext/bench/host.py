"""Host time of one call: what a network of small layers pays."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import convt2d_ext

from .layers import Layer
from .modes import Mode
from .operands import Operands
from .results import Measurement
from .timing import Call, wall_clock

# Small enough that a GPU keeps up with the host, so that only the host's time shows.
TINY = Layer("tiny", 1, 8, 8, 4, 4, (2, 2), (2, 2))
CALLS_PER_ROUND = 200  # fewer than the launches a CUDA stream queues before it blocks
ROUNDS = 25

TensorCall = Callable[[], Tensor]


def host_cost(
    modes: Sequence[Mode], device: torch.device, algorithm: str, cudnn_benchmark: bool
) -> list[Measurement]:
    """µs a call through each door: without gradients, recording them, and with a backward pass.

    On a CPU the arithmetic is in the figure, for both sides alike; threads would add their barrier.
    """
    torch.set_num_threads(1)
    rows = []
    for mode in modes:
        with mode.switches(cudnn_benchmark):
            rows += _doors_in(mode, device, algorithm)
    return rows


def _doors_in(mode: Mode, device: torch.device, algorithm: str) -> list[Measurement]:
    operands = Operands.random(TINY, mode, device)
    rows = []
    for door, (ours, theirs) in _doors(operands, algorithm).items():
        # The inner op knows no gradients: the others record and call it.
        for what in ("no_grad",) if door == "inner op" else ("no_grad", "grad", "step"):
            with torch.set_grad_enabled(what != "no_grad"):
                if what == "step":
                    pair = _alternate(_step(ours, operands), _step(theirs, operands), device)
                else:
                    pair = _alternate(ours, theirs, device)
            rows.append(Measurement(door, what, *pair, "µs", f"{mode} {TINY.describe()}"))
            print(rows[-1], flush=True)
    return rows


def _doors(operands: Operands, algorithm: str) -> dict[str, tuple[TensorCall, TensorCall]]:
    x, weight, arguments = operands.x, operands.weight, operands.layer.arguments
    bias = None if operands.bias is None else operands.bias.clone().requires_grad_()
    # As users call it: the argument is there only when it says something.
    forced: dict[str, Any] = {} if algorithm == "auto" else {"algorithm": algorithm}

    def torch_function() -> Tensor:
        return F.conv_transpose2d(x, weight, bias, *arguments)

    def our_function() -> Tensor:
        return convt2d_ext.conv_transpose2d(x, weight, bias, *arguments, **forced)

    def raw_op() -> Tensor:
        y: Tensor = torch.ops.convt2d.conv_transpose2d(x, weight, bias, *arguments, **forced)
        return y

    return {
        "function": (our_function, torch_function),
        "raw op": (raw_op, torch_function),
        "inner op": (_inner_op(operands, algorithm), torch_function),
        "module": (
            _module(convt2d_ext.ConvTranspose2d, x, algorithm),
            _module(nn.ConvTranspose2d, x, algorithm),
        ),
    }


def _inner_op(operands: Operands, algorithm: str) -> TensorCall:
    layer, x = operands.layer, operands.x
    families = torch.ops.convt2d.families(x.device.type).split(",")
    index = -1 if algorithm == "auto" else families.index(algorithm)
    size = layer.output_shape[2:]
    numbers = (*layer.stride, *layer.padding, *size, *layer.dilation, layer.groups, False, 0, index)
    scalars = ",".join(str(int(number)) for number in numbers)
    forward = torch.ops.convt2d.forward.packed

    def call() -> Tensor:
        y: Tensor = forward(x, operands.weight, operands.bias, scalars)
        return y

    return call


def _module(kind: type[nn.ConvTranspose2d], x: Tensor, algorithm: str) -> TensorCall:
    module = kind(TINY.in_channels, TINY.out_channels, TINY.kernel, TINY.stride, TINY.padding)
    module = module.to(device=x.device, dtype=x.dtype)
    if isinstance(module, convt2d_ext.ConvTranspose2d):
        module.algorithm = algorithm

    def call() -> Tensor:
        y: Tensor = module(x)
        return y

    return call


def _step(call: TensorCall, operands: Operands) -> Call:
    return lambda: torch.autograd.backward(call(), operands.grad_y)


def _alternate(ours: Call, theirs: Call, device: torch.device) -> tuple[float, float]:
    """Medians over rounds that take turns, so that a change of clock meets both sides."""

    def microseconds(call: Call) -> float:
        def calls() -> None:
            for _ in range(CALLS_PER_ROUND):
                call()

        return wall_clock(calls, device) / CALLS_PER_ROUND

    microseconds(ours), microseconds(theirs)
    rounds = [(microseconds(ours), microseconds(theirs)) for _ in range(ROUNDS)]
    return (
        statistics.median(first for first, _ in rounds),
        statistics.median(second for _, second in rounds),
    )
