"""A mode of the bench: arithmetic and memory layout, written "tf32:nchw"."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

DTYPES = {
    "tf32": torch.float32,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp64": torch.float64,
}
LAYOUTS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
DEFAULT_MODES = "tf32:nchw,fp32:nchw,fp16:nchw,fp16:nhwc,bf16:nchw,bf16:nhwc"


@dataclass(frozen=True)
class Mode:
    arithmetic: str
    layout: str

    @classmethod
    def parse(cls, text: str) -> Mode:
        arithmetic, _, layout = text.partition(":")
        if arithmetic not in DTYPES or layout not in LAYOUTS:
            raise ValueError(f"mode {text!r}: expected one of {'|'.join(DTYPES)}:nchw|nhwc")
        return cls(arithmetic, layout)

    def __str__(self) -> str:
        return f"{self.arithmetic}:{self.layout}"

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.arithmetic]

    @property
    def memory_format(self) -> torch.memory_format:
        return LAYOUTS[self.layout]

    @property
    def rounding_unit(self) -> float:
        """Spacing of the numbers that are multiplied: TF32 keeps 10 bits of the fraction."""
        return 2.0**-10 if self.arithmetic == "tf32" else torch.finfo(self.dtype).eps

    @contextmanager
    def switches(self, cudnn_benchmark: bool) -> Iterator[None]:
        """torch's process-wide settings for this mode, put back afterwards.

        Set through `allow_tf32`, which keeps torch's old and new flags in step, and read through
        the new one, which can always be read.
        """
        cudnn: Any = torch.backends.cudnn
        before = cudnn.benchmark, cudnn.conv.fp32_precision == "tf32"
        cudnn.benchmark, cudnn.allow_tf32 = cudnn_benchmark, self.arithmetic == "tf32"
        try:
            yield
        finally:
            cudnn.benchmark, cudnn.allow_tf32 = before


def parse_modes(text: str) -> list[Mode]:
    return [Mode.parse(word) for word in text.split(",") if word]
