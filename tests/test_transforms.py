"""Gradients of every order, forward AD, torch.func and checkpointing, on our own kernels.

gradcheck proves that gradients belong to the values; that the values are right is test_exact's and
test_numeric's business.
"""

import itertools
from collections import Counter

import calls
import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from calls import conv
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

# Small enough for numerical derivatives of second order.
GEOMETRIES = {
    "s1": {"channels": (2, 3), "size": (3, 2), "kernel": (2, 3)},
    "s2p1op1": {
        "channels": (2, 2),
        "size": (2, 3),
        "kernel": (3, 3),
        "stride": 2,
        "padding": 1,
        "output_padding": 1,
    },
    "groups_dilation": {
        "channels": (4, 2),
        "size": (2, 2),
        "kernel": (2, 2),
        "stride": (2, 1),
        "padding": (1, 0),
        "dilation": (1, 2),
        "groups": 2,
    },
    "depthwise_empty_phases": {
        "channels": (2, 2),
        "size": (2, 2),
        "kernel": (1, 2),
        "stride": 3,
        "output_padding": 1,
        "groups": 2,
    },
}


def problem(name, device, dtype=torch.float64, requires_grad=True, order=torch.contiguous_format):
    """(x, w, bias) and the arguments of one geometry."""
    arguments = dict(GEOMETRIES[name])
    channels, size = arguments.pop("channels"), arguments.pop("size")
    kernel, groups = arguments.pop("kernel"), arguments.get("groups", 1)
    generator = torch.Generator().manual_seed(7)

    def draw(*shape):
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
        drawn = drawn.to(device, dtype)
        if len(shape) == 4:
            drawn = drawn.contiguous(memory_format=order)
        return drawn.requires_grad_(requires_grad)

    tensors = (
        draw(2, channels[0], *size),
        draw(channels[0], channels[1] // groups, *kernel),
        draw(channels[1]),
    )
    return tensors, arguments


geometries = pytest.mark.parametrize("name", GEOMETRIES)


@geometries
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last], ids=str)
def test_gradcheck(name, device, order, node):
    tensors, arguments = problem(name, device, order=order)
    assert gradcheck(
        lambda *each: conv(*each, **arguments),
        tensors,
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
        fast_mode=False,
    )


@geometries
def test_gradgradcheck(name, device, node):
    tensors, arguments = problem(name, device)
    assert gradgradcheck(lambda *each: conv(*each, **arguments), tensors, check_fwd_over_rev=True)


def test_third_order(device):
    tensors, arguments = problem("s1", device)  # torch's own third order fails with output_padding

    def derivatives(function):
        value = function(*tensors, **arguments).pow(3).sum()
        for _ in range(3):
            gradients = torch.autograd.grad(value, tensors, create_graph=True)
            value = sum(gradient.square().sum() for gradient in gradients)
        return gradients

    for ours, theirs in zip(derivatives(conv), derivatives(F.conv_transpose2d)):
        torch.testing.assert_close(ours, theirs)


subsets = list(itertools.product([False, True], repeat=3))[1:]


class Ran(TorchDispatchMode):
    """Counts the inner ops that a call of autograd runs."""

    def __enter__(self):
        self.count = Counter()
        super().__enter__()
        return self.count

    def __torch_dispatch__(self, op, types, arguments=(), keywords=None):
        namespace, name = op._schema.name.split("::")
        if namespace == "convt2d":
            self.count[name] += 1
        return op(*arguments, **(keywords or {}))


def ops_for(x, w, bias):
    """What gradients take: that of the bias is a by-product of grad_weight."""
    return Counter(grad_input=int(x), grad_weight=int(w), grad_bias=int(bias and not w))


@pytest.mark.parametrize("needed", subsets, ids=str)
@geometries
def test_only_the_gradients_that_are_needed(name, needed, device, node):
    tensors, arguments = problem(name, device)
    for tensor, need in zip(tensors, needed):
        tensor.requires_grad_(need)
    y = conv(*tensors, **arguments)
    expected = F.conv_transpose2d(*tensors, **arguments)
    grad_y = torch.randn_like(y)
    asked = [tensor for tensor, need in zip(tensors, needed) if need]
    with Ran() as ran:
        ours = torch.autograd.grad(y, asked, grad_y)
    for mine, its in zip(ours, torch.autograd.grad(expected, asked, grad_y)):
        torch.testing.assert_close(mine, its)
    assert ran == ops_for(*needed)


