"""Streams, devices, graphs, threads, memory that runs out, launches that fail."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import convt2d_ext

pytestmark = pytest.mark.cuda


def layer(device="cuda", requires_grad=False):
    torch.manual_seed(0)
    x = torch.randint(-3, 4, (8, 32, 32, 32), device=device).float()
    w = torch.randint(-3, 4, (32, 16, 4, 4), device=device).float()
    return x.requires_grad_(requires_grad), w.requires_grad_(requires_grad)


def conv(x, w):
    return convt2d_ext.conv_transpose2d(x, w, stride=2, padding=1)


def test_runs_on_the_current_stream():
    """A slow producer on a side stream: a kernel on any other stream would read stale numbers."""
    x, w = layer()
    expected = conv(x, w)
    stream = torch.cuda.Stream()
    for _ in range(5):
        late = torch.zeros_like(x)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            late.copy_(x)
            result = conv(late, w)
        torch.cuda.current_stream().wait_stream(stream)
        assert torch.equal(result, expected)


def test_backward_runs_on_the_stream_of_its_forward():
    x, w = layer(requires_grad=True)
    expected = torch.autograd.grad(conv(x, w).square().sum(), (x, w))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        value = conv(x, w).square().sum()
    gradients = torch.autograd.grad(value, (x, w))
    torch.cuda.synchronize()
    assert all(torch.equal(mine, its) for mine, its in zip(gradients, expected))


@pytest.mark.two_gpus
def test_second_device_while_the_first_is_current():
    x, w = layer("cuda:1", requires_grad=True)
    with torch.cuda.device(0):
        y = conv(x, w)
        gradients = torch.autograd.grad(y.sum(), (x, w))
        assert torch.cuda.current_device() == 0
    assert y.device == x.device
    on_cpu = [tensor.detach().cpu().requires_grad_() for tensor in (x, w)]
    expected = F.conv_transpose2d(*on_cpu, stride=2, padding=1)
    assert torch.equal(y.cpu(), expected)
    for ours, theirs in zip(gradients, torch.autograd.grad(expected.sum(), on_cpu)):
        assert torch.equal(ours.cpu(), theirs)


@pytest.mark.two_gpus
def test_tensors_on_two_devices():
    x, w = layer()
    conv(x, w)  # these shapes are known from here on
    with pytest.raises(RuntimeError):
        conv(x, w.to("cuda:1"))


def test_captured_training_step():
    """Forward, backward and the optimiser in one graph; replays see new data."""
    module = convt2d_ext.ConvTranspose2d(8, 4, 4, stride=2, padding=1).cuda()
    twin = torch.nn.ConvTranspose2d(8, 4, 4, stride=2, padding=1).cuda()
    twin.load_state_dict(module.state_dict())
    optimisers = [torch.optim.SGD(each.parameters(), lr=0.01) for each in (module, twin)]
    data = torch.randn(4, 8, 16, 16, device="cuda")

    def step(module, optimiser, x):
        optimiser.zero_grad(set_to_none=True)
        module(x).square().mean().backward()
        optimiser.step()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(module, optimisers[0], data)
            step(twin, optimisers[1], data)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(module, optimisers[0], data)
    for _ in range(5):
        data.copy_(torch.randn_like(data))
        graph.replay()
        step(twin, optimisers[1], data)
    torch.testing.assert_close(module.weight, twin.weight, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(module.bias, twin.bias, rtol=1e-3, atol=1e-4)


def test_new_shape_inside_a_capture():
    """Planning and the first launch of a shape neither synchronise nor allocate past torch."""
    x = torch.randint(-3, 4, (3, 5, 11, 7), device="cuda").float()
    w = torch.randint(-3, 4, (5, 7, 3, 3), device="cuda").float()
    conv(*layer())  # the module is loaded
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = conv(x, w)
    graph.replay()
    assert torch.equal(y.cpu(), F.conv_transpose2d(x.cpu(), w.cpu(), stride=2, padding=1))


def test_no_synchronisation():
    """The host returns while the device is still busy with what came before."""
    x, w = layer(requires_grad=True)
    torch.autograd.grad(conv(x, w).sum(), (x, w))
    torch.cuda.synchronize()
    torch.cuda._sleep(400_000_000)
    busy = torch.cuda.Event()
    busy.record()
    torch.autograd.grad(conv(x, w).sum(), (x, w))
    assert not busy.query()
    torch.cuda.synchronize()


def test_usable_after_running_out_of_memory():
    x, w = layer()
    expected = conv(x, w)
    point = torch.ones(1, 1, 1, 1, device="cuda").expand(2**14, 2**10, 64, 64)
    with pytest.raises(torch.OutOfMemoryError):
        convt2d_ext.conv_transpose2d(point, torch.ones(2**10, 2**10, 1, 1, device="cuda"))
    assert torch.equal(conv(x, w), expected)
    torch.cuda.synchronize()


FAILED_LAUNCH = """
import contextlib, torch
from test_cuda_runtime import conv, layer
x, w = layer()
expected = conv(x, w)
torch.cuda.synchronize()
caught = []
with contextlib.suppress(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
    with contextlib.suppress(RuntimeError):
        torch.cuda.synchronize()  # illegal here; from now on the capture is invalid
    try:
        conv(x, w)
    except RuntimeError as error:
        caught.append(str(error))
assert caught and "capture" in caught[0].lower(), caught
torch.cuda.synchronize()
assert torch.equal(conv(x, w), expected)
"""


def test_a_failed_launch_raises_and_leaves_the_context_usable():
    """A capture that was broken refuses every launch after that: ours has to notice and say so.

    In a process of its own: torch's random generators do not get over a broken capture.
    """
    subprocess.run(
        [sys.executable, "-c", FAILED_LAUNCH], check=True, timeout=300, cwd=Path(__file__).parent
    )


def test_threads():
    """Eight threads with shapes of their own, forwards and backwards mixed."""
    inputs = []
    for index in range(8):
        generator = torch.Generator("cuda").manual_seed(index)
        shapes = ((2, 4 + index, 9, 8 + index), (4 + index, 6, 3, 3))
        inputs.append([torch.randn(s, device="cuda", generator=generator) for s in shapes])

    def step(x, w):
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = conv(x, w)
        return y.detach(), *torch.autograd.grad(y.square().sum(), (x, w))

    expected = [step(*each) for each in inputs]
    wrong = []

    def work(index):
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
            for _ in range(30):
                results = step(*inputs[index])
                if not all(torch.equal(a, b) for a, b in zip(results, expected[index])):
                    wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_first_call_of_a_thread():
    """A thread that has not used CUDA yet has no context, which the copy engine's maps need."""
    x = torch.ones(2, 64, 8, 8, dtype=torch.float16, device="cuda")
    x = x.contiguous(memory_format=torch.channels_last)
    w = torch.ones(64, 64, 2, 2, dtype=torch.float16, device="cuda")
    y = convt2d_ext.conv_transpose2d(x, w, stride=2)
    geometry = (2, 2, 0, 0, 2, 2, 1, 1, 1)  # stride, padding, kernel, dilation, groups
    results = []

    def work():
        results.append(torch.ops.convt2d.grad_weight(y, x, *geometry, True, False, 0, -1)[0])

    work()  # now the plan is known and the memory cached: nothing but the launch is left to do
    del results[0]
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(results) == 1 and (results[0] == 2 * 8 * 8 * 64).all()


def test_more_than_2_31_elements():
    """64-bit offsets: the far end of a large image is as right as the near one."""
    if torch.cuda.mem_get_info()[0] < 16 << 30:
        pytest.skip("needs 16 GiB of free device memory")
    x = torch.zeros(1, 1, 2**15, 2**15 + 3, dtype=torch.float16, device="cuda")
    x[0, 0, -1, -1] = 3
    x[0, 0, 0, 0] = 2
    w = torch.tensor([[[[1.0, 2.0]], [[3.0, 4.0]]]], dtype=torch.float16, device="cuda")
    y = convt2d_ext.conv_transpose2d(x, w, stride=(1, 2))
    assert y.numel() > 2**31
    assert y[0, :, 0, :2].tolist() == [[2, 4], [6, 8]]
    assert y[0, :, -1, -2:].tolist() == [[3, 6], [9, 12]]
    assert y.count_nonzero() == 8
    height, width = x.shape[2:]
    del x
    grad_x = torch.ops.convt2d.grad_input(y, w, 1, 2, 0, 0, height, width, 1, 1, 1, False, 0, -1)
    assert grad_x[0, 0, -1, -1] == 3 + 12 + 27 + 48 and grad_x.count_nonzero() == 2
