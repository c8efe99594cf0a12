"""One transposed-convolution layer as plain numbers, the tables of layers, and how to read them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Any

Pair = tuple[int, int]


@dataclass(frozen=True)
class Layer:
    name: str
    batch: int
    in_channels: int
    out_channels: int
    height: int
    width: int
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    output_padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    bias: bool = True
    source: str = ""

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.in_channels, self.height, self.width

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        return self.in_channels, self.out_channels // self.groups, *self.kernel

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.out_channels, self._out(0), self._out(1)

    @property
    def arguments(self) -> tuple[Pair, Pair, Pair, int, Pair]:
        """Everything after the bias, in the argument order of F.conv_transpose2d."""
        return self.stride, self.padding, self.output_padding, self.groups, self.dilation

    def multiply_adds(self) -> int:
        """Products of an input element and a tap that land inside the output."""
        pairs = self._valid_taps(0) * self._valid_taps(1)
        return self.batch * self.in_channels * (self.out_channels // self.groups) * pairs

    def touched_rows(self) -> int:
        """Output rows that some tap reaches: the only rows a gradient has to read."""
        rows: set[int] = set()
        for tap in range(self.kernel[0]):
            first = tap * self.dilation[0] - self.padding[0]
            rows.update(range(first, first + self.height * self.stride[0], self.stride[0]))
        return sum(0 <= row < self._out(0) for row in rows)

    def scaled(self, multiply_adds: int) -> Layer:
        """The same geometry, halved in batch, image and channels until a CPU can run it."""
        layer = self
        while layer.multiply_adds() > multiply_adds:
            smaller = layer._halved()
            if smaller == layer:
                break
            layer = smaller
        return layer

    def describe(self) -> str:
        def pair(value: Pair) -> str:
            return str(value[0]) if value[0] == value[1] else f"{value[0]}x{value[1]}"

        text = f"{'x'.join(map(str, self.input_shape))} to {self.out_channels} k{pair(self.kernel)}"
        for letter, value, usual in (
            ("s", self.stride, (1, 1)),
            ("p", self.padding, (0, 0)),
            ("op", self.output_padding, (0, 0)),
            ("d", self.dilation, (1, 1)),
        ):
            text += f" {letter}{pair(value)}" if value != usual else ""
        return text + (f" g{self.groups}" if self.groups > 1 else "")

    def _out(self, axis: int) -> int:
        size = (self.height, self.width)[axis]
        reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1 + self.output_padding[axis]
        return (size - 1) * self.stride[axis] - 2 * self.padding[axis] + reach

    def _valid_taps(self, axis: int) -> int:
        size, stride = (self.height, self.width)[axis], self.stride[axis]
        count = 0
        for tap in range(self.kernel[axis]):
            shift = tap * self.dilation[axis] - self.padding[axis]
            first = max(0, -(shift // stride))
            last = min(size - 1, (self._out(axis) - 1 - shift) // stride)
            count += max(0, last - first + 1)
        return count

    def _halved(self) -> Layer:
        """Fewer samples first, then the largest size; odd sizes stay odd and even ones even."""
        if self.batch > 2:
            return dataclasses.replace(self, batch=self.batch // 2)
        sizes = {
            "height": self.height,
            "width": self.width,
            "groups": self.groups,
            "group_in": self.in_channels // self.groups,
            "group_out": self.out_channels // self.groups,
        }
        largest = max(sizes, key=lambda name: sizes[name])
        if sizes[largest] < 8:
            return self
        half = sizes[largest] // 2
        sizes[largest] = half + (half - sizes[largest]) % 2
        return dataclasses.replace(
            self,
            height=sizes["height"],
            width=sizes["width"],
            groups=sizes["groups"],
            in_channels=sizes["groups"] * sizes["group_in"],
            out_channels=sizes["groups"] * sizes["group_out"],
        )


def load(table: str) -> list[Layer]:
    """A table that ships with the package: "layers" or "off_list"."""
    text = resources.files(__package__).joinpath(f"{table}.json").read_text(encoding="utf-8")
    return [from_json(row) for row in json.loads(text)]


def from_json(row: dict[str, Any]) -> Layer:
    def pair(key: str) -> Pair:
        return row[key][0], row[key][1]

    return Layer(
        name=row["name"],
        batch=row["N"],
        in_channels=row["Cin"],
        out_channels=row["Cout"],
        height=row["H"],
        width=row["W"],
        kernel=pair("kernel"),
        stride=pair("stride"),
        padding=pair("padding"),
        output_padding=pair("output_padding"),
        dilation=pair("dilation"),
        groups=row["groups"],
        bias=row["bias"],
        source=row["source"],
    )


def parse(text: str) -> Layer:
    """A layer as a user writes it: "N=16 Cin=32 Cout=64 H=128 W=256 k=3x5 s=2x3 p=1 d=2 g=4"."""
    fields = {"N": "1", "s": "1", "p": "0", "op": "0", "d": "1", "g": "1", "bias": "1"}
    known = {*fields, "Cin", "Cout", "H", "W", "k"}
    for word in text.replace(",", " ").split():
        key, equals, value = word.partition("=")
        if not equals or key not in known:
            raise ValueError(f"layer: {word!r} is not one of {' '.join(sorted(known))} = value")
        fields[key] = value
    if missing := known - fields.keys():
        raise ValueError(f"layer: {' '.join(sorted(missing))} missing in {text!r}")

    def pair(key: str) -> Pair:
        first, _, second = fields[key].partition("x")
        return int(first), int(second or first)

    positive = ("N", "Cin", "Cout", "H", "W", "g", "k", "s", "d")
    if wrong := [key for key in positive if min(pair(key)) < 1]:
        raise ValueError(f"layer: {' '.join(wrong)} must be positive in {text!r}")

    layer = Layer(
        name="user",
        batch=int(fields["N"]),
        in_channels=int(fields["Cin"]),
        out_channels=int(fields["Cout"]),
        height=int(fields["H"]),
        width=int(fields["W"]),
        kernel=pair("k"),
        stride=pair("s"),
        padding=pair("p"),
        output_padding=pair("op"),
        dilation=pair("d"),
        groups=int(fields["g"]),
        bias=bool(int(fields["bias"])),
        source="command line",
    )
    return dataclasses.replace(layer, name=layer.describe().replace(" ", "_"))


def selected(layers: Iterable[Layer], only: str) -> list[Layer]:
    """Those whose name contains one of the comma-separated words; all for an empty string."""
    words = [word for word in only.split(",") if word]
    return [layer for layer in layers if not words or any(word in layer.name for word in words)]
