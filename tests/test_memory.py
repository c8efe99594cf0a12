"""Extra memory: nothing beyond the results, and up to 32 MiB of workspace in grad_weight."""

import gc

import pytest
import torch
from calls import INNER, Refused, families, inner
from cases import CASES, Case
from data import DIRECTIONS, shapes
from tolerance import FORMATS

import convt2d_ext

WORKSPACE = 32 << 20
pytestmark = pytest.mark.cuda

# Large enough that a copy of an operand could not hide in the allocator's rounding.
LARGE = (
    Case("k4s2p1", 8, 128, 64, (64, 64), (4, 4), (2, 2), (1, 1)),
    Case("k2s2", 8, 128, 64, (64, 64), (2, 2), (2, 2)),
    Case("k3s1p1", 8, 64, 64, (64, 64), (3, 3), (1, 1), (1, 1)),
    Case("groups", 8, 64, 64, (64, 64), (3, 5), (2, 3), (1, 2), (0, 0), (2, 1), 4),
    Case("depthwise", 8, 128, 128, (64, 64), (4, 4), (2, 2), (1, 1), groups=128),
    Case("to_3", 8, 128, 3, (64, 64), (4, 4), (2, 2), (1, 1)),
)


@pytest.fixture(autouse=True)
def no_poison():
    """Filling memory with NaN needs memory of its own."""
    torch.use_deterministic_algorithms(False)


def peak_of(call):
    """(result, the most bytes asked for at once while it ran, bytes it keeps).

    What was asked for: what is given depends on the sizes of the blocks that happen to be free.
    """
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    result = call()
    torch.cuda.synchronize()
    after = torch.cuda.memory_stats()
    peak = after["requested_bytes.all.peak"] - before
    return result, peak, after["requested_bytes.all.current"] - before


@pytest.mark.parametrize("number_format", FORMATS, ids=lambda each: each.name)
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("case", [*LARGE, *CASES[::6]], ids=lambda case: case.name)
def test_inner_ops(direction, case, channels_last, number_format):
    order = torch.channels_last if channels_last else torch.contiguous_format
    first, second = (
        torch.randn(shape, device="cuda").to(number_format.dtype, memory_format=order)
        for shape in shapes(case, direction)
    )
    allowed = WORKSPACE if direction == "grad_weight" else 0
    for family in families("cuda"):
        options = {
            "channels_last": channels_last,
            "precision": number_format.precision,
            "family": family,
        }
        try:
            _, peak, kept = peak_of(
                lambda: inner(direction, case, first, second, None, **options)  # noqa: B023
            )
        except Refused:
            continue
        assert peak - kept <= allowed, f"{family} used {peak - kept} bytes more than its result"


@pytest.mark.parametrize("case", LARGE, ids=lambda case: case.name)
def test_what_a_training_step_keeps(case):
    """Between forward and backward: y alone."""
    x = torch.randn(case.x_shape, device="cuda", requires_grad=True)
    w = torch.randn(case.w_shape, device="cuda", requires_grad=True)
    y, peak, kept = peak_of(lambda: convt2d_ext.conv_transpose2d(x, w, **case.arguments))
    assert kept == peak == y.numel() * y.element_size()


def test_strided_inputs_are_not_copied_by_the_readable_family():
    case = LARGE[0]
    wide = torch.randn(8, 128, 64, 128, device="cuda")
    w = torch.randn(case.w_shape, device="cuda")
    geometry = (*case.stride, *case.padding, *case.out_size, *case.dilation, case.groups, False)
    direct = families("cuda").index("direct")
    _, peak, kept = peak_of(lambda: INNER.forward(wide[..., ::2], w, None, *geometry, 0, direct))
    assert peak == kept
