"""Latency of the first call of a shape, once the code for it is loaded."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .layers import Layer
from .modes import Mode
from .operands import Convolution, Operands, our_convolution, torch_convolution
from .results import Measurement
from .timing import wall_clock

STEADY_CALLS = 9


@dataclass(frozen=True)
class Latency:
    first: float
    steady: float

    @property
    def ratio(self) -> float:
        return self.first / self.steady


def first_calls(
    layers: Sequence[Layer],
    modes: Sequence[Mode],
    device: torch.device,
    algorithm: str,
    cudnn_benchmark: bool,
) -> list[Measurement]:
    """Host time from the call to the finished result; the steady call is measured the same way."""
    rows = []
    for mode in modes:
        for layer in layers:
            with mode.switches(cudnn_benchmark):
                ours = _first_and_steady(layer, mode, device, our_convolution(algorithm))
                theirs = _first_and_steady(layer, mode, device, torch_convolution)
            found = [
                Measurement(layer.name, f"{mode} first call", ours.first, theirs.first, "µs"),
                Measurement(layer.name, f"{mode} first ÷ steady", ours.ratio, theirs.ratio, "×"),
            ]
            for row in found:
                print(row, flush=True)
            rows += found
    return rows


def _first_and_steady(
    layer: Layer, mode: Mode, device: torch.device, convolution: Convolution
) -> Latency:
    # A neighbouring shape loads the module and the kernels, which is not what this measures.
    neighbour = dataclasses.replace(layer, height=layer.height + 1)
    Operands.random(neighbour, mode, device).call(convolution, "fwd")()
    call = Operands.random(layer, mode, device).call(convolution, "fwd")
    first = wall_clock(call, device)
    return Latency(first, statistics.median(wall_clock(call, device) for _ in range(STEADY_CALLS)))
