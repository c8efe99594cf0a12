"""Faults planted in a kernel's result: the suite's own tests must turn red, each one of them.

A suite that cannot fail proves nothing. The faults are those that kernels really have.
"""

import math

import calls
import data
import pytest
import test_exact
import test_nan_footprint
import test_numeric
import torch
from cases import BY_NAME
from tolerance import BY_NAME as FORMATS

CASE = BY_NAME["k3s2p1op1"]
TRUE_INNER = calls.inner


def one_wrong_pixel(result):
    result[-1, -1, -1, -1] += 1


def last_row_left_out(result):
    result[..., -1, :] = math.nan


def last_column_of_zeros(result):
    result[..., -1] = 0


def one_channel_stale(result):
    result[:, -1] = result[:, 0]


def images_swapped(result):
    result.copy_(result.flip(0))


def shifted_by_a_pixel(result):
    result.copy_(result.roll(1, -1))


def transposed_channels(result):
    result.copy_(result.roll(1, 1))


ON_RESULTS = (
    one_wrong_pixel,
    last_row_left_out,
    last_column_of_zeros,
    one_channel_stale,
    images_swapped,
    shifted_by_a_pixel,
    transposed_channels,
)


def without_a_tap(direction, first, second):
    """One tap of the kernel is never walked."""
    if direction == "grad_weight":
        return first, second
    second = second.clone()
    second[..., 0, 0] = 0
    return first, second


def without_a_channel(direction, first, second):
    """The last slice of the reduction is cut off."""
    first = first.clone()
    first[:, -1] = 0
    return first, second


def in_lower_precision(direction, first, second):
    """fp32 operands lose their low bits on the way into a tensor core."""
    return first.bfloat16().to(first.dtype), second.bfloat16().to(second.dtype)


ON_OPERANDS = (without_a_tap, without_a_channel, in_lower_precision)


def fault_in(monkeypatch, on_result=None, on_operands=None):
    def faulty(direction, case, first, second, bias, **options):
        if on_operands is not None:
            first, second = on_operands(direction, first, second)
        result, bias_gradient = TRUE_INNER(direction, case, first, second, bias, **options)
        if on_result is not None:
            on_result(result)
        return result, bias_gradient

    monkeypatch.setattr(calls, "inner", faulty)


def exact(direction, number_format="f32"):
    test_exact.test_exact(direction, CASE, "cpu", FORMATS[number_format])


def numeric(direction, number_format="f32"):
    test_numeric.test_error_against_float64(direction, CASE, "cpu", FORMATS[number_format])


directions = pytest.mark.parametrize("direction", data.DIRECTIONS)
suites = pytest.mark.parametrize("suite", [exact, numeric])


@directions
@suites
def test_nothing_planted_passes(suite, direction):
    suite(direction)


@directions
@suites
@pytest.mark.parametrize("fault", ON_RESULTS)
def test_fault_in_the_result(fault, suite, direction, monkeypatch):
    fault_in(monkeypatch, on_result=fault)
    with pytest.raises(AssertionError):
        suite(direction)


@directions
@suites
@pytest.mark.parametrize("fault", ON_OPERANDS)
def test_fault_in_the_operands(fault, suite, direction, monkeypatch):
    if fault is without_a_tap and direction == "grad_weight":
        pytest.skip("grad_weight writes taps, it does not walk them: see last_column_of_zeros")
    fault_in(monkeypatch, on_operands=fault)
    with pytest.raises(AssertionError):
        suite(direction)


@pytest.mark.parametrize("number_format", ["f16", "bf16", "f32", "f64"])
def test_one_unit_too_many(number_format, monkeypatch):
    """Exact data sees the last bit of one element."""

    def last_bit(result):
        flat = result.as_strided((result.numel(),), (1,))
        worst = flat.abs().argmax()
        flat[worst] = torch.nextafter(flat[worst], torch.full_like(flat[worst], math.inf))

    fault_in(monkeypatch, on_result=last_bit)
    with pytest.raises(AssertionError):
        exact("forward", number_format)


def test_wrong_bias(monkeypatch):
    def faulty(direction, case, first, second, bias, **options):
        bias = None if bias is None else bias.roll(1)
        return TRUE_INNER(direction, case, first, second, bias, **options)

    monkeypatch.setattr(calls, "inner", faulty)
    with pytest.raises(AssertionError):
        exact("forward")


def test_wrong_bias_gradient(monkeypatch):
    def faulty(*arguments, **options):
        result, bias_gradient = TRUE_INNER(*arguments, **options)
        return result, bias_gradient.roll(1) if bias_gradient.numel() else bias_gradient

    monkeypatch.setattr(calls, "inner", faulty)
    with pytest.raises(AssertionError):
        exact("grad_weight")


def test_wrong_memory_format(monkeypatch):
    def faulty(*arguments, channels_last, **options):
        return TRUE_INNER(*arguments, channels_last=not channels_last, **options)

    monkeypatch.setattr(calls, "inner", faulty)
    with pytest.raises(AssertionError):
        exact("forward")


def test_multiplied_padding(monkeypatch):
    """Zero times an infinite weight at the border: the NaN that cuDNN spreads."""

    def faulty(direction, case, first, second, bias, **options):
        result, rest = TRUE_INNER(direction, case, first, second, bias, **options)
        result[..., 0, :] += second.sum() * 0
        return result, rest

    problem = test_nan_footprint.infinite_weights("forward", CASE, "cpu", FORMATS["f32"], 0)
    test_nan_footprint.check(problem, "forward", CASE, 0)
    monkeypatch.setattr(calls, "inner", faulty)
    with pytest.raises(AssertionError):
        test_nan_footprint.check(problem, "forward", CASE, 0)


def test_uninitialised_memory_is_seen():
    """An element that no kernel writes holds NaN in the tests."""
    like = torch.ones(1000, 77)
    data.poison(like)
    assert torch.empty_like(like).isnan().all()
