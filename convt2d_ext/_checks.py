"""What torch refuses, in torch's words. For ints, and for SymInts without branching on them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import SymInt

from ._shape import Pair, output_extent

# Positions along an axis are 32-bit numbers in the kernels.
LIMIT = 2**31


def integer(name: str, value: Any) -> Any:
    """An int, or a SymInt that stays one; numpy integers and the like become ints."""
    if type(value) is int or isinstance(value, SymInt):
        return value
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(
        f"conv_transpose2d(): argument '{name}' must be tuple of ints, not {type(value).__name__}"
    )


def pair(name: str, value: Any) -> Pair:
    """An int, or one or two of them, as two."""
    if isinstance(value, tuple | list):
        values = [integer(name, item) for item in value]
        if len(values) == 1:
            return (values[0], values[0])
        if len(values) == 2:
            return (values[0], values[1])
        raise RuntimeError(wrong_length(name, values, 2))
    single = integer(name, value)
    return (single, single)


def wrong_length(name: str, values: Sequence[int], dimensions: int) -> str:
    return (
        f"expected {name} to be a single integer value or a list of {dimensions} values to match "
        f"the convolution dimensions, but got {name}={list(values)}"
    )


def check_ranks(input_shape: Sequence[int], weight_shape: Sequence[int], stride: Pair) -> None:
    if len(input_shape) not in (3, 4):
        raise RuntimeError(
            "Expected 3D (unbatched) or 4D (batched) input to conv_transpose2d, but got input of "
            f"size: {list(input_shape)}"
        )
    dimensions = len(weight_shape) - 2
    if dimensions <= 0:
        raise RuntimeError("weight should have at least three dimensions")
    if dimensions != 2:
        raise RuntimeError(wrong_length("stride", stride, dimensions))


def check(
    input_shape: Sequence[int],
    weight_shape: Sequence[int],
    bias_shape: Sequence[int] | None,
    stride: Pair,
    padding: Pair,
    output_padding: Pair,
    groups: int,
    dilation: Pair,
) -> Pair:
    """Raises what torch raises for a batched call, else returns the output size."""
    given, weight = list(input_shape), list(weight_shape)

    def require(condition: Any, message: str) -> None:
        torch._check(condition, lambda: message)

    require(groups > 0, "non-positive groups is not supported")
    require(min(padding) >= 0, "negative padding is not supported")
    for value in output_padding:
        require(value >= 0, "negative output_padding is not supported")
    require(min(stride) > 0, "non-positive stride is not supported")
    require(min(dilation) > 0, "dilation should be greater than zero")
    require(
        weight[0] >= groups,
        f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but got "
        f"weight of size {weight} instead",
    )
    require(
        weight[0] % groups == 0,
        f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but "
        f"got weight of size [{weight}] instead",
    )
    require(
        given[1] == weight[0],
        f"Given transposed=1, weight of size {weight}, expected input{given} to have {weight[0]} "
        f"channels, but got {given[1]} channels instead",
    )
    channels = weight[1] * groups
    if bias_shape is not None:
        require(
            len(bias_shape) == 1 and bias_shape[0] == channels,
            f"Given transposed=1, weight of size {weight}, expected bias to be 1-dimensional with "
            f"{channels} elements, but got bias of size {list(bias_shape)} instead",
        )
    for axis in (2, 3):
        require(
            given[axis] > 0,
            f"Only zero batch or zero channel inputs are supported, but got input shape: {given}",
        )
    require(
        channels > 0,
        f"Given transposed=1, weight of size {weight}, expected at least one output channel",
    )
    for value in weight[2:]:
        require(
            value > 0,
            "kernel size should be greater than zero, but got "
            f"kernel_height: {weight[2]} kernel_width: {weight[3]}",
        )
    for axis in (0, 1):
        require(
            output_padding[axis] < max(stride[axis], dilation[axis]),
            "output padding must be smaller than either stride or dilation, but got "
            f"output_padding_height: {output_padding[0]} output_padding_width: {output_padding[1]} "
            f"stride_height: {stride[0]} stride_width: {stride[1]} "
            f"dilation_height: {dilation[0]} dilation_width: {dilation[1]}",
        )
    height, width = (
        output_extent(
            given[2 + axis],
            weight[2 + axis],
            stride[axis],
            padding[axis],
            output_padding[axis],
            dilation[axis],
        )
        for axis in (0, 1)
    )
    for extent in (height, width):
        require(
            extent > 0,
            f"Given input size per channel: ({given[2]} x {given[3]}). Calculated output size per "
            f"channel: ({height} x {width}). Output size is too small",
        )
    # For symbolic sizes this is left to the kernels: as a guard it would narrow what was asked for.
    plain = [n for n in (height, width, *stride, *padding, *dilation) if not isinstance(n, SymInt)]
    largest = max(plain, default=0)
    require(largest < LIMIT, f"sizes and parameters must be below 2^31, got {largest}")
    return (height, width)
