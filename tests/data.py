"""Inputs of the tests: whole numbers that leave no room for rounding, awkward memory layouts."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import reference
import torch
from cases import Case
from tolerance import Format
from torch import Tensor

DIRECTIONS = ("forward", "grad_input", "grad_weight")

GUARD = 64  # elements of NaN on both sides of every input


def shapes(case: Case, direction: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The two tensors an inner op takes."""
    return {
        "forward": (case.x_shape, case.w_shape),
        "grad_input": (case.y_shape, case.w_shape),
        "grad_weight": (case.y_shape, case.x_shape),
    }[direction]


def _whole(generator: torch.Generator, shape: tuple[int, ...], largest: int) -> Tensor:
    drawn = torch.randint(-largest, largest + 1, shape, generator=generator)
    return drawn.double()


def ranges(terms: int, number_format: Format) -> tuple[int, int]:
    """The largest magnitudes of the two operands for a sum of so many products.

    In fp32 and fp64 no partial sum can leave the exact range, in whatever order it is summed; the
    first operand then takes all the bits there are, so that a multiplication in lower precision
    shows. 16-bit results are kept whole as a random walk keeps them: six deviations. The rare
    result beyond that is still exact before its one rounding, so it too has only one right value.
    """
    if number_format.whole_result == number_format.whole_sum:
        second = 3
        widest = number_format.whole_sum // (2 * terms * second)
        return min(number_format.whole_operand, widest), second
    # A product of two uniform whole numbers up to r has standard deviation r (r + 1) / 3.
    deviation = number_format.whole_result / (6 * math.sqrt(terms))
    largest = max(1, math.floor((math.sqrt(1 + 12 * deviation) - 1) / 2))
    return largest, largest


@functools.lru_cache(maxsize=16)
def integers(
    case: Case, direction: str, number_format: Format, device: str, wide_second: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(first, second, bias, sum): exact in the format; the sum is float64 and without bias."""
    generator = torch.Generator().manual_seed(sum(map(ord, case.name + direction)))
    first_range, second_range = ranges(case.terms(direction), number_format)
    if wide_second:
        first_range, second_range = second_range, first_range
    first_shape, second_shape = shapes(case, direction)
    first = _whole(generator, first_shape, first_range).to(device)
    second = _whole(generator, second_shape, second_range).to(device)
    bias = _whole(generator, (case.out_channels,), 5).to(device)
    total = reference.result(direction, case, first, second, None)
    assert total.abs().max() < number_format.whole_sum, "the data of this case is not exact"
    dtype = number_format.dtype
    return first.to(dtype), second.to(dtype), bias.to(dtype), total


def _placed(tensor: Tensor, memory_format: torch.memory_format, offset: int) -> Tensor:
    """A copy `offset` elements into a buffer that is NaN before and behind it."""
    buffer = tensor.new_full((tensor.numel() + offset + GUARD,), math.nan)
    strides = torch.empty_like(tensor, memory_format=memory_format, device="meta").stride()
    return buffer.as_strided(tensor.shape, strides, offset).copy_(tensor)


def nchw(tensor: Tensor) -> Tensor:
    return _placed(tensor, torch.contiguous_format, GUARD)


def nhwc(tensor: Tensor) -> Tensor:
    return _placed(tensor, torch.channels_last, GUARD)


def unaligned(tensor: Tensor) -> Tensor:
    """Contiguous, at an address that no vector load may assume anything of."""
    return _placed(tensor, torch.contiguous_format, GUARD + 1)


def sliced(tensor: Tensor) -> Tensor:
    """Every other column of a larger image, whose other pixels are NaN."""
    batch, channels, height, width = tensor.shape
    image = tensor.new_full((batch, channels + 1, height + 2, 2 * width + 1), math.nan)
    return image[:, 1:, 1:-1, 1::2].copy_(tensor)


Arrange = Callable[[Tensor], Tensor]

# name: (how the first tensor lies, how the second does, whether the result is channels-last)
LAYOUTS: dict[str, tuple[Arrange, Arrange, bool]] = {
    "nchw": (nchw, nchw, False),
    "nhwc": (nhwc, nhwc, True),
    "mixed": (nchw, nhwc, True),
    "mixed_reverse": (nhwc, nchw, True),
    "unaligned": (unaligned, unaligned, False),
    "sliced": (sliced, sliced, False),
}


def poison(like: Tensor) -> None:
    """Leave NaN in the block that an allocator hands out next for a tensor of this size."""
    torch.full_like(like, math.nan)
