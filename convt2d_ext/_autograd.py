"""Derivatives. y = forward(x, w) + bias is linear in each operand, and so are its two gradients:

    forward     (x, w)      -> y
    grad_input  (grad_y, w) -> grad_x
    grad_weight (grad_y, x) -> grad_w, grad_bias

Each pairs two of (x, w, y) and yields the third, so its derivatives are the other two, and
derivatives of any order, forward or reverse, never leave these three. The four functions at the top
are differentiable; they call the bare inner op where nobody can ask for a derivative.

A forward of plain tensors in plain eager mode goes to aten::convolution_overrideable instead of
_Forward: the same kernels, but the node is torch's own, whose backward needs no Python
(csrc/torch/overrideable.h).

Under vmap an axis that only the data carries is folded into the batch; where the weight carries it
too, the examples are laid side by side as groups, since each has a weight of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed.rpc  # creates torch._C._distributed_rpc
from torch import Tensor
from torch.autograd import forward_ad

from . import _inner
from ._shape import Geometry

Dims = tuple[int | None, ...]

_functorch_active = torch._C._are_functorch_transforms_active
_grad_enabled = torch.is_grad_enabled
_dynamo_compiling: Callable[[], bool] = torch.compiler.is_dynamo_compiling
# Private, though torch's own Python uses them. Without the first, bool says yes to every node;
# without the second, no.
_will_execute: Callable[[Any], bool] = getattr(torch._C, "_will_engine_execute_node", bool)
_has_rpc_agent: Callable[[], bool] = getattr(
    getattr(torch._C, "_distributed_rpc", None), "_is_current_rpc_agent_set", bool
)


# Subclasses may want to see what is called.
_PLAIN = frozenset((Tensor, torch.nn.Parameter))


def plain_eager(tensor: Tensor) -> bool:
    """Whether nobody sees what is done with it but autograd."""
    return type(tensor) in _PLAIN and not _functorch_active() and _inner.unobserved()


# An operation is recorded if derivatives may be asked for later (reverse mode) or travel along (the
# rest). That is written out four times: small layers feel every microsecond.


def forward(x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    y: Tensor
    if _functorch_active():
        y = _Forward.under_func.apply(x, w, bias, geometry)
    elif forward_ad._current_level >= 0 or (
        _grad_enabled()
        and (x.requires_grad or w.requires_grad or (bias is not None and bias.requires_grad))
    ):
        if (
            geometry.convolution is not None
            and type(x) in _PLAIN
            and type(w) in _PLAIN
            and forward_ad._current_level < 0
            and _inner.unobserved()
        ):
            y = _inner.forward_of_node(x, w, bias, geometry.convolution)
        else:
            y = _Forward.apply(x, w, bias, geometry)
    else:
        y = _inner.forward(x, w, bias, geometry)
    return y


def grad_input(grad_y: Tensor, w: Tensor, geometry: Geometry) -> Tensor:
    grad_x: Tensor
    if _functorch_active():
        grad_x = _GradInput.under_func.apply(grad_y, w, geometry)
    elif forward_ad._current_level >= 0 or (
        _grad_enabled() and (grad_y.requires_grad or w.requires_grad)
    ):
        grad_x = _GradInput.apply(grad_y, w, geometry)
    else:
        grad_x = _inner.grad_input(grad_y, w, geometry)
    return grad_x


def grad_weight(
    grad_y: Tensor, x: Tensor, geometry: Geometry, with_bias: bool = False
) -> tuple[Tensor, Tensor | None]:
    """The second result is the bias gradient, which costs next to nothing here."""
    if _functorch_active():
        gradients = _GradWeight.under_func.apply(grad_y, x, geometry, with_bias)
    elif forward_ad._current_level >= 0 or (
        _grad_enabled() and (grad_y.requires_grad or x.requires_grad)
    ):
        gradients = _GradWeight.apply(grad_y, x, geometry, with_bias)
    else:
        return _inner.grad_weight(grad_y, x, geometry, with_bias)
    return gradients if with_bias else (gradients, None)


def grad_bias(grad_y: Tensor) -> Tensor:
    sums: Tensor
    if _functorch_active():
        sums = _GradBias.under_func.apply(grad_y)
    elif forward_ad._current_level >= 0 or (_grad_enabled() and grad_y.requires_grad):
        sums = _GradBias.apply(grad_y)
    else:
        sums = _inner.grad_bias(grad_y)
    return sums


def gradients(
    grad_y: Tensor,
    x: Tensor,
    w: Tensor,
    geometry: Geometry,
    need_x: bool,
    need_w: bool,
    need_bias: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Those that are needed, of x, w and bias."""
    grad_x = grad_w = grad_b = None
    if (need_x or need_w) and not grad_y.is_contiguous():
        grad_y = _laid_out_like(x, grad_y)
    if need_x:
        grad_x = grad_input(grad_y, w, geometry)
    if need_w:
        grad_w, grad_b = grad_weight(grad_y, x, geometry, need_bias)
    elif need_bias:
        grad_b = grad_bias(grad_y)
    return grad_x, grad_w, grad_b


