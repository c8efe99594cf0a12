"""README's two tables of the yardstick, from the summary that bench_vs.py prints at its end.

python benchmarks/yardstick_tables.py benchmarks/results/h200/bench_vs.txt
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


def tables(text: str) -> dict[str, str]:
    found = {(m[1], m[2]): m[4].split() for m in LINE.finditer(text)}
    forward, gradients = FORWARD, GRADIENTS
    for mode, title in MODES.items():
        forward += f"| {title} | " + " | ".join(found[mode, "fwd"]) + " |\n"
        cells = []
        for direction in ("grad_input", "grad_weight"):
            speed_up, _, losing, floor, _ = found[mode, direction]
            cells += [speed_up, losing, floor]
        gradients += f"| {title} | " + " | ".join(cells) + " |\n"
    return {"forward": forward, "gradients": gradients}


def main() -> None:
    readme = Path(__file__).parent.parent / "README.md"
    page = readme.read_text()
    for name, table in tables(Path(sys.argv[1]).read_text()).items():
        start, end = f"<!-- yardstick:{name} -->\n", f"<!-- /yardstick:{name} -->\n"
        before, rest = page.split(start)
        page = before + start + "\n" + table + "\n" + end + rest.split(end)[1]
    readme.write_text(page)


if __name__ == "__main__":
    main()
