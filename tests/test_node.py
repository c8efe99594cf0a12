"""torch's own node for a forward, aten::convolution_overrideable: who gets it, and what it does.

test_transforms.py has the derivatives themselves, by this node and by ours.
"""

import subprocess
import sys
from pathlib import Path

import calls
import pytest
import torch
import torch.nn.functional as F
from calls import conv
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

ATEN = torch.ops.aten
SETTINGS = {"stride": (2, 1), "padding": (1, 2), "output_padding": (1, 0), "dilation": (1, 2)}


def tensors(device, dtype=torch.float32, order=torch.contiguous_format):
    torch.manual_seed(0)
    x = torch.randn(2, 4, 5, 6, device=device).to(dtype).contiguous(memory_format=order)
    w = torch.randn(4, 3, 3, 3, device=device).to(dtype)
    bias = torch.randn(3, device=device).to(dtype)
    return [tensor.requires_grad_() for tensor in (x, w, bias)]


def names_of(run):
    """The ops that a dispatch mode sees."""
    names = []

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(str(function))
            return function(*args, **(kwargs or {}))

    with Names():
        run()
    return names


def test_plain_calls_get_it(device):
    x, w, bias = tensors(device)
    assert type(conv(x, w, bias).grad_fn).__name__ == "ConvolutionOverrideableBackward0"
    parameter = torch.nn.Parameter(w.detach())
    assert "Overrideable" in type(conv(x.detach(), parameter).grad_fn).__name__


@pytest.mark.cuda
def test_a_given_algorithm_does_not():
    x, w, _ = tensors("cuda")
    y = conv(x, w, algorithm="direct")
    assert "Overrideable" not in type(y.grad_fn).__name__
    gradients = torch.autograd.grad(y.sum(), (x, w))
    expected = torch.autograd.grad(F.conv_transpose2d(x, w).sum(), (x, w))
    torch.testing.assert_close(gradients, expected, rtol=1e-3, atol=1e-3)


class Subclass(torch.Tensor):
    """Sees the functions that are called."""


def test_others_do_not(device):
    x, w, bias = tensors(device)
    assert "Overrideable" not in type(conv(x.as_subclass(Subclass), w).grad_fn).__name__
    assert not any("overrideable" in name for name in names_of(lambda: conv(x, w, bias)))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        assert forward_ad.unpack_dual(conv(dual, w)).tangent is not None


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("dtype", calls.DTYPES, ids=str)
def test_same_numbers_as_our_node(dtype, order, device, monkeypatch):
    """Bit for bit, and in the same memory formats; also for parts of gradients."""

    def step():
        given = tensors(device, dtype, order)
        y = conv(*given, **SETTINGS)
        torch.cat([y, torch.ones_like(y)], 1).square().sum().backward()
        return [y, *(tensor.grad for tensor in given)]

    theirs = step()
    monkeypatch.setattr("convt2d_ext._autograd._PLAIN", frozenset())
    for mine, its in zip(step(), theirs):
        assert torch.equal(mine, its)
        assert mine.stride() == its.stride()


@pytest.mark.cuda
def test_precision_is_that_of_the_pass():
    """As ATen: the flag counts when a gradient is computed, not when it was recorded."""
    x, w = (torch.randn(2, 64, 16, 16, device="cuda"), torch.randn(64, 64, 3, 3, device="cuda"))
    x.requires_grad_()
    results = {}
    for recorded in ("tf32", "ieee"):
        with calls.fp32_precision(recorded):
            y = conv(x, w)
        for run in ("tf32", "ieee"):
            with calls.fp32_precision(run):
                (results[recorded, run],) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    assert torch.equal(results["tf32", "ieee"], results["ieee", "ieee"])
    assert torch.equal(results["tf32", "tf32"], results["ieee", "tf32"])
    assert not torch.equal(results["tf32", "tf32"], results["tf32", "ieee"])


@pytest.mark.parametrize("wanted", range(1, 8))
def test_the_aten_ops_themselves(wanted, device, strict_fp32):
    x, w, bias = tensors(device)
    lists = [list(SETTINGS[name]) for name in ("stride", "padding", "dilation")]
    rest = *lists, True, list(SETTINGS["output_padding"]), 1
    with torch.no_grad():  # below autograd and above it
        y = ATEN.convolution_overrideable(x, w, bias, *rest)
    expected = F.conv_transpose2d(x, w, bias, **SETTINGS)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(
        ATEN.convolution_overrideable(x, w, None, *rest) - y, 0 * y - bias[:, None, None]
    )
    mask = [bool(wanted & bit) for bit in (1, 2, 4)]
    grad_y = torch.randn_like(expected)
    gradients = torch.autograd.grad(expected, (x, w, bias), grad_y)
    for context in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        with context():
            ours = ATEN.convolution_backward_overrideable(grad_y, x, w, *rest, mask)
        for want, mine, its in zip(mask, ours, gradients):
            assert (mine is not None) == want
            if want:
                torch.testing.assert_close(mine, its)


