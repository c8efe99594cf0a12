"""Whole training steps: forward, backward and Adam, ours against torch in one run.

The loss curve of ours has to lie among torch's own: torch is run several times from the same
weights and data, with `cudnn.benchmark` on and off in turn. The largest distance between two of
its curves (mean |difference| over the steps) is the spread that ours is held to.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

import torch
from torch import Tensor

import convt2d_ext

from .modes import Mode
from .results import Measurement
from .timing import wall_clock
from .workloads import WORKLOADS, Batch, Size, Workload, batches

TRAINING_MODES = "tf32:nchw,bf16:nchw,bf16:nhwc"
WARM_UP_STEPS = 3
STEPS_PER_ROUND = 10
ROUNDS = 5
BATCHES = 8
LAST = 20


class Trainer:
    """fp32 weights; a 16-bit mode means autocast to it."""

    def __init__(
        self, workload: Workload, size: Size, mode: Mode, device: torch.device, ours: bool
    ) -> None:
        torch.manual_seed(0)
        model = workload.build(size).to(device).to(memory_format=mode.memory_format)
        self._model = convt2d_ext.convert(model) if ours else model
        self._workload = workload
        self._mode = mode
        self._device = device
        self._optimizers = [
            torch.optim.Adam(self._model.get_submodule(part).parameters(), 2e-4, (0.5, 0.999))
            for part in workload.parts
        ]

    def step(self, batch: Batch) -> Tensor:
        total = torch.zeros((), device=self._device)
        losses = self._workload.losses(self._model, batch)
        half = self._mode.dtype.itemsize == 2
        for optimizer in self._optimizers:
            with torch.autocast(
                self._device.type, self._mode.dtype if half else torch.bfloat16, enabled=half
            ):
                loss = next(losses)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            total += loss.detach()
        return total

    def curve(self, data: Sequence[Batch], steps: int) -> list[float]:
        losses = [self.step(batch) for batch in itertools.islice(itertools.cycle(data), steps)]
        return [float(loss) for loss in torch.stack(losses).cpu()]


def train(
    modes: Sequence[Mode], device: torch.device, steps: int, repeats: int, only: str
) -> list[Measurement]:
    rows = []
    for workload in WORKLOADS:
        if only and not any(word in workload.name for word in only.split(",")):
            continue
        size = workload.gpu if device.type == "cuda" else workload.cpu
        data = batches(size, BATCHES, device)
        for mode in modes:
            found = [_step_time(workload, size, mode, data)]
            if device.type == "cuda":
                found.append(_peak_memory(workload, size, mode, data))
            found.append(_loss_distance(workload, size, mode, data, steps, repeats))
            for row in found:
                print(row, flush=True)
            rows += found
    return rows


def _step_time(workload: Workload, size: Size, mode: Mode, data: Sequence[Batch]) -> Measurement:
    device = data[0].images.device
    with mode.switches(cudnn_benchmark=True):
        ours = Trainer(workload, size, mode, device, ours=True)
        theirs = Trainer(workload, size, mode, device, ours=False)
        for trainer in (ours, theirs):
            trainer.curve(data, WARM_UP_STEPS)
        rounds = [(_round(ours, data), _round(theirs, data)) for _ in range(ROUNDS)]
    ours_ms, torch_ms = (statistics.median(side) for side in zip(*rounds, strict=True))
    note = f"×{torch_ms / ours_ms:.2f}; batch {size.batch}, {size.image} px"
    return Measurement(workload.name, f"{mode} step", ours_ms, torch_ms, "ms", note)


def _round(trainer: Trainer, data: Sequence[Batch]) -> float:
    """Milliseconds a step."""
    us = wall_clock(lambda: trainer.curve(data, STEPS_PER_ROUND), data[0].images.device)
    return us / 1e3 / STEPS_PER_ROUND


def _peak_memory(workload: Workload, size: Size, mode: Mode, data: Sequence[Batch]) -> Measurement:
    device = data[0].images.device
    peaks = []
    for ours in (True, False):
        with mode.switches(cudnn_benchmark=True):
            torch.cuda.empty_cache()
            trainer = Trainer(workload, size, mode, device, ours)
            trainer.curve(data, WARM_UP_STEPS)
            torch.cuda.reset_peak_memory_stats(device)
            trainer.curve(data, WARM_UP_STEPS)
            peaks.append(torch.cuda.max_memory_allocated(device) / 1e6)
            del trainer
    return Measurement(workload.name, f"{mode} peak memory", peaks[0], peaks[1], "MB")


def _loss_distance(
    workload: Workload, size: Size, mode: Mode, data: Sequence[Batch], steps: int, repeats: int
) -> Measurement:
    device = data[0].images.device

    def curve(ours: bool, cudnn_benchmark: bool) -> list[float]:
        with mode.switches(cudnn_benchmark):
            return Trainer(workload, size, mode, device, ours).curve(data, steps)

    ours = curve(ours=True, cudnn_benchmark=True)
    theirs = [curve(ours=False, cudnn_benchmark=run % 2 == 0) for run in range(repeats)]
    nearest = min(_distance(ours, run) for run in theirs)
    spread = max((_distance(a, b) for a, b in itertools.combinations(theirs, 2)), default=0.0)
    last = [statistics.mean(run[-LAST:]) for run in (ours, *theirs)]
    verdict = "within" if nearest <= spread else "OUTSIDE"
    note = f"{verdict} torch's spread of {repeats} runs; loss of the last {LAST} steps: "
    note += f"ours {last[0]:.4g}, torch {min(last[1:]):.4g} to {max(last[1:]):.4g}"
    return Measurement(
        workload.name, f"{mode} loss distance, {steps} steps", nearest, spread, "loss", note
    )


def _distance(first: Sequence[float], second: Sequence[float]) -> float:
    return statistics.mean(abs(a - b) for a, b in zip(first, second, strict=True))
