"""What the planner says about one pass of a layer: which family, and how long it should take."""

from __future__ import annotations

import re
from dataclasses import dataclass

import convt2d_ext
from convt2d_ext.explain import DIRECTIONS

from .operands import Operands

# The line of explain() that names the choice; its wording is pinned in csrc/core/choose.cpp.
_CHOICE = re.compile(r"^(?:chosen|forced): (\S+).* predicted ([0-9.]+) us", re.MULTILINE)


@dataclass(frozen=True)
class Prediction:
    family: str
    us: float | None


def predict(operands: Operands, pass_name: str, algorithm: str) -> Prediction:
    """A step takes as long as its three directions, and has a family for each."""
    if pass_name == "grad_bias":  # no family's, and nobody chooses
        return Prediction("grad_bias", None)
    text = convt2d_ext.explain(
        operands.x,
        operands.weight,
        # The timed grad_weight leaves the bias gradient out.
        None if pass_name == "grad_weight" else operands.bias,
        *operands.layer.arguments,
        algorithm=algorithm,
        directions=DIRECTIONS if pass_name == "step" else (pass_name,),
    )
    choices = _CHOICE.findall(text)
    if not choices:
        return Prediction("ATen", None)
    families = dict.fromkeys(family for family, _ in choices)
    return Prediction("+".join(families), sum(float(us) for _, us in choices))