class _Function(torch.autograd.Function):
    """`compute` does the work, `prepare` keeps what the derivatives need.

    Together they are forward(ctx, ...). torch also knows a style with them apart, forward(...) and
    setup_context(...), but puts the arguments of that one through inspect.signature on every call,
    which costs more than the op. torch.func insists on it, so `under_func` is the same function in
    that style.
    """

    under_func: type[torch.autograd.Function]

    # torch.autograd.Function has the same from torch 2.14 on. Earlier ones put Python around it for
    # torch.func's sake, which takes as long again.
    apply: Any = torch._C._FunctionBase.__dict__["apply"]

    @classmethod
    def forward(cls, ctx: Any, *inputs: Any) -> Any:
        cls.prepare(ctx, inputs)
        return cls.compute(*inputs)

    @staticmethod
    def prepare(ctx: Any, inputs: Any, output: Any = None) -> None:
        raise NotImplementedError

    @staticmethod
    def compute(*inputs: Any) -> Any:
        raise NotImplementedError


def _transformable(function: type[_Function]) -> type[_Function]:
    members = {
        "forward": staticmethod(function.compute),
        "setup_context": staticmethod(function.prepare),
        "apply": torch.autograd.Function.__dict__["apply"],
    }
    function.under_func = type(function.__name__ + "UnderFunc", (function,), members)
    # What the engine calls of a node. torch's own first looks for what is known here.
    node: Any = function._backward_cls
    node.apply = function.backward
    return function


@_transformable
class _Forward(_Function):
    @staticmethod
    def compute(x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry) -> Any:
        return _inner.forward(x, w, bias, geometry)

    @staticmethod
    def prepare(ctx: Any, inputs: Any, output: Any = None) -> None:
        x, w, _, ctx.geometry = inputs
        _keep(ctx, x, w)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor | None) -> Any:
        if grad_y is None:
            return None, None, None, None
        x, w = ctx.saved_tensors
        need_x, need_w, need_bias, _ = _wanted(ctx)
        return *gradients(grad_y, x, w, ctx.geometry, need_x, need_w, need_bias), None

    @staticmethod
    def jvp(ctx: Any, x_t: Tensor | None, w_t: Tensor | None, bias_t: Tensor | None, _: Any) -> Any:
        x, w = ctx.saved_tensors
        geometry = ctx.geometry
        # The tangent of the bias rides along with the first of the others.
        if x_t is not None:
            y_t = forward(x_t, w, bias_t, geometry)
            return y_t if w_t is None else y_t + forward(x, w_t, None, geometry)
        if w_t is not None:
            return forward(x, w_t, bias_t, geometry)
        assert bias_t is not None
        return _spread(bias_t, (x.shape[0], bias_t.shape[0], *geometry.out_size)).contiguous()

    @staticmethod
    def vmap(
        info: Any, in_dims: Dims, x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry
    ) -> Any:
        x_dim, w_dim, bias_dim, _ = in_dims
        count = info.batch_size
        if w_dim is not None:
            if bias is not None:
                bias = _lay_out(bias, bias_dim, count, 0)
            x, w = _lay_out(x, x_dim, count, 1), _lay_out(w, w_dim, count, 0)
            return _pick_up(forward(x, w, bias, geometry.repeated(count)), count, 1), 1
        shared = bias if bias_dim is None else None
        if x_dim is None:
            y = forward(x, w, shared, geometry).unsqueeze(0)
        else:
            y = _unfold(forward(_fold(x, x_dim), w, shared, geometry), count)
        if bias is not None and bias_dim is not None:
            y = y + bias.movedim(bias_dim, 0)[:, None, :, None, None]
        return y, 0


