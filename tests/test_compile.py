"""torch.compile and torch.export: one graph, few recompilations, the same numbers and strides."""

import pytest
import torch
import torch.nn.functional as F
from calls import conv, fp32_precision, layer, raw
from torch._dynamo.testing import CompileCounterWithBackend
from torch.export import Dim, export

import convt2d_ext

CL = torch.channels_last


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def tensors(device, batch=2, size=(5, 6), order=torch.contiguous_format, requires_grad=False):
    torch.manual_seed(0)
    x = torch.randn(batch, 4, *size, device=device).contiguous(memory_format=order)
    w, bias = torch.randn(4, 6, 3, 3, device=device), torch.randn(6, device=device)
    return [tensor.requires_grad_(requires_grad) for tensor in (x, w, bias)]


ENTRANCES = {
    "function": lambda x, w, bias: conv(x, w, bias, stride=2, padding=1),
    "function on auto": lambda x, w, b: convt2d_ext.conv_transpose2d(x, w, b, 2, 1),
    "raw op": lambda x, w, bias: raw(x, w, bias, 2, 1),
}
entrances = pytest.mark.parametrize("entrance", ENTRANCES)


@entrances
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_fullgraph(entrance, backend, device):
    function = ENTRANCES[entrance]
    given = tensors(device, requires_grad=True)
    again = tensors(device, requires_grad=True)
    expected, compiled = function(*given), torch.compile(function, fullgraph=True, backend=backend)
    result = compiled(*again)
    torch.testing.assert_close(result, expected)
    weight = torch.randn_like(expected)
    for ours, eager in zip(
        torch.autograd.grad(result, again, weight), torch.autograd.grad(expected, given, weight)
    ):
        torch.testing.assert_close(ours, eager)


def test_one_opaque_call(device):
    """Dynamo sees the public op, once, whatever the entrance; that is what passes can match."""
    module = layer(4, 6, 3, stride=2, padding=1, device=device)
    x, w, bias = tensors(device)
    for function in (*ENTRANCES.values(), lambda x, w, bias: module(x)):
        counter = CompileCounterWithBackend("eager")
        torch._dynamo.reset()
        torch.compile(function, fullgraph=True, backend=counter)(x, w, bias)
        targets = [node.target for graph in counter.graphs for node in graph.graph.nodes]
        ours = [each for each in targets if "convt2d.conv_transpose2d" in str(each)]
        assert len(ours) == 1


@pytest.mark.parametrize("order", [torch.contiguous_format, CL], ids=str)
def test_inductor(order, device):
    """Through code generation, with a pointwise neighbour on both sides and a backward."""
    module = layer(4, 6, 3, stride=2, padding=1, device=device)

    def function(x):
        return module(x.sin()).relu()

    x = tensors(device, order=order)[0].requires_grad_()
    expected = function(x)
    expected_gradients = torch.autograd.grad(expected.sum(), [x, *module.parameters()])
    result = torch.compile(function, fullgraph=True)(x)
    torch.testing.assert_close(result, expected)
    assert result.stride() == expected.stride()
    gradients = torch.autograd.grad(result.sum(), [x, *module.parameters()])
    for ours, eager in zip(gradients, expected_gradients):
        torch.testing.assert_close(ours, eager)
        assert ours.stride() == eager.stride()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_autograd(backend, device, strict_fp32):
    """Dynamo traces our backward, and finds nothing there that it cannot trace."""
    given, again = (tensors(device, requires_grad=True) for _ in range(2))
    function = ENTRANCES["function"]
    function(*given).square().sum().backward()
    result = function(*again).square().sum()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend=backend, fullgraph=True)):
        result.backward()
    for ours, eager in zip(again, given):
        torch.testing.assert_close(ours.grad, eager.grad)


def graphs_for_shapes(function, device, **options):
    """How many times a function is compiled for images of many sizes; gradients are checked."""
    counter = CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=counter, **options)
    for batch, size in ((5, (7, 8)), (7, (8, 9)), (8, (10, 11)), (9, (13, 12)), (10, (21, 17))):
        given = tensors(device, batch, size, requires_grad=True)
        again = tensors(device, batch, size, requires_grad=True)
        result, expected = compiled(*again), function(*given)
        torch.testing.assert_close(result, expected)
        for ours, eager in zip(
            torch.autograd.grad(result.sum(), again), torch.autograd.grad(expected.sum(), given)
        ):
            torch.testing.assert_close(ours, eager)
    return counter.frame_count