@pytest.mark.parametrize("wanted", subsets, ids=str)
@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
def test_only_the_gradients_that_are_asked_for(with_bias, leaves, wanted, device):
    """All of x, w and bias require gradients, but this pass is for some of them."""
    if not with_bias and wanted[2]:
        pytest.skip("no bias to ask for")
    parameters, arguments = problem("s2p1op1", device)
    tensors = parameters if leaves else tuple(tensor * 1 for tensor in parameters)
    operands = tensors if with_bias else tensors[:2]
    y, expected = conv(*operands, **arguments), F.conv_transpose2d(*operands, **arguments)
    grad_y = torch.randn_like(y)
    asked, asked_leaves = (
        [tensor for tensor, want in zip(each, wanted) if want] for each in (tensors, parameters)
    )
    theirs = torch.autograd.grad(expected, asked, grad_y, retain_graph=True)
    with Ran() as ran:
        ours = torch.autograd.grad(y, asked, grad_y, retain_graph=True)
    assert ran == ops_for(*wanted)
    torch.testing.assert_close(ours, theirs)
    with Ran() as ran:
        y.backward(grad_y, inputs=asked_leaves)
    assert ran == ops_for(*wanted)
    torch.testing.assert_close(tuple(tensor.grad for tensor in asked_leaves), theirs)
    assert sum(tensor.grad is not None for tensor in parameters) == len(asked)


def test_a_whole_backward_computes_each_gradient_once(device, node):
    tensors, arguments = problem("s2p1op1", device)
    y = conv(*tensors, **arguments)
    with Ran() as ran:
        y.sum().backward(retain_graph=True)
    assert ran == ops_for(True, True, True)
    with Ran() as ran:
        by_hand = getattr(y.grad_fn, "apply", y.grad_fn)
        by_hand(torch.ones_like(y))  # there is no engine to ask
    assert ran == ops_for(True, True, True)


@pytest.mark.parametrize("wanted", [(True, False), (False, True), (True, True)], ids=str)
def test_only_the_second_derivatives_that_are_asked_for(wanted, device, node):
    (x, w, bias), arguments = problem("s2p1op1", device)
    y, expected = conv(x, w, bias, **arguments), F.conv_transpose2d(x, w, bias, **arguments)
    grad_y = torch.randn_like(y, requires_grad=True)
    for first, other, op in ((x, w, "grad_weight"), (w, x, "grad_input")):
        asked = [tensor for tensor, want in zip((grad_y, other), wanted) if want]
        results = []
        for result in (y, expected):
            (gradient,) = torch.autograd.grad(result, first, grad_y, create_graph=True)
            with Ran() as ran:
                results.append(torch.autograd.grad(gradient.square().sum(), asked))
            if result is y:
                assert ran == Counter({"forward": int(wanted[0]), op: int(wanted[1])})
        torch.testing.assert_close(*results)


def test_passes_inside_passes(device, node):
    """What is asked for belongs to a pass, not to the thread: a hook may run one of its own."""
    (x, w, bias), arguments = problem("s2p1op1", device)
    y, other = conv(x, w, bias, **arguments), conv(x, w, bias, **arguments)
    inner, ones = [], torch.ones_like(y)
    y.register_hook(lambda _: inner.extend(torch.autograd.grad(other, w, ones)))
    with Ran() as ran:
        (outer,) = torch.autograd.grad(y, x, ones)
    assert ran == ops_for(True, True, False)
    expected = F.conv_transpose2d(x, w, bias, **arguments).sum()
    torch.testing.assert_close((outer, *inner), torch.autograd.grad(expected, (x, w)))


@pytest.mark.filterwarnings("ignore:You are using a Backend")
def test_distributed_autograd(tmp_path):
    """Its engine answers no to everything it is asked, and runs the node all the same."""
    rpc = pytest.importorskip("torch.distributed.rpc")
    if not rpc.is_available():
        pytest.skip("torch without RPC")
    import torch.distributed.autograd as distributed

    tensors, arguments = problem("s2p1op1", "cpu")
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tmp_path}/rendezvous")
    rpc.init_rpc("only", rank=0, world_size=1, rpc_backend_options=options)
    try:
        with distributed.context() as context:
            distributed.backward(context, [conv(*tensors, **arguments).sum()])
            ours = distributed.get_gradients(context)
    finally:
        rpc.shutdown()
    expected = torch.autograd.grad(F.conv_transpose2d(*tensors, **arguments).sum(), tensors)
    torch.testing.assert_close([ours[tensor] for tensor in tensors], list(expected))


def test_saves_x_and_w_and_nothing_else(device, node):
    (x, w, bias), arguments = problem("s2p1op1", device)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        conv(x, w, bias, **arguments)
    assert len(saved) == 2
    assert {tensor.data_ptr() for tensor in saved} == {x.data_ptr(), w.data_ptr()}


