"""Any legal call is exact: forward and all gradients of arguments that hypothesis draws.

CONVT2D_FUZZ=20000 tries that many; the seed is fixed unless CONVT2D_FUZZ_RANDOM=1.
"""

import operator
import os

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("hypothesis")

import calls
import reference
from cases import Case
from data import nchw, nhwc, sliced, unaligned
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tolerance import assert_exact

EXAMPLES = int(os.environ.get("CONVT2D_FUZZ", "300"))
MOST_PRODUCTS = 4_000_000  # of one case, so that a CPU gets through hundreds
MOST_OUTPUTS = 400_000


@st.composite
def geometries(draw):
    """Legal arguments, each axis on its own; sizes lean to the small and ragged."""

    def axis():
        stride = draw(st.sampled_from([1, 2, 2, 3, 4, 5, 8]))
        dilation = draw(st.sampled_from([1, 1, 1, 2, 3, 4, 6]))
        kernel = draw(st.sampled_from([1, 2, 3, 3, 4, 5, 6, 7, 9, 12]))
        extent = draw(st.integers(1, 20))
        output_padding = draw(st.integers(0, max(stride, dilation) - 1))
        whole = (extent - 1) * stride + dilation * (kernel - 1) + output_padding + 1
        padding = draw(st.integers(0, min((whole - 1) // 2, dilation * kernel)))
        return extent, kernel, stride, padding, output_padding, dilation

    groups = draw(st.sampled_from([1, 1, 1, 2, 3, 4, 8, 17]))
    channels = st.sampled_from([1, 1, 2, 3, 4, 5, 8, 16, 17, 24, 33])
    in_channels, out_channels = draw(channels) * groups, draw(channels) * groups
    batch = draw(st.sampled_from([1, 1, 2, 3, 7]))
    sizes, kernel, stride, padding, output_padding, dilation = zip(axis(), axis())
    case = Case(
        "fuzz",
        batch,
        in_channels,
        out_channels,
        sizes,
        kernel,
        stride,
        padding,
        output_padding,
        dilation,
        groups,
    )
    pixels = batch * sizes[0] * sizes[1]
    assume(pixels * in_channels * out_channels // groups * kernel[0] * kernel[1] < MOST_PRODUCTS)
    assume(batch * out_channels * case.out_size[0] * case.out_size[1] < MOST_OUTPUTS)
    return case


arrangements = st.sampled_from([nchw, nhwc, unaligned, sliced])
dtypes = st.sampled_from(calls.DTYPES)


def small_integers(shape, dtype, device, seed):
    """Few and small enough that fp32 sums are exact; 16-bit results round once."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, shape, generator=generator).to(device, dtype)


def check(case, dtype, arrange_x, arrange_w, with_bias, seed, device):
    x = arrange_x(small_integers(case.x_shape, dtype, device, seed)).requires_grad_()
    w = arrange_w(small_integers(case.w_shape, dtype, device, seed + 1)).requires_grad_()
    bias = small_integers((case.out_channels,), dtype, device, seed + 2).requires_grad_()
    tensors = (x, w, bias) if with_bias else (x, w)
    y = calls.conv(*tensors, **case.arguments)
    grad_y = small_integers(case.y_shape, dtype, device, seed + 3)
    gradients = torch.autograd.grad(y, tensors, grad_y)
    with torch.no_grad():
        expected = [reference.result("forward", case, x, w, bias if with_bias else None)]
        expected += [reference.result("grad_input", case, grad_y, w, None)]
        expected += [reference.result("grad_weight", case, grad_y, x, None)]
        expected += [reference.grad_bias(grad_y)]
    for ours, whole in zip((y, *gradients), expected):
        assert_exact(ours.detach(), whole.to(dtype))
    # An output_padding as large as the stride takes torch out of cuDNN, and out of channels_last.
    in_cudnn = all(map(operator.lt, case.output_padding, case.stride))
    if device == "cuda" and in_cudnn:
        assert y.stride() == F.conv_transpose2d(*tensors, **case.arguments).stride()


@pytest.mark.parametrize("device_name", calls.DEVICES)
def test_any_legal_call(device_name):
    @settings(
        max_examples=EXAMPLES,
        derandomize=os.environ.get("CONVT2D_FUZZ_RANDOM") != "1",
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(
        case=geometries(),
        dtype=dtypes,
        arrange_x=arrangements,
        arrange_w=arrangements,
        with_bias=st.booleans(),
        seed=st.integers(0, 2**20),
    )
    def any_legal_call(case, dtype, arrange_x, arrange_w, with_bias, seed):
        check(case, dtype, arrange_x, arrange_w, with_bias, seed, device_name)

    any_legal_call()
