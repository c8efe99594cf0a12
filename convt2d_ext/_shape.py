"""Sizes and memory formats, for ints and SymInts alike: the only Python copy of these formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

Pair = tuple[int, int]


def output_extent(
    extent: int, kernel: int, stride: int, padding: int, output_padding: int, dilation: int
) -> int:
    """How long an axis of the output is."""
    return (extent - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1


def is_channels_last(
    size: Sequence[int], stride: Sequence[int], holds: Callable[[Any], bool] = bool
) -> bool:
    """Whether torch's suggest_memory_format() calls a 4-D tensor channels_last.

    The order of the strides decides, so slices count too; where one channel or one pixel leaves
    the order open, torch looks at the strides of the size-1 axes, and so does this. `holds`
    decides comparisons that are symbolic.
    """
    if holds(stride[1] == 0):
        return False
    least = 0
    for axis in (1, 3, 2, 0):
        if holds(size[axis] == 0) or holds(stride[axis] < least):
            return False
        if axis == 0 and holds(least == stride[1]):
            return False
        least = stride[axis] * size[axis] if holds(size[axis] > 1) else stride[axis]
    return True


class Packed(NamedTuple):
    """All scalars of an inner op in one string, for precision 0 and for precision 1."""

    forward: tuple[str, str]
    grad_input: tuple[str, str]
    grad_weight: tuple[str, str]
    grad_weight_and_bias: tuple[str, str]


@dataclass
class Geometry:
    """One transposed convolution as the inner ops take it: everything but the tensors.

    `forward`, `grad_input` and `grad_weight` are the middle arguments of the inner op of that name;
    they differ in the extent of the result only. `packed` is None where a number is symbolic.
    `convolution` are the arguments of aten::convolution_overrideable after its tensors, None also
    where the algorithm is a given one, which that op has no word for.
    """

    stride: Pair
    padding: Pair
    size: Pair
    out_size: Pair
    kernel: Pair
    dilation: Pair
    groups: int
    channels_last: bool
    algorithm: int
    unbatched: bool = False

    def __post_init__(self) -> None:
        last = (*self.dilation, self.groups, self.channels_last)
        self.forward = (*self.stride, *self.padding, *self.out_size, *last)
        self.grad_input = (*self.stride, *self.padding, *self.size, *last)
        self.grad_weight = (*self.stride, *self.padding, *self.kernel, *last)
        self.packed = self._pack()
        self.convolution = (
            None if self.packed is None or self.algorithm >= 0 else self._convolution()
        )

    def _pack(self) -> Packed | None:
        scalars = self.forward, self.grad_input, self.grad_weight
        if not all(isinstance(number, int) for middle in scalars for number in middle):
            return None
        texts = [",".join(str(int(number)) for number in middle) for middle in scalars]
        forward, grad_input, grad_weight, with_bias = (
            (f"{text},0,{self.algorithm}", f"{text},1,{self.algorithm}")
            for text in (*texts[:2], f"{texts[2]},0", f"{texts[2]},1")
        )
        return Packed(forward, grad_input, grad_weight, with_bias)

    def _convolution(self) -> tuple[Any, ...]:
        output_padding = [
            self.out_size[axis]
            - output_extent(
                self.size[axis],
                self.kernel[axis],
                self.stride[axis],
                self.padding[axis],
                0,
                self.dilation[axis],
            )
            for axis in (0, 1)
        ]
        return (
            list(self.stride),
            list(self.padding),
            list(self.dilation),
            True,
            output_padding,
            self.groups,
        )

    def repeated(self, count: int) -> Geometry:
        """The same convolution `count` times side by side, as groups."""
        return replace(self, groups=self.groups * count)
