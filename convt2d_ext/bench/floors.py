"""The physical floor of a layer: every byte moved once, every multiply done once.

Both rates are measured in the run that uses them. Strict fp32 counts a third of the TF32 matmul
rate where that is faster than the CUDA cores, because three TF32 products make an fp32 one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .layers import Layer
from .modes import DTYPES, Mode
from .timing import Stopwatch

PASSES = ("fwd", "grad_input", "grad_weight", "step")
MORE_PASSES = ("grad_bias",)  # for who asks for them


@dataclass(frozen=True)
class Ceilings:
    copy_bytes_per_s: float
    flops: dict[str, float]  # by arithmetic

    def __str__(self) -> str:
        rates = ", ".join(f"{name} {rate / 1e12:.3g}" for name, rate in self.flops.items())
        return f"copy {self.copy_bytes_per_s / 1e12:.3g} TB/s; matmul TFLOP/s: {rates}"


@dataclass(frozen=True)
class Floor:
    us: float
    bound: str  # "bytes" or "math"


def measure_ceilings(watch: Stopwatch) -> Ceilings:
    gpu = watch.device.type == "cuda"
    copy = _copy_rate(watch, 1 << (30 if gpu else 26))
    size = 8192 if gpu else 512
    measured = {name: _matmul_rate(watch, name, size) for name in ("fp32", "tf32", "fp16", "bf16")}
    strict = max(measured["fp32"], measured["tf32"] / 3)
    return Ceilings(copy, {**measured, "fp32": strict, "fp64": measured["fp32"]})


def _copy_rate(watch: Stopwatch, size: int) -> float:
    source = torch.ones(size, dtype=torch.uint8, device=watch.device)
    target = torch.empty_like(source)
    return 2 * size / watch.median(lambda: target.copy_(source), 10) * 1e6


def _matmul_rate(watch: Stopwatch, arithmetic: str, size: int) -> float:
    left = torch.randn(size, size, device=watch.device).to(DTYPES[arithmetic])
    right = torch.randn_like(left)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if arithmetic == "tf32" else "highest")
    try:
        return 2 * size**3 / watch.median(lambda: left @ right, 5) * 1e6
    finally:
        torch.set_float32_matmul_precision(before)


def floor(layer: Layer, mode: Mode, pass_name: str, ceilings: Ceilings) -> Floor:
    """A step is its three passes one after the other."""
    if pass_name == "step":
        parts = [floor(layer, mode, name, ceilings) for name in PASSES[:3]]
        return Floor(sum(part.us for part in parts), max(parts, key=lambda part: part.us).bound)
    if pass_name == "grad_bias":
        read_once = _count(layer.output_shape) * mode.dtype.itemsize
        return Floor(read_once / ceilings.copy_bytes_per_s * 1e6, "bytes")
    output_rows = layer.output_shape[2]
    read = 1.0 if pass_name == "fwd" else layer.touched_rows() / output_rows
    elements = _count(layer.input_shape) + _count(layer.weight_shape)
    moved = (elements + _count(layer.output_shape) * read) * mode.dtype.itemsize
    bytes_us = moved / ceilings.copy_bytes_per_s * 1e6
    math_us = 2 * layer.multiply_adds() / ceilings.flops[mode.arithmetic] * 1e6
    return Floor(max(bytes_us, math_us), "bytes" if bytes_us >= math_us else "math")


def _count(shape: tuple[int, int, int, int]) -> int:
    return shape[0] * shape[1] * shape[2] * shape[3]
