"""convt2d_ext.ConvTranspose2d is nn.ConvTranspose2d in everything but its forward's kernels."""

import copy
import io
import pickle

import pytest
import torch
from calls import fp32_precision
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import convt2d_ext

ARGUMENTS = (
    {"kernel_size": 3},
    {"kernel_size": 4, "stride": 2, "padding": 1, "bias": False},
    {"kernel_size": (3, 5), "stride": (2, 3), "padding": (1, 2), "dilation": (2, 1), "groups": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1, "dtype": torch.float64},
)


def both(seed=0, channels=(4, 6), **arguments):
    """Ours (on the family that a CPU has, too: `auto` would be ATen) and torch's, same seed."""
    arguments.setdefault("kernel_size", 3)
    torch.manual_seed(seed)
    ours = convt2d_ext.ConvTranspose2d(*channels, **arguments)
    ours.algorithm = "direct"
    torch.manual_seed(seed)
    theirs = nn.ConvTranspose2d(*channels, **arguments)
    return ours, theirs


def image(module, *shape):
    shape = shape or (2, 4, 5, 6)
    return torch.randn(shape, dtype=module.weight.dtype, device=module.weight.device)


def assert_same_state(ours, theirs):
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for mine, its in zip(ours.state_dict().values(), theirs.state_dict().values()):
        assert torch.equal(mine, its)


def assert_same_result(ours, theirs, *arguments):
    torch.testing.assert_close(ours(*arguments), theirs(*arguments))


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_construction(arguments):
    ours, theirs = both(**arguments)
    assert isinstance(ours, nn.ConvTranspose2d)
    assert_same_state(ours, theirs)
    assert repr(ours) == repr(theirs)
    assert_same_result(ours, theirs, image(ours))
    assert [name for name, _ in ours.named_parameters()] == [
        name for name, _ in theirs.named_parameters()
    ]


@pytest.mark.parametrize(
    "arguments",
    [{"groups": 3}, {"padding_mode": "reflect"}, {"groups": 0}, {"kernel_size": -1}],
    ids=str,
)
def test_construction_errors(arguments):
    def error(kind):
        with pytest.raises(Exception) as caught:
            kind(**{"in_channels": 4, "out_channels": 6, "kernel_size": 3, **arguments})
        return type(caught.value), str(caught.value)

    assert error(convt2d_ext.ConvTranspose2d) == error(nn.ConvTranspose2d)


def test_state_travels_both_ways():
    ours, theirs = both()
    other, _ = both(seed=1)
    other.load_state_dict(theirs.state_dict())
    assert_same_state(other, theirs)
    theirs.load_state_dict(other.state_dict())
    assert_same_state(theirs, ours)


def test_copies():
    ours, _ = both()
    stored = io.BytesIO()
    torch.save(ours, stored)
    stored.seek(0)
    x = image(ours)
    for copied in (
        copy.deepcopy(ours),
        copy.copy(ours),
        pickle.loads(pickle.dumps(ours)),
        torch.load(stored, weights_only=False),
    ):
        assert type(copied) is convt2d_ext.ConvTranspose2d
        assert_same_state(copied, ours)
        assert torch.equal(copied(x), ours(x))


def test_conversions(device):
    ours, theirs = both()
    ours, theirs = ours.to(device), theirs.to(device)
    for change in (nn.Module.double, nn.Module.float, nn.Module.bfloat16, nn.Module.float):
        ours, theirs = change(ours), change(theirs)
        assert_same_state(ours, theirs)
    ours = ours.to(memory_format=torch.channels_last)
    theirs = theirs.to(memory_format=torch.channels_last)
    x = image(ours)
    assert ours(x).stride() == theirs(x).stride()
    with fp32_precision("ieee"):
        assert_same_result(ours, theirs, x)


@pytest.mark.parametrize(
    "size", [[11, 13], [12, 14], (2, 6, 12, 13), torch.Size([11, 14])], ids=str
)
def test_output_size(size):
    ours, theirs = both(stride=2)
    x = image(ours)
    assert ours(x, size).shape == theirs(x, size).shape
    assert_same_result(ours, theirs, x, size)
    assert_same_result(ours, theirs, x, list(size))


def test_output_size_of_an_unbatched_image():
    ours, theirs = both(stride=2)
    x = image(ours, 4, 5, 6)
    for size in ([11, 13], [6, 12, 14], None):
        assert_same_result(ours, theirs, x, size)


def test_output_size_overrides_output_padding_and_ignores_channels():
    ours, theirs = both(stride=3, output_padding=2)
    x = image(ours)
    for size in ([15, 18], [9, 9, 16, 19]):
        assert_same_result(ours, theirs, x, size)


@pytest.mark.parametrize("size", [[11], [11, 13, 1], [10, 13], [13, 13], [1, 2, 3, 4, 5], [11, 99]])
def test_output_size_errors(size):
    ours, theirs = both(stride=2)
    x = image(ours)
    with pytest.raises(ValueError) as expected:
        theirs(x, size)
    with pytest.raises(ValueError) as caught:
        ours(x, size)
    assert str(caught.value) == str(expected.value)


def test_keyword_output_size():
    ours, theirs = both(stride=2)
    x = image(ours)
    torch.testing.assert_close(ours(x, output_size=[12, 14]), theirs(x, output_size=[12, 14]))
    torch.testing.assert_close(ours(input=x), theirs(input=x))


