"""Layers × modes × passes, ours against torch in one run."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .accuracy import Errors, measure_errors
from .floors import Ceilings, floor
from .layers import Layer
from .markdown import number
from .modes import Mode
from .operands import Operands, our_convolution, torch_convolution
from .prediction import predict
from .results import TimedRow
from .timing import Stopwatch


@dataclass(frozen=True)
class SuiteOptions:
    """What to run. `budget_s` stops a long run between layers; `samples` 0 leaves errors out."""

    layers: Sequence[Layer]
    modes: Sequence[Mode]
    passes: Sequence[str]
    algorithm: str
    cudnn_benchmark: bool
    repeats: int
    budget_s: float
    samples: int


def run(options: SuiteOptions, watch: Stopwatch, ceilings: Ceilings | None) -> list[TimedRow]:
    """Without ceilings, errors alone."""
    rows: list[TimedRow] = []
    started = time.monotonic()
    total = len(options.modes) * len(options.layers)
    done = 0
    for mode in options.modes:
        for layer in options.layers:
            elapsed = time.monotonic() - started
            if elapsed > options.budget_s:
                print(f"stopped after {elapsed:.0f} s, {total - done} of {total} left", flush=True)
                return rows
            with mode.switches(options.cudnn_benchmark):
                found = _guarded(options, layer, mode, watch, ceilings)
            rows += found
            done += 1
            print(f"[{done:3d}/{total}] {_line(layer, mode, found)}", flush=True)
            if watch.device.type == "cuda":
                torch.cuda.empty_cache()
    return rows


def _guarded(
    options: SuiteOptions, layer: Layer, mode: Mode, watch: Stopwatch, ceilings: Ceilings | None
) -> list[TimedRow]:
    """A layer that fails is a row that says so; the suite goes on."""
    try:
        return _measure(options, layer, mode, watch, ceilings)
    except (RuntimeError, ValueError, NotImplementedError) as error:
        first_line = (str(error).splitlines() or [""])[0][:200]
        failure = f"{type(error).__name__}: {first_line}"
        return [TimedRow(layer.name, str(mode), name, failure=failure) for name in options.passes]


def _measure(
    options: SuiteOptions, layer: Layer, mode: Mode, watch: Stopwatch, ceilings: Ceilings | None
) -> list[TimedRow]:
    operands = Operands.random(layer, mode, watch.device)
    ours = our_convolution(options.algorithm)
    errors = measure_errors(operands, mode, ours, options.samples) if options.samples else {}
    rows = []
    for name in options.passes:
        row = TimedRow(layer.name, str(mode), name)
        if error := _error_of(errors, name):
            row = dataclasses.replace(row, ours_error=error.ours, torch_error=error.torch)
        if ceilings:
            least = floor(layer, mode, name, ceilings)
            ours_us, torch_us = watch.compare(
                operands.call(ours, name), operands.call(torch_convolution, name), options.repeats
            )
            row = dataclasses.replace(
                row, ours_us=ours_us, torch_us=torch_us, floor_us=least.us, bound=least.bound
            )
        predicted = predict(operands, name, options.algorithm)
        rows.append(dataclasses.replace(row, family=predicted.family, predicted_us=predicted.us))
    return rows


def _error_of(errors: dict[str, Errors], pass_name: str) -> Errors | None:
    """A step is as wrong as the worst of its parts; the bias gradient belongs to grad_weight."""
    parts = {"grad_weight": ("grad_weight", "grad_bias"), "step": tuple(errors)}
    found = [errors[name] for name in parts.get(pass_name, (pass_name,)) if name in errors]
    return max(found, key=lambda error: (not error.acceptable, error.ours), default=None)


def _line(layer: Layer, mode: Mode, rows: Sequence[TimedRow]) -> str:
    parts = []
    for row in rows:
        part = row.pass_name
        if row.ours_us is not None and row.torch_us is not None:
            part += f" {row.ours_us:.1f}/{row.torch_us:.1f} us x{row.speed_up:.2f}"
            part += f" floor x{row.ours_over_floor:.1f}/{row.torch_over_floor:.1f}"
        if row.ours_error is not None:
            part += f" err {number(row.ours_error, 2)}/{number(row.torch_error, 2)}"
        part += f" {row.family}" if row.family else ""
        part += "" if row.error_acceptable else " BAD " + row.failure
        parts.append(part)
    return f"{layer.name[:20]:20s} {mode!s:9s} " + " | ".join(parts)
