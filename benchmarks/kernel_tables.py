"""README's table of kernels alone: times of `kernel_bench time` over the yardstick's floors.

python benchmarks/kernel_tables.py YARDSTICK_RUN KERNEL_TIMES [EARLIER_KERNEL_TIMES]...

Rates are those that the yardstick measured, since kernel_bench only knows a table's.
"""

import re
import sys
from pathlib import Path

from yardstick_tables import MODES, fill

from convt2d_ext.bench.floors import Ceilings, floor
from convt2d_ext.bench.layers import load
from convt2d_ext.bench.modes import Mode
from convt2d_ext.bench.results import geometric_mean, times_floor

TIMED = ("tf32:nchw", "fp16:nchw", "fp32:nchw", "tf32:nhwc", "fp16:nhwc")
DIRECTIONS = {"fwd": "forward", "grad_input": "grad_input", "grad_weight": "grad_weight"}
# layer, mode, pass, microseconds
LINE = re.compile(r"^(\S+) (\w+:\w+) (fwd|grad_\w+) .*?([\d.]+) us, floor", re.MULTILINE)


def ceilings(yardstick: str) -> Ceilings:
    head = Path(yardstick).read_text().split("\n", 1)[0]
    copy = re.search(r"copy ([\d.]+) TB/s", head)
    assert copy is not None, head
    rates = {name: float(rate) * 1e12 for name, rate in re.findall(r"(\w+) (\d+) TF", head)}
    rates["fp32"] = max(rates["fp32"], rates["tf32"] / 3)
    return Ceilings(float(copy[1]) * 1e12, rates)


def table(yardstick: str, runs: list[str]) -> str:
    limits = ceilings(yardstick)
    times: dict[tuple[str, str, str], float] = {}
    for run in reversed(runs):
        for layer, mode, direction, us in LINE.findall(Path(run).read_text()):
            times[layer, mode, direction] = float(us)
    layers = load("layers")
    rows = "| kernels alone, × floor | " + " | ".join(MODES[mode] for mode in TIMED) + " |\n"
    rows += "| --- |" + " ---: |" * len(TIMED) + "\n"
    for direction, title in DIRECTIONS.items():
        cells = []
        for mode in TIMED:
            ratios = (
                times_floor(
                    times[layer.name, mode, direction],
                    floor(layer, Mode.parse(mode), direction, limits).us,
                )
                for layer in layers
            )
            cells.append(f"{geometric_mean(ratios):.2f}")
        rows += f"| {title} | " + " | ".join(cells) + " |\n"
    return rows


def main() -> None:
    fill({"kernels": table(sys.argv[1], sys.argv[2:])})


if __name__ == "__main__":
    main()
