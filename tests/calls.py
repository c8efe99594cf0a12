"""How the tests reach the operator: the inner ops by case, and the public function by device."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from cases import Case
from tolerance import FORMATS
from torch import Tensor

import convt2d_ext

DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
DTYPES = tuple(dict.fromkeys(each.dtype for each in FORMATS))
INNER = torch.ops.convt2d  # the public op as well


class Refused(Exception):
    """A family declined the problem; the text is its reason."""


def families(device: str) -> list[str]:
    return INNER.families(device).split(",")


# Every format that this machine can run. A CPU has no TF32.
DEVICE_FORMATS = [
    pytest.param(device, each, id=f"{device}-{each.name}")
    for device in DEVICES
    for each in FORMATS
    if device == "cuda" or each.precision == 0
]


def own(device: str | torch.device) -> str:
    """The algorithm that is ours: on a CPU `auto` would be ATen."""
    return "direct" if torch.device(device).type == "cpu" else "auto"


def conv(x: Tensor, w: Tensor, *rest: Any, **arguments: Any) -> Tensor:
    """The public function on our own code."""
    arguments.setdefault("algorithm", own(x.device))
    return convt2d_ext.conv_transpose2d(x, w, *rest, **arguments)


def raw(x: Tensor, w: Tensor, *rest: Any, **arguments: Any) -> Tensor:
    """The public torch.ops entry on our own code."""
    arguments.setdefault("algorithm", own(x.device))
    return INNER.conv_transpose2d(x, w, *rest, **arguments)


def layer(*arguments: Any, device: str = "cpu", **keywords: Any) -> torch.nn.Module:
    """The public module on our own code."""
    module = convt2d_ext.ConvTranspose2d(*arguments, device=device, **keywords)
    module.algorithm = own(device)
    return module


def inner(
    direction: str,
    case: Case,
    first: Tensor,
    second: Tensor,
    bias: Tensor | None,
    *,
    channels_last: bool,
    precision: int,
    family: str,
) -> tuple[Tensor, Tensor | None]:
    """One inner op on one family: (result, bias gradient). Raises Refused with the family's reason.

    For grad_weight a bias means that its gradient is wanted.
    """
    head = (*case.stride, *case.padding)
    tail = (precision, families(first.device.type).index(family))
    geometry = (*case.dilation, case.groups, channels_last)
    try:
        if direction == "forward":
            result = INNER.forward(first, second, bias, *head, *case.out_size, *geometry, *tail)
            return result, None
        if direction == "grad_input":
            return INNER.grad_input(first, second, *head, *case.size, *geometry, *tail), None
        with_bias = bias is not None
        return INNER.grad_weight(first, second, *head, *case.kernel, *geometry, with_bias, *tail)
    except (RuntimeError, ValueError) as error:
        if "no family serves" not in str(error):
            raise
        raise Refused(str(error).split(f"\n  {family}: ")[-1].splitlines()[0]) from None


def check_every_family(
    check: Callable[[Tensor, Tensor | None], None],
    *call: Any,
    before: Callable[[], None] = lambda: None,
    **options: Any,
) -> None:
    """check(result, bias gradient) of inner(*call) by every algorithm that does not refuse.

    Those that fail are named together. Not a test each: most of them refuse most cases.
    CONVT2D_FAMILIES=slide,loom runs those alone.
    """
    asked_for = os.environ.get("CONVT2D_FAMILIES", "")
    first: Tensor = call[2]
    failures, served = [], 0
    for family in asked_for.split(",") if asked_for else families(first.device.type):
        try:
            before()
            check(*inner(*call, family=family, **options))
        except Refused:
            continue
        except (AssertionError, RuntimeError) as error:
            failures.append(f"{family}: {error}")
        served += 1
    assert not failures, "\n".join(failures)
    assert served or asked_for, "every family refuses"


@contextlib.contextmanager
def fp32_precision(mode: str) -> Iterator[None]:
    """The user's switch for convolutions: "tf32" or "ieee"."""
    before = torch.backends.cudnn.conv.fp32_precision
    torch.backends.cudnn.conv.fp32_precision = mode
    try:
        yield
    finally:
        torch.backends.cudnn.conv.fp32_precision = before