def test_changed_in_place_is_an_error(device, node):
    (x, w, bias), arguments = problem("s1", device)
    y = conv(x, w, bias, **arguments)
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@geometries
@pytest.mark.parametrize("dtype", calls.DTYPES, ids=str)
def test_forward_mode_in_every_dtype(name, dtype, device):
    """A tangent of zeros is the silent failure here; torch's own in float64 is the measure."""
    tensors, arguments = problem(name, device, dtype, requires_grad=False)
    tangents = tuple(torch.randn_like(tensor) for tensor in tensors)

    def tangent(function, convert):
        with forward_ad.dual_level():
            duals = [
                forward_ad.make_dual(convert(tensor), convert(direction))
                for tensor, direction in zip(tensors, tangents)
            ]
            return forward_ad.unpack_dual(function(*duals, **arguments)).tangent

    expected = tangent(F.conv_transpose2d, lambda tensor: tensor.double().cpu())
    ours = tangent(conv, lambda tensor: tensor)
    assert ours.dtype == dtype
    room = 64 * torch.finfo(dtype).eps if dtype != torch.float32 or device == "cpu" else 1e-2
    torch.testing.assert_close(ours.double().cpu(), expected, rtol=room, atol=room)


def test_forward_mode_of_one_input(device):
    tensors, arguments = problem("s2p1op1", device, requires_grad=False)

    def tangent_of(function, which, tangent):
        with forward_ad.dual_level():
            duals = list(tensors)
            duals[which] = forward_ad.make_dual(tensors[which], tangent)
            return forward_ad.unpack_dual(function(*duals, **arguments)).tangent

    for which in range(3):
        tangent = torch.randn_like(tensors[which])
        expected = tangent_of(F.conv_transpose2d, which, tangent)
        torch.testing.assert_close(tangent_of(conv, which, tangent), expected)


@geometries
def test_func(name, device):
    """torch.func's transforms of ours and of torch's own are the same numbers."""
    tensors, arguments = problem(name, device, requires_grad=False)
    tangents = tuple(torch.randn_like(tensor) for tensor in tensors)

    def results(function):
        def call(*each):
            return function(*each, **arguments)

        def loss(*each):
            return call(*each).pow(3).sum()

        every = (0, 1, 2)
        value, pull = vjp(call, *tensors)
        return [
            grad(loss, every)(*tensors),
            pull(torch.ones_like(value)),
            jvp(call, tensors, tangents),
            jacrev(call, every)(*tensors),
            jacfwd(call, every)(*tensors),
            hessian(loss, every)(*tensors),
            jacrev(jacrev(loss))(*tensors),
            jvp(grad(loss), tensors, tangents),
            grad(lambda *each: grad(loss)(*each).square().sum(), every)(*tensors),
        ]

    for ours, theirs in zip(results(conv), results(F.conv_transpose2d)):
        torch.testing.assert_close(ours, theirs)


@geometries
@pytest.mark.parametrize(
    "batched", list(itertools.product([None, 0, 2], [None, 0, 1], [None, 0]))[1:], ids=str
)
def test_vmap(name, batched, device):
    tensors, arguments = problem(name, device, requires_grad=False)
    stacked = tuple(
        tensor if axis is None else torch.stack([tensor, tensor * 2, tensor - 1], axis)
        for tensor, axis in zip(tensors, batched)
    )
    ours = vmap(lambda *each: conv(*each, **arguments), in_dims=batched)(*stacked)
    theirs = torch.stack(
        [
            F.conv_transpose2d(
                *(t if axis is None else t.select(axis, i) for t, axis in zip(stacked, batched)),
                **arguments,
            )
            for i in range(3)
        ]
    )
    torch.testing.assert_close(ours, theirs)


def test_vmap_of_unbatched_images_and_nested(device):
    (_, w, bias), arguments = problem("s2p1op1", device, requires_grad=False)
    x = torch.randn(3, 2, 2, 2, 3, dtype=w.dtype, device=device)
    call = lambda image: conv(image, w, bias, **arguments)  # noqa: E731
    expected = torch.stack([call(image) for image in x])
    torch.testing.assert_close(vmap(vmap(call))(x), expected)
    torch.testing.assert_close(vmap(call)(x), expected)