def test_empty_batch(device):
    ours, theirs = both(stride=2)
    ours, theirs = ours.to(device), theirs.to(device)
    x = torch.randn(0, 4, 5, 6, device=device, requires_grad=True)
    y = ours(x)
    assert y.shape == theirs(x).shape and y.stride() == theirs(x).stride()
    y.sum().backward()
    assert x.grad.shape == x.shape
    for parameter in ours.parameters():
        assert parameter.grad.shape == parameter.shape and not parameter.grad.any()


def test_lazy():
    torch.manual_seed(0)
    ours = convt2d_ext.LazyConvTranspose2d(6, 3, stride=2)
    ours.algorithm = "direct"
    assert isinstance(ours, nn.LazyConvTranspose2d)
    theirs = nn.LazyConvTranspose2d(6, 3, stride=2)
    assert repr(ours) == repr(theirs)
    x = torch.randn(2, 4, 5, 6)
    torch.manual_seed(0)
    y = ours(x)
    torch.manual_seed(0)
    torch.testing.assert_close(y, theirs(x))
    assert type(ours) is convt2d_ext.ConvTranspose2d
    assert_same_state(ours, theirs)


def train(module, x):
    """Two forwards in training mode and a backward: hooks and power iterations included."""
    module.train()
    module(x)
    module(x).square().sum().backward()
    return {name: parameter.grad for name, parameter in module.named_parameters()}


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "wrap",
    [
        parametrizations.spectral_norm,
        parametrizations.weight_norm,
        nn.utils.spectral_norm,
        nn.utils.weight_norm,
        lambda module: prune.l1_unstructured(module, "weight", amount=0.5),
        lambda module: parametrize.register_parametrization(module, "weight", nn.Hardtanh()),
        lambda module: nn.Sequential(module, nn.BatchNorm2d(6, dtype=torch.float64)),
    ],
    ids=[
        "spectral_norm",
        "weight_norm",
        "spectral_norm by hooks",
        "weight_norm by hooks",
        "prune",
        "parametrize",
        "sequential",
    ],
)
def test_reparametrisation(wrap):
    ours, theirs = both(stride=2, dtype=torch.float64)
    torch.manual_seed(1)
    ours = wrap(ours)
    torch.manual_seed(1)
    theirs = wrap(theirs)
    x = torch.randn(2, 4, 5, 6, dtype=torch.float64)
    gradients, expected = train(ours, x), train(theirs, x)
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient)
    ours.eval(), theirs.eval()
    assert_same_result(ours, theirs, x)


def test_other_padding_modes_are_refused_late_too():
    for module in both():
        module.padding_mode = "reflect"
        with pytest.raises(ValueError, match="Only `zeros` padding mode is supported"):
            module(image(module))


def test_hooks_run():
    ours, _ = both()
    seen = []
    ours.register_forward_pre_hook(lambda module, arguments: seen.append("before"))
    ours.register_forward_hook(lambda module, arguments, result: seen.append("after"))
    ours.register_full_backward_hook(lambda module, inputs, outputs: seen.append("backward"))
    ours(image(ours).requires_grad_()).sum().backward()
    assert seen == ["before", "after", "backward"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_jit_trace(device):
    ours, _ = both(stride=2)
    ours = ours.to(device)
    traced = torch.jit.trace(ours, image(ours))
    for shape in ((2, 4, 5, 6), (3, 4, 5, 6)):
        x = image(ours, *shape)
        torch.testing.assert_close(traced(x), ours(x))


class Network(nn.Module):
    """Layers nested, shared, subclassed and of other kinds."""

    def __init__(self):
        super().__init__()
        self.up = nn.Sequential(nn.ConvTranspose2d(4, 6, 3, stride=2), nn.ReLU())
        self.shared = nn.ConvTranspose2d(6, 6, 3)
        self.again = self.shared
        self.line = nn.ConvTranspose1d(3, 3, 3)
        self.special = Special(6, 2, 1)

    def forward(self, x):
        return self.special(self.again(self.shared(self.up(x))))


class Special(nn.ConvTranspose2d):
    """A subclass with a forward of its own: not ours to replace."""

    def forward(self, input, output_size=None):
        return super().forward(input, output_size) + 1


def test_convert_and_restore():
    torch.manual_seed(0)
    model = Network()
    x = torch.randn(2, 4, 5, 6)
    expected = model(x)
    kinds = {name: type(module) for name, module in model.named_modules()}
    names = {name: id(parameter) for name, parameter in model.named_parameters()}
    model.up[0].register_forward_hook(lambda module, arguments, result: result * 2)
    doubled = model(x)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)

    converted = convt2d_ext.convert(model)
    assert type(converted.up[0]) is convt2d_ext.ConvTranspose2d
    assert converted.shared is converted.again
    assert type(converted.shared) is convt2d_ext.ConvTranspose2d
    assert type(converted.line) is nn.ConvTranspose1d and type(converted.special) is Special
    assert {n: id(p) for n, p in converted.named_parameters()} == names  # optimisers stay valid
    torch.testing.assert_close(converted(x), doubled)
    assert not torch.equal(doubled, expected)
    converted(x).sum().backward()
    optimiser.step()

    restored = convt2d_ext.restore(converted)
    assert {name: type(module) for name, module in restored.named_modules()} == kinds
    assert {n: id(p) for n, p in restored.named_parameters()} == names


def test_convert_a_single_layer():
    _, theirs = both()
    x = image(theirs)
    expected = theirs(x)
    ours = convt2d_ext.convert(theirs)
    assert type(ours) is convt2d_ext.ConvTranspose2d
    torch.testing.assert_close(ours(x), expected)
    back = convt2d_ext.restore(ours)
    assert type(back) is nn.ConvTranspose2d
    torch.testing.assert_close(back(x), expected)
