"""NaN and Inf reach exactly the results whose taps touch them; every other element stays exact.

torch's own spreads NaN around infinite weights (pytorch#165744): padding is multiplied. Not here.
"""

import functools
import math

import calls
import pytest
import torch
from calls import DEVICE_FORMATS
from cases import CASES
from data import DIRECTIONS, LAYOUTS, integers
from reference import result as reference_result


def with_special_values(tensor):
    """NaN, Inf and -Inf at the first element, the last and the middle, where borders go wrong."""
    tensor = tensor.clone()
    tensor.view(-1)[0] = math.nan
    tensor.view(-1)[-1] = math.inf
    tensor[tuple(extent // 2 for extent in tensor.shape)] = -math.inf
    return tensor


def assert_same_footprint(result, expected):
    for name, test in (("NaN", torch.isnan), ("+Inf", torch.isposinf), ("-Inf", torch.isneginf)):
        ours, theirs = test(result), test(expected)
        assert torch.equal(ours, theirs), (
            f"{name} at {(ours & ~theirs).nonzero().tolist()[:3]} without a cause, "
            f"missing at {(theirs & ~ours).nonzero().tolist()[:3]}"
        )
    finite = expected.isfinite()
    assert torch.equal(result[finite], expected[finite])


@functools.lru_cache(maxsize=16)
def special_problem(direction, case, device, number_format, operand):
    """(first, second, result) with special values in one operand."""
    operands = list(integers(case, direction, number_format, device)[:2])
    operands[operand] = with_special_values(operands[operand])
    expected = reference_result(direction, case, *operands, None)
    return *operands, expected.to(number_format.dtype)


@functools.lru_cache(maxsize=16)
def infinite_weights(direction, case, device, number_format, zeros):
    """Every weight infinite: an output without a tap is 0, a zero of the input makes NaN."""
    first, second, _, _ = integers(case, direction, number_format, device)
    first, second = first.abs() + 1, torch.full_like(second, math.inf)
    first.view(-1)[:zeros] = 0
    expected = reference_result(direction, case, first, second, None)
    return first, second, expected.to(number_format.dtype)


def check(problem, direction, case, precision):
    first, second, expected = problem
    for layout in ("nchw", "nhwc"):
        arrange, _, channels_last = LAYOUTS[layout]
        calls.check_every_family(
            lambda result, _: assert_same_footprint(result, expected),
            direction,
            case,
            arrange(first),
            arrange(second),
            None,
            channels_last=channels_last,
            precision=precision,
        )


@pytest.mark.parametrize("device, number_format", DEVICE_FORMATS)
@pytest.mark.parametrize("operand", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("case", CASES[::2], ids=lambda case: case.name)
def test_special_values(direction, case, operand, device, number_format):
    problem = special_problem(direction, case, device, number_format, operand)
    check(problem, direction, case, number_format.precision)


@pytest.mark.parametrize("device, number_format", DEVICE_FORMATS)
@pytest.mark.parametrize("zeros", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "grad_input"])
@pytest.mark.parametrize("case", CASES[1::4], ids=lambda case: case.name)
def test_infinite_weights(direction, case, zeros, device, number_format):
    problem = infinite_weights(direction, case, device, number_format, zeros)
    check(problem, direction, case, number_format.precision)


def test_bias_footprint(device):
    """A special value in the bias fills its channel and no other, empty phases included."""
    x = torch.ones(2, 4, 3, 3, device=device)
    w = torch.ones(4, 3, 1, 1, device=device)
    bias = torch.tensor([1.0, math.nan, -math.inf], device=device)
    y = calls.conv(x, w, bias, stride=3, output_padding=2)
    assert y[:, 0].isfinite().all() and y[:, 1].isnan().all() and y[:, 2].isneginf().all()


def test_overflow_is_infinite(device):
    """fp16 results past 65504 are Inf, as torch's are; inside the sum they are not yet."""
    x = torch.full((1, 2, 2, 2), 60000.0, dtype=torch.float16, device=device)
    w = torch.ones(2, 1, 1, 1, dtype=torch.float16, device=device)
    assert calls.conv(x, w).isposinf().all()
    w[1] = -1
    assert (calls.conv(x, w) == 0).all()
