"""Time of one call with a cold cache, and of two calls against each other."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

Call = Callable[[], object]

# Larger than any GPU's L2, so that writing it pushes every operand out.
FLUSH_BYTES = 256 << 20
WARM_UP_CALLS = 2
BUDGET_PER_SIDE_MS = 60.0


class Stopwatch:
    """CUDA events and a flushed L2 on a GPU, wall-clock on a CPU. Times are in microseconds."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._flush = (
            torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)
            if device.type == "cuda"
            else None
        )

    def median(self, call: Call, repeats: int) -> float:
        for _ in range(WARM_UP_CALLS):
            call()
        if self._flush is None:
            return statistics.median(wall_clock(call) for _ in range(repeats))
        event: Any = torch.cuda.Event
        spans = []
        for _ in range(repeats):
            start, end = event(enable_timing=True), event(enable_timing=True)
            self._flush.zero_()
            start.record()
            call()
            end.record()
            spans.append((start, end))
        torch.cuda.synchronize(self.device)
        milliseconds = statistics.median(start.elapsed_time(end) for start, end in spans)
        return float(milliseconds) * 1e3

    def compare(self, ours: Call, theirs: Call, repeats: int) -> tuple[float, float]:
        """The lower of two medians for each side, taken in the order A B A B."""
        ours()
        theirs()
        once_ms = wall_clock(lambda: (ours(), theirs()), self.device) / 1e3
        repeats = max(3, min(repeats, int(BUDGET_PER_SIDE_MS / max(once_ms, 1e-3))))
        rounds = [(self.median(ours, repeats), self.median(theirs, repeats)) for _ in range(2)]
        return min(first for first, _ in rounds), min(second for _, second in rounds)


def wall_clock(call: Call, device: torch.device | None = None) -> float:
    """One call in microseconds, a GPU drained before and after."""
    wait(device)
    start = time.perf_counter()
    call()
    wait(device)
    return (time.perf_counter() - start) * 1e6


def wait(device: torch.device | None) -> None:
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)
