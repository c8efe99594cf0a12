"""README's table of kernels alone: times of `kernel_bench time` over the yardstick's floors.

python benchmarks/kernel_tables.py YARDSTICK_RUN KERNEL_TIMES [EARLIER_KERNEL_TIMES]...

Rates are those that the yardstick measured, since kernel_bench only knows a table's.
"""

import math
import re
import sys
from pathlib import Path

from convt2d_ext.bench.floors import Ceilings, floor
from convt2d_ext.bench.layers import load
from convt2d_ext.bench.modes import Mode

MODES = {
    "tf32:nchw": "TF32, NCHW",
    "fp16:nchw": "fp16, NCHW",
    "fp32:nchw": "strict fp32, NCHW",
    "tf32:nhwc": "TF32, NHWC",
    "fp16:nhwc": "fp16, NHWC",
}
DIRECTIONS = {"fwd": "forward", "grad_input": "grad_input", "grad_weight": "grad_weight"}
# layer, mode, pass, microseconds
LINE = re.compile(r"^(\S+) (\w+:\w+) (fwd|grad_\w+) .*?([\d.]+) us, floor", re.MULTILINE)
LEAST_FLOOR = 4.0  # as the yardstick's means


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
    rows = "| kernels alone, × floor | " + " | ".join(MODES.values()) + " |\n"
    rows += "| --- |" + " ---: |" * len(MODES) + "\n"
    for direction, title in DIRECTIONS.items():
        cells = []
        for mode in MODES:
            logs = 0.0
            for layer in layers:
                least = floor(layer, Mode.parse(mode), direction, limits).us
                ratio = times[layer.name, mode, direction] / max(least, LEAST_FLOOR)
                logs += math.log(max(1.0, ratio))
            cells.append(f"{math.exp(logs / len(layers)):.2f}")
        rows += f"| {title} | " + " | ".join(cells) + " |\n"
    return rows


def main() -> None:
    readme = Path(__file__).parent.parent / "README.md"
    page = readme.read_text()
    start, end = "<!-- kernels -->\n", "<!-- /kernels -->\n"
    before, rest = page.split(start)
    filled = table(sys.argv[1], sys.argv[2:])
    readme.write_text(before + start + "\n" + filled + "\n" + end + rest.split(end)[1])


if __name__ == "__main__":
    main()
