"""README's two tables of the yardstick, from the summaries that bench_vs.py prints at its end.

python benchmarks/yardstick_tables.py FORWARD [GRADIENTS]

Two runs, or one for both. A mode that a run did not finish is left out.
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
# mode, pass, layers; speed-up, worst, cells that torch wins, ours x floor, torch x floor
LINE = re.compile(r"^(\w+:\w+) +(fwd|grad_\w+) +(\d+)((?: +[\d.]+){5})$", re.MULTILINE)
LAYERS = 44


def summary(path: str) -> dict[tuple[str, str], list[str]]:
    lines = LINE.finditer(Path(path).read_text())
    return {(m[1], m[2]): m[4].split() for m in lines if int(m[3]) == LAYERS}


def tables(run: str, run_of_gradients: str) -> dict[str, str]:
    forward, gradients = FORWARD, GRADIENTS
    fwd, grad = summary(run), summary(run_of_gradients)
    for mode, title in MODES.items():
        if (mode, "fwd") in fwd:
            forward += f"| {title} | " + " | ".join(fwd[mode, "fwd"]) + " |\n"
        cells = []
        for direction in ("grad_input", "grad_weight"):
            speed_up, _, losing, floor, _ = grad.get((mode, direction), [""] * 5)
            cells += [speed_up, losing, floor]
        if any(cells):
            gradients += f"| {title} | " + " | ".join(cells) + " |\n"
    return {"forward": forward, "gradients": gradients}


def main() -> None:
    readme = Path(__file__).parent.parent / "README.md"
    page = readme.read_text()
    for name, table in tables(sys.argv[1], sys.argv[-1]).items():
        start, end = f"<!-- yardstick:{name} -->\n", f"<!-- /yardstick:{name} -->\n"
        before, rest = page.split(start)
        page = before + start + "\n" + table + "\n" + end + rest.split(end)[1]
    readme.write_text(page)


if __name__ == "__main__":
    main()
