"""Random numbers against float64: no worse than twice torch's own error (see tolerance.py)."""

import functools
import math

import calls
import pytest
import reference
import torch
import torch.nn.functional as F
from calls import DEVICE_FORMATS, fp32_precision
from cases import CASES
from data import DIRECTIONS, LAYOUTS, shapes
from tolerance import assert_close


def torchs_own(direction, case, first, second, bias):
    if direction == "forward":
        return F.conv_transpose2d(first, second, bias, **case.arguments)
    x = torch.zeros(case.x_shape, dtype=first.dtype, device=first.device)
    w = torch.zeros(case.w_shape, dtype=first.dtype, device=first.device)
    if direction == "grad_input":
        x.requires_grad_()
        y = F.conv_transpose2d(x, second, **case.arguments)
        return torch.autograd.grad(y, x, first)[0]
    w.requires_grad_()
    y = F.conv_transpose2d(second, w, **case.arguments)
    return torch.autograd.grad(y, w, first)[0]


@functools.lru_cache(maxsize=16)
def random_problem(direction, case, device, number_format):
    """(first, second, bias, float64 result, its scale, torch's result in the same format)."""
    generator = torch.Generator().manual_seed(sum(map(ord, case.name + direction)))

    def draw(*shape):
        return torch.randn(shape, generator=generator).to(device, number_format.dtype)

    first_shape, second_shape = shapes(case, direction)
    first, second = draw(*first_shape), draw(*second_shape)
    bias = draw(case.out_channels) if direction == "forward" else None
    result = reference.result(direction, case, first, second, bias)
    scale = reference.result(
        direction, case, first.abs(), second.abs(), None if bias is None else bias.abs()
    )
    with fp32_precision("tf32" if number_format.precision else "ieee"):
        theirs = torchs_own(direction, case, first, second, bias)
    return first, second, bias, result, scale, theirs


@pytest.mark.parametrize("device, number_format", DEVICE_FORMATS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_error_against_float64(direction, case, device, number_format):
    first, second, bias, expected, scale, theirs = random_problem(
        direction, case, device, number_format
    )
    for layout in ("nchw", "nhwc"):
        arrange, _, channels_last = LAYOUTS[layout]
        calls.check_every_family(
            lambda result, _: assert_close(result, expected, scale, theirs, number_format.unit),
            direction,
            case,
            arrange(first),
            arrange(second),
            bias,
            channels_last=channels_last,
            precision=number_format.precision,
        )


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4], ids=["small", "one", "large"])
def test_long_sums_keep_the_bias_gradient(device, scale):
    """A sum over 2^20 values of one sign is where a naive fp32 accumulator loses its low digits."""
    for dtype in (torch.float32, torch.bfloat16):
        grad_y = (torch.rand(4, 3, 512, 512, dtype=torch.float64, device=device) * scale).to(dtype)
        expected = reference.grad_bias(grad_y)
        result = torch.ops.convt2d.grad_bias(grad_y).double()
        theirs = grad_y.sum((0, 2, 3)).double()
        unit = torch.finfo(dtype).eps / 2
        limit = 2 * ((theirs - expected).abs() / expected).max().item() + 4 * unit
        assert ((result - expected).abs() / expected).max().item() <= limit


def test_adjoint(device):
    """<conv(x), y> = <x, grad_input(y)> = <w, grad_weight(y)>: three directions, one operator."""
    for case in CASES[::4]:
        x = torch.randn(case.x_shape, dtype=torch.float64, device=device)
        w = torch.randn(case.w_shape, dtype=torch.float64, device=device)
        x.requires_grad_(), w.requires_grad_()
        y = calls.conv(x, w, **case.arguments)
        grad_y = torch.randn_like(y)
        grad_x, grad_w = torch.autograd.grad(y, (x, w), grad_y)
        paired = (y * grad_y).sum().item()
        size = (y.abs() * grad_y.abs()).sum().item()
        assert math.isclose((x * grad_x).sum().item(), paired, abs_tol=1e-12 * size)
        assert math.isclose((w * grad_w).sum().item(), paired, abs_tol=1e-12 * size)


def test_groups_are_a_split_and_a_concatenation(device):
    for case in (each for each in CASES if each.groups > 1):
        x = torch.randint(-3, 4, case.x_shape, device=device).double()
        w = torch.randint(-3, 4, case.w_shape, device=device).double()
        whole = calls.conv(x, w, **case.arguments)
        parts = [
            calls.conv(*each, **{**case.arguments, "groups": 1})
            for each in zip(x.chunk(case.groups, 1), w.chunk(case.groups, 0))
        ]
        assert torch.equal(whole, torch.cat(parts, 1))


def test_kernel_equal_to_stride_is_a_pixel_shuffle(device):
    for size in (1, 2, 3, 4):
        x = torch.randint(-3, 4, (2, 6, 5, 7), device=device).double()
        w = torch.randint(-3, 4, (6, 5, size, size), device=device).double()
        expected = F.pixel_shuffle(torch.einsum("nihw,iors->norshw", x, w).flatten(1, 3), size)
        assert torch.equal(calls.conv(x, w, stride=size), expected)