@_transformable
class _GradInput(_Function):
    @staticmethod
    def compute(grad_y: Tensor, w: Tensor, geometry: Geometry) -> Any:
        return _inner.grad_input(grad_y, w, geometry)

    @staticmethod
    def prepare(ctx: Any, inputs: Any, output: Any = None) -> None:
        grad_y, w, ctx.geometry = inputs
        _keep(ctx, grad_y, w)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor | None) -> Any:  # shaped like x
        if cotangent is None:
            return None, None, None
        grad_y, w = ctx.saved_tensors
        need_y, need_w, _ = _wanted(ctx)
        to_y = forward(cotangent, w, None, ctx.geometry) if need_y else None
        to_w = grad_weight(grad_y, cotangent, ctx.geometry)[0] if need_w else None
        return to_y, to_w, None

    @staticmethod
    def jvp(ctx: Any, y_t: Tensor | None, w_t: Tensor | None, _: Any) -> Any:
        grad_y, w = ctx.saved_tensors
        return _sum(
            None if y_t is None else grad_input(y_t, w, ctx.geometry),
            None if w_t is None else grad_input(grad_y, w_t, ctx.geometry),
        )

    @staticmethod
    def vmap(info: Any, in_dims: Dims, grad_y: Tensor, w: Tensor, geometry: Geometry) -> Any:
        y_dim, w_dim, _ = in_dims
        count = info.batch_size
        if w_dim is None:
            assert y_dim is not None
            return _unfold(grad_input(_fold(grad_y, y_dim), w, geometry), count), 0
        grad_y, w = _lay_out(grad_y, y_dim, count, 1), _lay_out(w, w_dim, count, 0)
        return _pick_up(grad_input(grad_y, w, geometry.repeated(count)), count, 1), 1


@_transformable
class _GradWeight(_Function):
    """(grad_w, grad_bias) with_bias, else grad_w alone."""

    @staticmethod
    def compute(grad_y: Tensor, x: Tensor, geometry: Geometry, with_bias: bool) -> Any:
        gradients = _inner.grad_weight(grad_y, x, geometry, with_bias)
        return gradients if with_bias else gradients[0]

    @staticmethod
    def prepare(ctx: Any, inputs: Any, output: Any = None) -> None:
        grad_y, x, ctx.geometry, ctx.with_bias = inputs
        _keep(ctx, grad_y, x)

    @staticmethod
    def backward(ctx: Any, w_cotangent: Tensor | None, bias_cotangent: Tensor | None = None) -> Any:
        grad_y, x = ctx.saved_tensors
        need_y, need_x, _, _ = _wanted(ctx)
        to_y = to_x = None
        if w_cotangent is not None:
            if need_y:
                to_y = forward(x, w_cotangent, bias_cotangent, ctx.geometry)
            if need_x:
                to_x = grad_input(grad_y, w_cotangent, ctx.geometry)
        elif bias_cotangent is not None and need_y:
            to_y = _spread(bias_cotangent, grad_y.shape)
        return to_y, to_x, None, None

    @staticmethod
    def jvp(ctx: Any, y_t: Tensor | None, x_t: Tensor | None, *_: Any) -> Any:
        grad_y, x = ctx.saved_tensors
        w_t = bias_t = None
        if y_t is not None:
            w_t, bias_t = grad_weight(y_t, x, ctx.geometry, ctx.with_bias)
        if x_t is not None:
            w_t = _sum(w_t, grad_weight(grad_y, x_t, ctx.geometry)[0])
        if not ctx.with_bias:
            return w_t
        # For one of several outputs autograd takes no None as "no tangent".
        return w_t, grad_y.new_zeros(grad_y.shape[1]) if bias_t is None else bias_t

    @staticmethod
    def vmap(
        info: Any, in_dims: Dims, grad_y: Tensor, x: Tensor, geometry: Geometry, with_bias: bool
    ) -> Any:
        y_dim, x_dim, _, _ = in_dims
        count = info.batch_size
        grad_y, x = _lay_out(grad_y, y_dim, count, 1), _lay_out(x, x_dim, count, 1)
        grad_w, grad_b = grad_weight(grad_y, x, geometry.repeated(count), with_bias)
        grad_w = _pick_up(grad_w, count, 0)
        return (grad_w, 0) if grad_b is None else ((grad_w, _pick_up(grad_b, count, 0)), (0, 0))


