"""README's tables of the yardstick, from what bench_vs.py prints: summaries, and cells torch wins.

python benchmarks/yardstick_tables.py RUN [EARLIER_RUN]...

What a run did not finish of a mode is an earlier one's, or left out.
"""

import re
import sys
from pathlib import Path

MODES = {
    "tf32:nchw": "TF32, NCHW",
    "fp16:nchw": "fp16, NCHW",
    "bf16:nchw": "bf16, NCHW",
    "fp32:nchw": "strict fp32, NCHW",
    "tf32:nhwc": "TF32, NHWC",
    "fp16:nhwc": "fp16, NHWC",
    "bf16:nhwc": "bf16, NHWC",
}
FORWARD = """\
| forward (`--passes fwd`) | speed-up over torch | worst | torch faster | ours × floor \
| torch × floor |
| --- | ---: | ---: | ---: | ---: | ---: |
"""
GRADIENTS = """\
| gradients (`--passes grad_input,grad_weight`) | input: speed-up | torch faster | × floor \
| weight: speed-up | torch faster | × floor |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""
LOSING = """\
| mode, pass | cells below 0.97 | torch's time ÷ ours |
| --- | ---: | --- |
"""
# layer, mode, cells; of a cell: pass, ours / torch
CELLS = re.compile(r"^(\S+) +(\w+:\w+) +((?:fwd|grad_\w+) .*)$", re.MULTILINE)
CELL = re.compile(r"(fwd|grad_\w+) +([\d.]+)/ *([\d.]+)us")
# mode, pass, layers; speed-up, worst, cells that torch wins, ours x floor, torch x floor
LINE = re.compile(r"^(\w+:\w+) +(fwd|grad_\w+) +(\d+)((?: +[\d.]+){5})$", re.MULTILINE)
LAYERS = 44


def summary(path: str) -> dict[tuple[str, str], list[str]]:
    lines = LINE.finditer(Path(path).read_text())
    return {(m[1], m[2]): m[4].split() for m in lines if int(m[3]) == LAYERS}


def lost_cells(path: str) -> dict[tuple[str, str], list[tuple[float, str]]]:
    """For each mode and pass, the layers that torch is faster at, worst first."""
    found: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for layer, mode, cells in CELLS.findall(Path(path).read_text()):
        for direction, ours, theirs in CELL.findall(cells):
            ratio = float(theirs) / float(ours)
            if ratio < 0.97:
                found.setdefault((mode, direction), []).append((ratio, layer))
    return {cell: sorted(layers) for cell, layers in found.items()}


def tables(runs: list[str]) -> dict[str, str]:
    summaries: dict[tuple[str, str], list[str]] = {}
    lost: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for run in reversed(runs):
        finished, lost_here = summary(run), lost_cells(run)
        summaries |= finished
        lost |= {cell: lost_here.get(cell, []) for cell in finished}
    forward, gradients = FORWARD, GRADIENTS
    for mode, title in MODES.items():
        if (mode, "fwd") in summaries:
            forward += f"| {title} | " + " | ".join(summaries[mode, "fwd"]) + " |\n"
        cells = []
        for direction in ("grad_input", "grad_weight"):
            speed_up, _, losing, floor, _ = summaries.get((mode, direction), [""] * 5)
            cells += [speed_up, losing, floor]
        if any(cells):
            gradients += f"| {title} | " + " | ".join(cells) + " |\n"
    rows = ""
    for direction in ("fwd", "grad_input", "grad_weight"):
        for mode, title in MODES.items():
            layers = lost.get((mode, direction), [])
            if layers:
                listed = ", ".join(f"{layer} {ratio:.2f}" for ratio, layer in layers)
                rows += f"| {title} {direction} | {len(layers)} | {listed} |\n"
    return {"forward": forward, "gradients": gradients, "losing": LOSING + rows}


def fill(tables: dict[str, str]) -> None:
    """Puts each between its marks in README."""
    readme = Path(__file__).parent.parent / "README.md"
    page = readme.read_text()
    for name, table in tables.items():
        start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
        before, rest = page.split(start)
        page = before + start + "\n" + table + "\n" + end + rest.split(end)[1]
    readme.write_text(page)


def main() -> None:
    fill({f"yardstick:{name}": table for name, table in tables(sys.argv[1:]).items()})


if __name__ == "__main__":
    main()
