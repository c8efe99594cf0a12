"""Calling the inner ops: the short way, or the way for whoever records the call.

Short is the overload that takes its scalars in one string (csrc/torch/library.cpp says why), called
without the Python that torch.ops has around it. Dynamo, which traces us in compiled autograd, and
dispatch modes (compile, export, make_fx, FLOP counters) get the overload with scalars instead: it
reads well in a graph, its sizes may be symbolic, and as graphs outlive the present value of the
precision flag, in fp32 it asks for that when it is run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ._precision import precision_of, precision_when_run
from ._shape import Geometry

_dynamo_compiling: Callable[[], bool] = torch.compiler.is_dynamo_compiling
_dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack


def _short(overload: Any) -> Callable[..., Any]:
    """What an OpOverload calls when it is called."""
    function: Callable[..., Any] = getattr(overload, "_op", overload)
    return function


_FORWARD: Any = torch.ops.convt2d.forward
_GRAD_INPUT: Any = torch.ops.convt2d.grad_input
_GRAD_WEIGHT: Any = torch.ops.convt2d.grad_weight
_forward, _forward_packed = _FORWARD.default, _short(_FORWARD.packed)
_grad_input, _grad_input_packed = _GRAD_INPUT.default, _short(_GRAD_INPUT.packed)
_grad_weight, _grad_weight_packed = _GRAD_WEIGHT.default, _short(_GRAD_WEIGHT.packed)
_grad_weight_and_bias_packed = _short(_GRAD_WEIGHT.packed_with_bias)
_grad_bias: Any = torch.ops.convt2d.grad_bias.default


# torch's node and ours at once (csrc/torch/overrideable.h).
_convolution = _short(torch.ops.aten.convolution_overrideable.default)


def unobserved() -> bool:
    """Whether nobody records what is called."""
    return not (_dynamo_compiling() or _dispatch_modes())


def forward_of_node(
    x: Tensor, w: Tensor, bias: Tensor | None, convolution: tuple[Any, ...]
) -> Tensor:
    """forward(), recorded by torch's own node. `convolution`: Geometry's."""
    try:
        y: Tensor = _convolution(x, w, bias, *convolution)
    except RuntimeError as error:
        _raise_out_of_memory(error, x)
        raise
    return y


def forward(x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    y: Tensor
    try:
        if _dynamo_compiling() or _dispatch_modes() or geometry.packed is None:
            tail = precision_when_run(x), geometry.algorithm
            y = _forward(x, w, bias, *geometry.forward, *tail)
        else:
            y = _forward_packed(x, w, bias, geometry.packed.forward[precision_of(x)])
    except RuntimeError as error:
        _raise_out_of_memory(error, x)
        raise
    return y


def grad_input(grad_y: Tensor, w: Tensor, geometry: Geometry) -> Tensor:
    grad_x: Tensor
    try:
        if _dynamo_compiling() or _dispatch_modes() or geometry.packed is None:
            tail = precision_when_run(w), geometry.algorithm
            grad_x = _grad_input(grad_y, w, *geometry.grad_input, *tail)
        else:
            grad_x = _grad_input_packed(grad_y, w, geometry.packed.grad_input[precision_of(w)])
    except RuntimeError as error:
        _raise_out_of_memory(error, w)
        raise
    return grad_x


def grad_weight(
    grad_y: Tensor, x: Tensor, geometry: Geometry, with_bias: bool
) -> tuple[Tensor, Tensor | None]:
    grad_b: Tensor | None = None
    try:
        if _dynamo_compiling() or _dispatch_modes() or geometry.packed is None:
            tail = with_bias, precision_when_run(x), geometry.algorithm
            grad_w, grad_b = _grad_weight(grad_y, x, *geometry.grad_weight, *tail)
        elif with_bias:
            packed = geometry.packed.grad_weight_and_bias[precision_of(x)]
            grad_w, grad_b = _grad_weight_and_bias_packed(grad_y, x, packed)
        else:
            grad_w = _grad_weight_packed(grad_y, x, geometry.packed.grad_weight[precision_of(x)])
    except RuntimeError as error:
        _raise_out_of_memory(error, x)
        raise
    return grad_w, grad_b if with_bias else None


def grad_bias(grad_y: Tensor) -> Tensor:
    try:
        sums: Tensor = _grad_bias(grad_y)
    except RuntimeError as error:
        _raise_out_of_memory(error, grad_y)
        raise
    return sums


def _raise_out_of_memory(error: RuntimeError, like: Tensor) -> None:
    """Raises torch.OutOfMemoryError, which the stable ABI cannot let through, if it was one.

    Asking torch for the same memory once more lets it say so itself.
    """
    refused = re.search(r"could not allocate a tensor of sizes \[([\d, ]+)\]", str(error))
    if refused is not None:
        sizes = [int(size) for size in refused[1].split(",")]
        torch.empty(sizes, dtype=like.dtype, device=like.device)