def test_per_sample_gradients(device):
    """vmap(grad): the transform that ops with register_autograd refuse."""
    (_, w, bias), arguments = problem("groups_dilation", device, requires_grad=False)
    images = torch.randn(5, 4, 2, 2, dtype=w.dtype, device=device)

    def loss(function):
        return lambda weight, image: function(image, weight, bias, **arguments).pow(2).sum()

    ours = vmap(grad(loss(conv)), (None, 0))(w, images)
    theirs = vmap(grad(loss(F.conv_transpose2d)), (None, 0))(w, images)
    torch.testing.assert_close(ours, theirs)


def test_ensemble_of_modules(device, strict_fp32):
    modules = [calls.layer(2, 3, 3, stride=2, device=device) for _ in range(4)]
    parameters, buffers = torch.func.stack_module_state(modules)
    x = torch.randn(2, 2, 4, 5, device=device)
    ours = vmap(lambda *state: functional_call(modules[0], state, x))(parameters, buffers)
    torch.testing.assert_close(ours, torch.stack([module(x) for module in modules]))


def test_raw_op_is_right_or_says_so(device):
    """torch.ops.convt2d.conv_transpose2d under each transform: the right number or an exception."""
    (x, w, bias), arguments = problem("s2p1op1", device, requires_grad=False)

    def forward_mode(function):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones_like(x))
            return forward_ad.unpack_dual(function(dual, w, bias, **arguments)).tangent

    transforms = {
        "grad": lambda f: grad(lambda x: f(x, w, bias, **arguments).pow(2).sum())(x),
        "hessian": lambda f: hessian(lambda w: f(x, w, bias, **arguments).pow(3).sum())(w),
        "vmap": lambda f: vmap(lambda w: f(x, w, bias, **arguments))(torch.stack([w, w + 1])),
        "forward mode": forward_mode,
    }
    for name, transform in transforms.items():
        try:
            ours = transform(calls.raw)
        except RuntimeError as error:
            assert "convt2d_ext.conv_transpose2d" in str(error), name
        else:
            assert ours is not None, f"{name}: a tangent was lost"
            torch.testing.assert_close(ours, transform(F.conv_transpose2d), msg=name)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant, device):
    tensors, arguments = problem("s2p1op1", device)
    plain = conv(*tensors, **arguments).pow(2).sum()
    again = checkpoint(
        lambda *each: conv(*each, **arguments).pow(2).sum(), *tensors, use_reentrant=reentrant
    )
    for ours, expected in zip(
        torch.autograd.grad(again, tensors) if not reentrant else backward(again, tensors),
        torch.autograd.grad(plain, tensors),
    ):
        assert torch.equal(ours, expected)


def backward(value, tensors):
    """Re-entrant checkpoints work with .backward() only."""
    value.backward()
    return [tensor.grad for tensor in tensors]


def test_inference_mode_and_no_grad(device):
    tensors, arguments = problem("s2p1op1", device)
    expected = conv(*tensors, **arguments).detach()
    with torch.no_grad():
        y = conv(*tensors, **arguments)
    assert not y.requires_grad and torch.equal(y, expected)
    with torch.inference_mode():
        y = conv(*tensors, **arguments)
    assert y.is_inference() and torch.equal(y, expected)


def test_gradients_of_strange_strides(device):
    """Expanded, transposed and flipped gradients of y, x and w."""
    tensors, arguments = problem("s2p1op1", device)
    y, expected = conv(*tensors, **arguments), F.conv_transpose2d(*tensors, **arguments)
    one = torch.ones((), dtype=y.dtype, device=device)
    for grad_y in (one.expand_as(y), torch.randn_like(y).mT.contiguous().mT, y.detach().flip(3)):
        ours = torch.autograd.grad(y, tensors, grad_y, retain_graph=True)
        theirs = torch.autograd.grad(expected, tensors, grad_y, retain_graph=True)
        for mine, its in zip(ours, theirs):
            torch.testing.assert_close(mine, its)


def test_gradient_layouts(device):
    """grad_input and grad_weight are channels-last iff x or w is, whatever grad_y is."""
    orders = (torch.contiguous_format, torch.channels_last)
    for x_order, w_order in itertools.product(orders, repeat=2):
        x = torch.randn(2, 4, 5, 6, device=device).contiguous(memory_format=x_order)
        w = torch.randn(4, 3, 3, 3, device=device).contiguous(memory_format=w_order)
        x.requires_grad_(), w.requires_grad_()
        y = conv(x, w)
        order = torch.contiguous_format
        if torch.channels_last in (x_order, w_order):
            order = torch.channels_last
        for grad_order in orders:
            grad_y = torch.randn_like(y, memory_format=grad_order)
            for result in (y, *torch.autograd.grad(y, (x, w), grad_y, retain_graph=True)):
                assert result.is_contiguous(memory_format=order)
