"""Bit for bit the same, every time: no atomics, and no slower mode that would be repeatable."""

import os

import calls
import pytest
import torch
from cases import BY_NAME

# Long sums, many blocks, ragged ends: where an order of summation would show.
NAMES = (
    "batch_800",
    "k3s2_many_tiles",
    "k2s2_many_tiles",
    "depthwise_k4s2p1",
    "groups_of_4",
    "k9s2_to_1",
    "k64s32",
    "k32s16_unpadded",
    "from_600_channels",
    "to_600_channels",
    "1d_tall",
)
RERUNS = int(os.environ.get("CONVT2D_RERUNS", "250"))


def step(case, tensors):
    """Forward and all gradients."""
    y = calls.conv(*tensors, **case.arguments)
    return [y, *torch.autograd.grad(y, tensors, torch.cos(y.detach()))]


def tensors_of(case, device, dtype, order=torch.contiguous_format):
    torch.manual_seed(0)
    shapes = (case.x_shape, case.w_shape, (case.out_channels,))
    tensors = [torch.randn(shape, device=device).to(dtype) for shape in shapes]
    tensors[:2] = [tensor.contiguous(memory_format=order) for tensor in tensors[:2]]
    return [tensor.requires_grad_() for tensor in tensors]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_reruns(name, order, dtype, device):
    case = BY_NAME[name]
    tensors = tensors_of(case, device, dtype, order)
    first = step(case, tensors)
    differences = torch.zeros((), dtype=torch.int64, device=device)
    for _ in range(RERUNS if device == "cuda" else 5):
        for again, expected in zip(step(case, tensors), first):
            differences += (again != expected).sum()
    assert differences == 0


def test_number_of_threads():
    """The CPU's order of summation does not depend on who sums."""
    case = BY_NAME["k3s2_many_tiles"]
    tensors = tensors_of(case, "cpu", torch.float32)
    threads = torch.get_num_threads()
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append(step(case, tensors))
    torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(mine, its) for mine, its in zip(other, results[0]))


@pytest.mark.cuda
@pytest.mark.parametrize("name", NAMES)
def test_two_streams_at_once(name):
    case = BY_NAME[name]
    tensors = tensors_of(case, "cuda", torch.float32)
    expected = step(case, tensors)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(2)]
    results = []
    for _ in range(20):
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append(step(case, tensors))
    torch.cuda.synchronize()
    for result in results:
        assert all(torch.equal(mine, its) for mine, its in zip(result, expected))


@pytest.mark.cuda
@pytest.mark.parametrize("name", NAMES)
def test_graph_replay(name):
    case = BY_NAME[name]
    tensors = tensors_of(case, "cuda", torch.float32)
    # Detached: a live graph would keep the leaves' gradient nodes on the stream it was recorded on,
    # and the backward inside the capture would have to wait for that stream: illegal there.
    expected = [result.detach() for result in step(case, tensors)]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step(case, tensors)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(case, tensors)
    for _ in range(10):
        for result in captured:
            result.detach().fill_(float("nan"))
        graph.replay()
        assert all(torch.equal(mine, its) for mine, its in zip(captured, expected))