@entrances
def test_dynamic_takes_two_graphs(entrance, device):
    """As ATen: one for the first shape, one for all others."""
    assert graphs_for_shapes(ENTRANCES[entrance], device) <= 2


@entrances
def test_marked_dynamic_takes_one_graph(entrance, device):
    assert graphs_for_shapes(ENTRANCES[entrance], device, dynamic=True) == 1


@pytest.mark.parametrize("entrance", ["function", "raw op"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_unbacked_batch(backend, entrance, device):
    """A batch that only the data decides: ATen's compiled convolution fails here."""

    def function(x, keep, w, bias):
        return ENTRANCES[entrance](x[keep], w, bias) * 2

    x, w, bias = tensors(device, batch=7)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(function, fullgraph=True, backend=backend)
        for kept in (3, 5, 0):
            keep = torch.arange(7, device=device) < kept
            torch.testing.assert_close(compiled(x, keep, w, bias), function(x, keep, w, bias))


@pytest.mark.parametrize("strict", [False, True])
def test_export(strict, device):
    module = torch.nn.Sequential(
        layer(4, 6, 3, stride=2, output_padding=1, device=device), torch.nn.ReLU()
    )
    example = torch.randn(2, 4, 5, 6, device=device)
    sizes = {0: Dim("batch", min=1, max=64), 2: Dim("height", min=2, max=64)}
    program = export(module, (example,), dynamic_shapes=(sizes,), strict=strict)
    for shape in ((2, 4, 5, 6), (7, 4, 9, 6)):
        x = torch.randn(shape, device=device)
        torch.testing.assert_close(program.module()(x), module(x))
    targets = {str(node.target) for node in program.graph.nodes}
    assert any("convt2d" in target for target in targets), targets


def test_export_saved_and_loaded(tmp_path, device):
    module = layer(4, 6, 3, stride=2, device=device)
    x = torch.randn(2, 4, 5, 6, device=device)
    torch.export.save(export(module, (x,)), tmp_path / "layer.pt2")
    loaded = torch.export.load(tmp_path / "layer.pt2").module()
    torch.testing.assert_close(loaded(x), module(x))


def test_errors_survive_compilation(device):
    """Bad shapes raise while tracing, with torch's sentence in the chain."""
    x, w, bias = tensors(device)
    compiled = torch.compile(ENTRANCES["function"], fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="channels"):
        compiled(x[:, :3], w, bias)


def test_output_size_under_compile(device):
    module = layer(4, 6, 3, stride=2, device=device)
    x = torch.randn(2, 4, 5, 6, device=device)
    compiled = torch.compile(lambda x: module(x, [12, 14]), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), module(x, [12, 14]))


def test_compiled_is_eager_bit_for_bit(device):
    function = ENTRANCES["function"]
    given = tensors(device)
    assert torch.equal(torch.compile(function, backend="aot_eager")(*given), function(*given))


@pytest.mark.cuda
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_graphs_follow_the_precision_switch(backend):
    """The switch is read when the graph runs, as ATen does, not when it was traced."""
    x = torch.full((1, 1, 4, 4), 1 + 2.0**-12, device="cuda")
    w = torch.ones(1, 1, 1, 1, device="cuda")
    compiled = torch.compile(lambda x: convt2d_ext.conv_transpose2d(x, w), backend=backend)
    for mode in ("ieee", "tf32", "ieee"):
        with fp32_precision(mode):
            assert torch.equal(compiled(x), F.conv_transpose2d(x, w)), mode


@pytest.mark.cuda
def test_cuda_graphs_of_inductor():
    module = layer(4, 6, 3, stride=2, device="cuda")
    compiled = torch.compile(module, mode="reduce-overhead", fullgraph=True)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(2, 4, 5, 6, device="cuda")
            torch.testing.assert_close(compiled(x).clone(), module(x))
