"""Errors of strict fp32 against float64, by family, over torch's own: needs a GPU.

    python benchmarks/strict_errors.py

A line is a layer, with normal (randn) or positive (rand) numbers: torch's error, root mean square
and greatest, over the root mean square of the result; then each family's over torch's.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

import convt2d_ext

# Input channels, output channels, kernel, stride, padding.
LAYERS = [(channels, 64, 2, 2, 0) for channels in (16, 32, 64, 96, 128, 256, 1024)]
LAYERS += [(channels, 64, 3, 1, 1) for channels in (16, 64, 256)]
LAYERS += [(64, 64, 4, 2, 1), (64, 8, 4, 2, 1), (512, 64, 4, 2, 1)]


def errors(result: torch.Tensor, exact: torch.Tensor) -> tuple[float, float]:
    scale = exact.square().mean().sqrt()
    distance = result.double() - exact
    return (distance.square().mean().sqrt() / scale).item(), (distance.abs().max() / scale).item()


def main() -> None:
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    for draw in (torch.randn, torch.rand):
        torch.manual_seed(0)
        for channels, columns, kernel, stride, padding in LAYERS:
            x = draw(2, channels, 32, 32, device="cuda")
            w = draw(channels, columns, kernel, kernel, device="cuda")
            where = (None, stride, padding)
            exact = F.conv_transpose2d(x.double(), w.double(), *where)
            torchs = errors(F.conv_transpose2d(x, w, *where), exact)
            line = f"{channels:5} to {columns} k{kernel} s{stride} {draw.__name__:5}"
            line += f" torch {torchs[0]:.2e} max {torchs[1]:.2e}"
            for family in ("fold", "hopper", "igemm", "direct"):
                try:
                    result = convt2d_ext.conv_transpose2d(x, w, *where, algorithm=family)
                except (RuntimeError, ValueError):
                    line += f" {family} declines"
                    continue
                ours = errors(result, exact)
                line += f" {family} {ours[0] / torchs[0]:.2f} max {ours[1] / torchs[1]:.2f}"
            print(line)


if __name__ == "__main__":
    main()
