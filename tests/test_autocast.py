"""Autocast acts as it does for nn.ConvTranspose2d: dtype, caching, nesting, gradients."""

import pytest
import torch
import torch.nn.functional as F
from calls import conv, layer, raw
from torch.utils._python_dispatch import TorchDispatchMode

LOW = (torch.float16, torch.bfloat16)


def tensors(device, dtype=torch.float32):
    torch.manual_seed(0)
    x = torch.randn(2, 16, 9, 8, device=device, dtype=dtype)
    w = torch.randn(16, 24, 4, 4, device=device, dtype=dtype, requires_grad=True)
    bias = torch.randn(24, device=device, dtype=dtype, requires_grad=True)
    return x, w, bias


def both(x, w, bias):
    ours = conv(x, w, bias, stride=2, padding=1)
    return ours, F.conv_transpose2d(x, w, bias, stride=2, padding=1)


class Casts(TorchDispatchMode):
    """Counts the copies that change a tensor of the given shape to another dtype."""

    def __init__(self, shape):
        super().__init__()
        self.shape, self.count = shape, 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        if function is torch.ops.aten._to_copy.default and arguments[0].shape == self.shape:
            self.count += 1
        return function(*arguments, **(keywords or {}))


@pytest.mark.parametrize("low", LOW, ids=str)
def test_dtype_and_gradients(low, device):
    x, w, bias = tensors(device)
    with torch.autocast(device, dtype=low):
        ours, theirs = both(x, w, bias)
    assert ours.dtype == theirs.dtype == low
    # Not to torch's result: on some CPUs that is rounded before the sum is complete.
    exact = F.conv_transpose2d(*(t.to(low).double() for t in (x, w, bias)), stride=2, padding=1)
    torch.testing.assert_close(ours.double(), exact, rtol=2e-2, atol=2e-2)
    grad_y = torch.randn_like(ours)
    for mine, its in zip(
        torch.autograd.grad(ours, (w, bias), grad_y), torch.autograd.grad(theirs, (w, bias), grad_y)
    ):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine, its, rtol=3e-2, atol=3e-1)


@pytest.mark.parametrize("entrance", ["function", "raw op", "module", "compiled"])
def test_every_entrance(entrance, device):
    x, w, bias = tensors(device)
    module = layer(16, 24, 4, stride=2, padding=1, device=device)
    call = {
        "function": lambda: conv(x, w, bias, 2, 1),
        "raw op": lambda: raw(x, w, bias, 2, 1),
        "module": lambda: module(x),
        "compiled": torch.compile(lambda: module(x), backend="aot_eager"),
    }[entrance]
    with torch.autocast(device, dtype=torch.bfloat16):
        assert call().dtype == torch.bfloat16
        with torch.autocast(device, enabled=False):
            assert call().dtype == torch.float32
        assert call().dtype == torch.bfloat16
    assert call().dtype == torch.float32


def test_mixed_inputs_meet_in_the_middle(device):
    x, w, bias = tensors(device)
    with torch.autocast(device, dtype=torch.bfloat16):
        for given in ((x.half(), w, bias), (x.bfloat16(), w, bias), (x, w.bfloat16(), None)):
            ours, theirs = both(*given)
            assert ours.dtype == theirs.dtype == torch.bfloat16


def test_float64_is_left_alone(device):
    x, w, bias = tensors(device, torch.float64)
    with torch.autocast(device, dtype=torch.bfloat16):
        ours, theirs = both(x, w, bias)
    assert ours.dtype == theirs.dtype == torch.float64
    torch.testing.assert_close(ours, theirs)


@pytest.mark.cuda
def test_the_weight_is_cast_once_a_region():
    x, w, bias = tensors("cuda")
    counts = []
    for function in (conv, F.conv_transpose2d):
        with torch.autocast("cuda", dtype=torch.bfloat16), Casts(w.shape) as casts:
            for _ in range(3):
                function(x, w, bias, 2, 1)
        counts.append(casts.count)
    assert counts == [1, 1]


@pytest.mark.cuda
@pytest.mark.parametrize("cache", [True, False])
def test_the_backward_has_nothing_beside_the_casts(cache):
    x, w, bias = tensors("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=cache):
        y = conv(x.requires_grad_(), w, bias, 2, 1)
        again = conv(x, w, bias, 2, 1)
    nodes = [[node for node, _ in out.grad_fn.next_functions] for out in (y, again)]
    assert {node.name() for node in nodes[0] + nodes[1]} == {"ToCopyBackward0"}
    assert [first is second for first, second in zip(*nodes)] == [cache] * 3


def test_without_the_cache(device):
    x, w, bias = tensors(device)
    with torch.autocast(device, dtype=torch.bfloat16, cache_enabled=False), Casts(w.shape) as casts:
        for _ in range(3):
            conv(x, w, bias, 2, 1)
    assert casts.count == 3


def test_a_step_between_regions_is_seen(device):
    """A weight that changed must not be served from an old region's cache."""
    x, w, bias = tensors(device)
    with torch.autocast(device, dtype=torch.bfloat16):
        before = conv(x, w, bias)
    with torch.no_grad():
        w.zero_(), bias.zero_()
    with torch.autocast(device, dtype=torch.bfloat16):
        assert not conv(x, w, bias).any() and before.any()


@pytest.mark.cuda
def test_training_step_with_a_scaler():
    module = layer(16, 24, 4, stride=2, padding=1, device="cuda")
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    x, _, _ = tensors("cuda")
    losses = []
    for _ in range(5):
        optimiser.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = module(x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