@_transformable
class _GradBias(_Function):
    @staticmethod
    def compute(grad_y: Tensor) -> Any:
        return _inner.grad_bias(grad_y)

    @staticmethod
    def prepare(ctx: Any, inputs: Any, output: Any = None) -> None:
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        return _spread(cotangent, ctx.shape)

    @staticmethod
    def jvp(ctx: Any, y_t: Tensor) -> Any:
        return grad_bias(y_t)

    @staticmethod
    def vmap(info: Any, in_dims: Dims, grad_y: Tensor) -> Any:
        laid_out = _lay_out(grad_y, in_dims[0], info.batch_size, 1)
        return _pick_up(grad_bias(laid_out), info.batch_size, 0), 0


def _keep(ctx: Any, first: Tensor, second: Tensor) -> None:
    """Both operands, for reverse and forward mode; and absent derivatives stay None."""
    ctx.save_for_backward(first, second)
    if forward_ad._current_level >= 0:  # tangents are computed along with the values, or never
        ctx.save_for_forward(first, second)
    ctx.set_materialize_grads(False)


def _laid_out_like(x: Tensor, grad_y: Tensor) -> Tensor:
    """One copy for both gradients where dY is a part of a larger tensor, as from torch.cat.

    Kernels read such memory, but their fast ways are for whole tensors; torch copies it too.
    """
    if _functorch_active() or grad_y.is_contiguous(memory_format=torch.channels_last):
        return grad_y
    last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return grad_y.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


# The order in which _wanted asks about inputs, for each `needs_input_grad` that was met.
_orders: dict[tuple[bool, ...], list[int]] = {}


def _wanted(ctx: Any) -> Sequence[bool]:
    """Which gradients this backward pass is for.

    ctx.needs_input_grad was written down by the forward: it says what any pass may be for. So the
    engine is asked, as torch's own nodes ask it, whether it goes on to the node that a gradient is
    for. (Tensors come first among the inputs, so that input and node have the same number.) Where
    Dynamo traces everything is computed, and the graph drops what it does not use.

    Where the answer is yes and the node a leaf whose gradient autograd.grad() returns, the engine
    raises instead, which takes longer than the rest of a backward. So what was not wanted when it
    last did that is asked about first, and the only one that is left not at all: a node runs
    because something is wanted of it.
    """
    needed: tuple[bool, ...] = ctx.needs_input_grad
    if _dynamo_compiling():
        return needed
    order = _orders.get(needed)
    if order is None:
        order = _orders[needed] = [i for i, yes in enumerate(needed) if yes]
    if len(order) < 2:
        return needed
    edges, wanted, last = ctx.next_functions, list(needed), order[-1]
    some = raised = False
    for i in order:
        if i == last and not some and not _has_rpc_agent():
            break
        try:
            if _will_execute(edges[i][0]):
                some = True
            else:
                wanted[i] = False
        except RuntimeError:  # or there is no engine, because somebody calls the backward by hand
            some = raised = True
    if raised:
        _orders[needed] = sorted(order, key=wanted.__getitem__)
    # None at all: torch.distributed.autograd, whose engine keeps its plans elsewhere.
    return wanted if True in wanted else needed


def _spread(bias: Tensor, shape: tuple[int, ...]) -> Tensor:
    """One number a channel, for every pixel: what grad_bias is the transpose of."""
    return bias.reshape(1, -1, 1, 1).expand(shape)


def _sum(*terms: Tensor | None) -> Tensor | None:
    """Of the terms that exist."""
    total = None
    for term in terms:
        if term is not None:
            total = term if total is None else total + term
    return total


# vmap's axis into the batch, and back out of it.


def _fold(tensor: Tensor, dim: int) -> Tensor:
    return tensor.movedim(dim, 0).flatten(0, 1)


def _unfold(tensor: Tensor, count: int) -> Tensor:
    return tensor.reshape(count, tensor.shape[0] // count, *tensor.shape[1:])


# vmap's axis side by side along `axis` (channels, hence groups), and back out of it.


def _lay_out(tensor: Tensor, dim: int | None, count: int, axis: int) -> Tensor:
    if dim is None:
        tensor = tensor.unsqueeze(axis)
        tensor = tensor.expand(*tensor.shape[:axis], count, *tensor.shape[axis + 1 :])
    else:
        tensor = tensor.movedim(dim, axis)
    return tensor.flatten(axis, axis + 1)


def _pick_up(tensor: Tensor, count: int, axis: int) -> Tensor:
    before, extent, after = tensor.shape[:axis], tensor.shape[axis], tensor.shape[axis + 1 :]
    return tensor.reshape(*before, count, extent // count, *after)
