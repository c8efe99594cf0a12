"""One rule, one table: how far a result may be from float64.

The error of an element is |result - reference| / (|first| * |second| + |bias|): the denominator is
the same operator on absolute values, the scale at which its sum rounds, however much of it cancels.
The rule: the worst element errs by no more than twice torch's own worst plus one rounding unit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Format:
    """A way to compute: the dtype of the tensors and how the operands are multiplied."""

    name: str
    dtype: torch.dtype
    precision: int  # the argument of the inner ops: 0 ieee, 1 tf32
    unit: float  # one rounding of a result or, in tf32, of both operands of a product
    whole_operand: int  # integers up to here are exact as an operand,
    whole_sum: int  # up to here while they are summed (16-bit operands are summed in fp32),
    whole_result: int  # and up to here as a result


FORMATS = (
    Format("f16", torch.float16, 0, 2.0**-11, 2**11, 2**23, 2**11),
    Format("bf16", torch.bfloat16, 0, 2.0**-8, 2**8, 2**23, 2**8),
    Format("f32", torch.float32, 0, 2.0**-24, 2**23, 2**23, 2**23),
    Format("tf32", torch.float32, 1, 2.0**-10, 2**11, 2**23, 2**23),
    Format("f64", torch.float64, 0, 2.0**-50, 2**30, 2**52, 2**52),  # so does the reference
)
BY_NAME = {number_format.name: number_format for number_format in FORMATS}


def worst_error(result: Tensor, reference: Tensor, scale: Tensor) -> float:
    """The largest error of an element. Where nothing is summed only the exact value will do."""
    distance = (result.double() - reference).abs()
    assert distance.isfinite().all(), "a result is not finite although its reference is"
    assert (distance[scale == 0] == 0).all(), "an element without a product is not its bias"
    return (distance / scale.clamp_min(torch.finfo(torch.float64).tiny)).max().item()


def assert_close(
    result: Tensor, reference: Tensor, scale: Tensor, torch_result: Tensor, unit: float
) -> None:
    assert result.shape == reference.shape, (result.shape, reference.shape)
    ours = worst_error(result, reference, scale)
    limit = 2 * worst_error(torch_result, reference, scale) + unit
    assert ours <= limit, f"worst error {ours:.3e}, allowed {limit:.3e} ({ours / unit:.2f} units)"


def assert_exact(result: Tensor, expected: Tensor) -> None:
    """Every element equal: NaN, a stale value or one wrong pixel fails, and is named."""
    assert result.shape == expected.shape, (result.shape, expected.shape)
    assert result.dtype == expected.dtype, (result.dtype, expected.dtype)
    if torch.equal(result, expected):
        return
    wrong = (result != expected).nonzero()
    at = tuple(wrong[0].tolist())
    raise AssertionError(
        f"{len(wrong)} of {result.numel()} elements differ, the first at {at}: "
        f"{result[at].item()} instead of {expected[at].item()}"
    )
