"""python -m convt2d_ext {info,explain,bench,demo}"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import torch

from . import __version__, explain
from ._dispatch import DISABLED, FAMILIES
from .explain import DIRECTIONS


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m convt2d_ext", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, devices and kernel families of this installation")
    _add_explain(commands.add_parser("explain", help="what would run for a layer, and why"))
    for name, purpose in (
        ("bench", "the op against torch's own, on real layers"),
        ("demo", "a short tour: eager, compiled, with gradients"),
    ):
        commands.add_parser(name, help=purpose, add_help=False)
    arguments, rest = parser.parse_known_args(argv)
    # bench and demo have options of their own, and dependencies that info does not need.
    if arguments.command == "bench":
        from .bench import main as bench

        return bench(rest)
    if arguments.command == "demo":
        from .demo import main as demo

        return demo(rest)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    print(_info() if arguments.command == "info" else _explain(arguments))
    return 0


def _info() -> str:
    lines = [
        f"convt2d_ext {__version__}, torch {torch.__version__}, CUDA {torch.version.cuda}",
        "CONVT2D_DISABLE=1: every call goes to ATen" if DISABLED else "enabled",
    ]
    for device_type, families in FAMILIES.items():
        lines.append(f"{device_type} families: {', '.join(families) or 'none in this build'}")
    lines += [
        f"cuda:{index} is {torch.cuda.get_device_name(index)}"
        for index in range(torch.cuda.device_count())
    ]
    return "\n".join(lines)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", type=_numbers, help="N,C_in,H,W")
    parser.add_argument("weight", type=_numbers, help="C_in,C_out/groups,kernel_h,kernel_w")
    for name, default in (
        ("stride", (1,)),
        ("padding", (0,)),
        ("output-padding", (0,)),
        ("dilation", (1,)),
    ):
        parser.add_argument(f"--{name}", type=_numbers, default=default, metavar="H,W")
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--bias", action="store_true")
    parser.add_argument("--dtype", default="float32", help="float16, bfloat16, float32, float64")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--algorithm", default="auto")
    parser.add_argument(
        "--device",
        default="cuda:0" if torch.cuda.is_available() else "cpu",
        help="cpu, cuda:0, or a GPU that need not be here: h200, a100, rtx4090, ...",
    )
    parser.add_argument("--direction", choices=DIRECTIONS, help="all three without it")


def _explain(arguments: argparse.Namespace) -> str:
    memory_format = torch.channels_last if arguments.channels_last else torch.contiguous_format
    x, w = (
        torch.empty(
            shape,
            dtype=getattr(torch, arguments.dtype),
            device="meta",
            memory_format=memory_format,
        )
        for shape in (arguments.input, arguments.weight)
    )
    return explain(
        x,
        w,
        arguments.bias,
        arguments.stride,
        arguments.padding,
        arguments.output_padding,
        arguments.groups,
        arguments.dilation,
        algorithm=arguments.algorithm,
        device=arguments.device,
        directions=(arguments.direction,) if arguments.direction else DIRECTIONS,
    ).rstrip()


if __name__ == "__main__":
    sys.exit(main())
