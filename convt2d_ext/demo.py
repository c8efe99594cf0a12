"""`python -m convt2d_ext demo`: the op on real layers, beside torch's own, in under two minutes.

Eager, with gradients and under torch.compile: times, errors against float64, and the family that
served it. Without a GPU the layers are scaled down and the C++ definition of the operator runs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

import convt2d_ext

from .bench import provenance
from .bench.accuracy import Errors, measure_errors
from .bench.layers import Layer, load
from .bench.markdown import number, table
from .bench.modes import Mode
from .bench.operands import Operands, our_convolution, torch_convolution
from .bench.prediction import predict
from .bench.timing import Stopwatch

LAYERS = ("dcgan_g4", "cyclegan_up1", "unet_up4", "dla_up8_c64", "hifigan_u0", "kernelbench_1_75")
GPU_MODES = ("tf32:nchw", "fp16:nchw", "fp16:nhwc")
CPU_MODES = ("fp32:nchw",)
CPU_MULTIPLY_ADDS = 4_000_000
REPEATS = 9
BUDGET_S = 100.0


@dataclass(frozen=True)
class Row:
    layer: Layer
    mode: Mode
    forward_us: tuple[float, float]
    step_us: tuple[float, float]
    compiled_us: float
    eager_errors: dict[str, Errors]
    compiled_errors: dict[str, Errors]
    family: str

    @property
    def acceptable(self) -> bool:
        found = [*self.eager_errors.values(), *self.compiled_errors.values()]
        return all(error.acceptable for error in found)


def main(argv: Sequence[str] | None = None) -> int:
    """0 if every error was acceptable, else 1."""
    gpu = torch.cuda.is_available()
    device = torch.device("cuda" if gpu else "cpu")
    print(provenance.collect(device))
    if not gpu:
        print("no GPU: small layers, the C++ definition of the operator, against ATen")
    layers = [layer for layer in load("layers") if layer.name in LAYERS]
    if not gpu:
        layers = [layer.scaled(CPU_MULTIPLY_ADDS) for layer in layers]

    watch = Stopwatch(device)
    started = time.monotonic()
    rows = []
    for text in GPU_MODES if gpu else CPU_MODES:
        for layer in layers:
            if time.monotonic() - started > BUDGET_S:
                print(f"stopped after {BUDGET_S:.0f} s")
                break
            print(f"{text} {layer.name}: {layer.describe()}", flush=True)
            rows.append(_measure(layer, Mode.parse(text), watch, "auto" if gpu else "direct"))
    print("\n" + _table(rows))
    print(_verdict(rows))
    return 0 if all(row.acceptable for row in rows) else 1


def _measure(layer: Layer, mode: Mode, watch: Stopwatch, algorithm: str) -> Row:
    ours = our_convolution(algorithm)
    # A graph of its own for each layer: the demo is about the op, not about recompilation.
    torch.compiler.reset()
    compiled = torch.compile(ours, fullgraph=True, dynamic=False)
    with mode.switches(cudnn_benchmark=True):
        operands = Operands.random(layer, mode, watch.device)

        def compare(pass_name: str) -> tuple[float, float]:
            return watch.compare(
                operands.call(ours, pass_name),
                operands.call(torch_convolution, pass_name),
                REPEATS,
            )

        return Row(
            layer,
            mode,
            compare("fwd"),
            compare("step"),
            watch.median(operands.call(compiled, "step"), REPEATS),
            measure_errors(operands, mode, ours),
            measure_errors(operands, mode, compiled),
            predict(operands, "fwd", algorithm).family,
        )


def _table(rows: Sequence[Row]) -> str:
    header = [
        "layer",
        "mode",
        "family",
        "forward µs",
        "torch",
        "×",
        "forward + backward µs",
        "torch",
    ]
    header += ["×", "compiled", "error: eager", "compiled", "torch"]
    return table(
        header,
        (
            [
                row.layer.name,
                str(row.mode),
                row.family,
                *_against(row.forward_us),
                *_against(row.step_us),
                number(row.compiled_us),
                number(max(error.ours for error in row.eager_errors.values())),
                number(max(error.ours for error in row.compiled_errors.values())),
                number(max(error.torch or 0.0 for error in row.eager_errors.values())),
            ]
            for row in rows
        ),
        text_columns=3,
    )


def _against(pair: tuple[float, float]) -> list[str]:
    ours, theirs = pair
    return [number(ours), number(theirs), number(theirs / ours)]


def _verdict(rows: Sequence[Row]) -> str:
    wrong = [f"{row.layer.name} {row.mode}" for row in rows if not row.acceptable]
    if wrong:
        return "errors too large, more than 2 × torch's own + 1 rounding unit: " + ", ".join(wrong)
    return (
        "errors: worst element of output and gradients against float64, in rounding units;\n"
        f"all {len(rows)} at most 2 × torch's own + 1.  convt2d_ext {convt2d_ext.__version__}"
    )
