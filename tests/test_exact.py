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
    """Without bias one pixel in and one kernel out is a product of matrices."""
    check_layouts(direction, BY_NAME[case], device, number_format, with_bias=False)


@pytest.mark.parametrize("number_format", FORMATS, ids=lambda each: each.name)
@pytest.mark.parametrize("device", DEVICES)
def test_exact_grad_bias(device, number_format):
    for case in CASES:
        grad_y, _, _, _ = integers(case, "grad_weight", number_format, device)
        for arrange, _, _ in LAYOUTS.values():
            result = INNER.grad_bias(arrange(grad_y))
            assert_exact(result, grad_bias(grad_y).to(grad_y.dtype))