def test_what_is_not_ours_is_refused(device):
    x, w, _ = tensors(device)
    for transposed, stride in ((False, [1, 1]), (True, [1]), (True, [1, 1, 1])):
        with pytest.raises(RuntimeError, match="two dimensions"):
            ATEN.convolution_overrideable(x, w, None, stride, [0, 0], [1, 1], transposed, [0, 0], 1)
    with pytest.raises(RuntimeError, match="4 dimensions"):
        ATEN.convolution_overrideable(x[0], w, None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1)


def test_modes_see_our_ops_in_the_backward(device):
    x, w, bias = tensors(device)
    y = conv(x, w, bias, **SETTINGS)
    names = names_of(lambda: torch.autograd.grad(y.sum(), (x, w, bias)))
    assert "convt2d.grad_input.default" in names and "convt2d.grad_weight.default" in names
    y = conv(x, w, bias, **SETTINGS)
    with FlopCounterMode(display=False) as ours:
        y.sum().backward()
    expected = F.conv_transpose2d(x, w, bias, **SETTINGS)
    with FlopCounterMode(display=False) as theirs:
        expected.sum().backward()
    assert ours.get_total_flops() == theirs.get_total_flops()


def test_second_derivatives_never_leave_our_ops(device):
    x, w, _ = tensors(device)
    y = conv(x, w, **SETTINGS)
    (grad_x,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    names = names_of(lambda: torch.autograd.grad(grad_x.square().sum(), (x, w)))
    assert not any("aten.conv" in name or "cudnn" in name for name in names)
    assert any(name.startswith("convt2d.") for name in names)


def test_batches_of_gradients(device):
    x, w, bias = tensors(device)
    y = conv(x, w, bias, **SETTINGS)
    cotangents = torch.randn(3, *y.shape, device=device)
    together = torch.autograd.grad(
        y, (x, w, bias), cotangents, is_grads_batched=True, retain_graph=True
    )
    for i, cotangent in enumerate(cotangents):
        alone = torch.autograd.grad(y, (x, w, bias), cotangent, retain_graph=True)
        for many, one in zip(together, alone):
            torch.testing.assert_close(many[i], one, rtol=1e-3, atol=1e-3)


@pytest.mark.cuda
def test_running_out_of_memory_in_a_backward():
    """torch's own type, which training loops catch; and the next pass is as good as ever."""
    x, w, _ = tensors("cuda")
    y = conv(x, w)
    expected = torch.autograd.grad(y.sum(), (x, w), retain_graph=True)
    images = torch.ones(1, 1, 1, 1, device="cuda").expand(2**14, 2**10, 64, 64).requires_grad_()
    flat = torch.ones(2**10, 1, 1, 1, device="cuda")
    free, _ = torch.cuda.mem_get_info()
    if free < 2 * 2**28 * 4:
        pytest.skip("needs 2 GiB of free device memory")
    big = conv(images, flat)  # 256 MiB; its gradient would be 256 GiB
    with pytest.raises(torch.OutOfMemoryError):
        torch.autograd.grad(big, images, torch.ones_like(big))
    assert all(map(torch.equal, torch.autograd.grad(y.sum(), (x, w)), expected))


@pytest.mark.parametrize("differentiable", [False, True])
def test_a_failure_in_a_backward_keeps_its_words(differentiable, device, monkeypatch):
    x, w, _ = tensors(device)
    y = conv(x, w)
    if differentiable:

        def fail(*_):
            raise torch.OutOfMemoryError("in the middle of it")

        monkeypatch.setattr("convt2d_ext._inner.grad_input", fail)
        with pytest.raises(torch.OutOfMemoryError, match="in the middle of it"):
            torch.autograd.grad(y.sum(), x, create_graph=True)
    else:
        with pytest.raises(RuntimeError, match="groups 3 must divide"):
            torch.ops.convt2d.backward(y, x, w, 1, 1, 0, 0, 1, 1, 3, True, True, True)
        with pytest.raises(RuntimeError, match="groups 3 must divide"), torch.no_grad():
            ATEN.convolution_backward_overrideable(
                y, x, w, [1, 1], [0, 0], [1, 1], True, [0, 0], 3, [True, True, True]
            )


REGISTERED = """
import warnings
warnings.simplefilter("error")
import torch, convt2d_ext
"""


def test_registering_it_warns_of_nothing():
    """No kernel of torch's is replaced."""
    run = subprocess.run(
        [sys.executable, "-c", REGISTERED],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        check=True,
    )
    assert "overrid" not in (run.stdout + run.stderr).lower()
