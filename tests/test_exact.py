"""Whole numbers, bit for bit: every case x format x direction x layout x algorithm.

The inputs leave no room for rounding (see data.ranges), so there is one right answer; NaN lies
around every input and in the memory that results are made of. One wrong pixel fails.
"""

import calls
import pytest
import torch
from calls import DEVICE_FORMATS, DEVICES, INNER
from cases import BY_NAME, CASES
from data import DIRECTIONS, LAYOUTS, integers, poison
from reference import grad_bias
from tolerance import FORMATS, assert_exact


def check_layout(layout, direction, case, device, number_format, with_bias=True):
    """Every family on the same operands. A result with bias, but in the layout `mixed`."""
    arrange_first, arrange_second, channels_last = LAYOUTS[layout]
    wide_second = channels_last and number_format.name == "f32"  # low bits on either side count
    first, second, bias, total = integers(case, direction, number_format, device, wide_second)
    bias = bias if with_bias and layout != "mixed" else None
    if direction == "forward" and bias is not None:
        total = total + bias.double()[:, None, None]
    expected = total.to(first.dtype)
    operands = arrange_first(first), arrange_second(second)
    order = torch.channels_last if channels_last else torch.contiguous_format

    def check(result, bias_gradient):
        assert_exact(result, expected)
        assert result.is_contiguous(memory_format=order)
        if direction == "grad_weight" and bias is not None:
            assert_exact(bias_gradient, grad_bias(first).to(first.dtype))

    calls.check_every_family(
        check,
        direction,
        case,
        *operands,
        bias,
        before=lambda: poison(expected),
        channels_last=channels_last,
        precision=number_format.precision,
    )


def check_layouts(direction, case, device, number_format, with_bias=True):
    failures = []
    for layout in LAYOUTS:
        try:
            check_layout(layout, direction, case, device, number_format, with_bias)
        except AssertionError as error:
            failures.append(f"layout {layout}: {error}")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("device, number_format", DEVICE_FORMATS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_exact(direction, case, device, number_format):
    check_layouts(direction, case, device, number_format)


@pytest.mark.parametrize("device, number_format", DEVICE_FORMATS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("case", ("pixel_to_4x4", "pixel_to_rows"))
def test_exact_products_of_matrices(direction, case, device, number_format):
    """One pixel in and one kernel out is a product of matrices; forward, without bias."""
    check_layouts(direction, BY_NAME[case], device, number_format, with_bias=False)


# Sizes of dY for which a bias gradient is shared out in other ways (csrc/cuda/grad_bias).
BIAS_SHAPES = (
    (1, 1, 1, 1),
    (2, 3, 1, 1),
    (3, 5, 7, 7),  # planes that start anywhere
    (2, 4, 37, 41),
    (1, 2, 300, 410),  # in pieces
    (700, 2, 9, 5),
    (1, 1, 16, 8192),
    (4100, 3, 1, 1),
    (5, 96, 3, 3),  # channels that come round after a few words
    (2, 255, 5, 5),
    (2, 301, 9, 7),  # and that do not
    (3, 2056, 2, 3),  # more than a block has
    (1, 4104, 1, 2),
)


@pytest.mark.parametrize("number_format", FORMATS, ids=lambda each: each.name)
@pytest.mark.parametrize("shape", BIAS_SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("device", DEVICES)
def test_exact_grad_bias_however_it_is_shared_out(device, shape, number_format):
    """Small integers; from whole words of memory, from elsewhere, and from a part of a tensor."""
    generator = torch.Generator().manual_seed(7)
    numbers = torch.randint(-2, 3, shape, generator=generator)
    grad_y = numbers.to(device, number_format.dtype)
    expected = grad_bias(grad_y).to(grad_y.dtype)
    for order in (torch.contiguous_format, torch.channels_last):
        whole = grad_y.to(memory_format=order)
        assert_exact(INNER.grad_bias(whole), expected)
        assert_exact(INNER.grad_bias(one_number_later(whole)), expected)
    n, c, h, w = shape
    larger = torch.full((n, c + 1, h + 1, w + 3), float("nan"), dtype=grad_y.dtype, device=device)
    part = larger[:, 1:, :h, 2 : w + 2]
    part.copy_(grad_y)
    assert_exact(INNER.grad_bias(part), expected)


def one_number_later(tensor):
    """The same numbers, which do not begin where words do."""
    memory = torch.full((tensor.numel() + 1,), float("nan"), device=tensor.device).to(tensor.dtype)
    later = memory.as_strided(tensor.shape, tensor.stride(), 1)
    return later.copy_(tensor)


@pytest.mark.parametrize("number_format", FORMATS, ids=lambda each: each.name)
@pytest.mark.parametrize("device", DEVICES)
def test_exact_grad_bias(device, number_format):
    for case in CASES:
        grad_y, _, _, _ = integers(case, "grad_weight", number_format, device)
        for arrange, _, _ in LAYOUTS.values():
            result = INNER.grad_bias(arrange(grad_y))
            assert_exact(result, grad_bias(grad_y).to(grad_y.dtype))
