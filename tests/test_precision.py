"""The TF32 switch acts the same through every entrance, and only where TF32 exists."""

import pytest
import torch
from calls import INNER, fp32_precision

import convt2d_ext

FINE = 1 + 2.0**-12  # one bit more than TF32 keeps; rounds to 1


def one_by_one(device, channels=16):
    """Layers on which a family with tensor cores is worth choosing; each output is one product."""
    x = torch.full((2, channels, 16, 16), FINE, device=device)
    w = torch.eye(channels, device=device)[:, :, None, None].clone()
    return x, w


def module_of(w):
    module = convt2d_ext.ConvTranspose2d(w.shape[0], w.shape[1], 1, bias=False, device=w.device)
    with torch.no_grad():
        module.weight.copy_(w)
    return module


def in_inference_mode(x, w):
    with torch.inference_mode():
        return convt2d_ext.conv_transpose2d(x, w)


def with_gradient(x, w):
    return convt2d_ext.conv_transpose2d(x, w.requires_grad_()).detach()


ENTRANCES = {
    "function": lambda x, w: convt2d_ext.conv_transpose2d(x, w),
    "function with a gradient": with_gradient,
    "module": lambda x, w: module_of(w)(x).detach(),
    "raw op": lambda x, w: torch.ops.convt2d.conv_transpose2d(x, w),
    "inference mode": in_inference_mode,
    "vmap": lambda x, w: torch.vmap(lambda one: convt2d_ext.conv_transpose2d(one, w))(x),
    "jvp": lambda x, w: torch.func.jvp(
        lambda x: convt2d_ext.conv_transpose2d(x, w), (x,), (torch.zeros_like(x),)
    )[0],
    "compiled": lambda x, w: torch.compile(
        lambda x, w: convt2d_ext.conv_transpose2d(x, w), backend="aot_eager"
    )(x, w),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_ieee_is_exact(entrance, device):
    with fp32_precision("ieee"):
        x, w = one_by_one(device)
        assert torch.equal(ENTRANCES[entrance](x, w), x)


@pytest.mark.cuda
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_the_switch_reaches_every_entrance(entrance):
    """Whatever the chosen family does in TF32, every entrance must do, and nothing in between."""
    x, w = one_by_one("cuda")
    geometry = (1, 1, 0, 0, 16, 16, 1, 1, 1, False)
    for mode, precision in (("ieee", 0), ("tf32", 1), ("ieee", 0)):
        with fp32_precision(mode):
            expected = INNER.forward(x, w.detach(), None, *geometry, precision, -1)
            assert torch.equal(ENTRANCES[entrance](x, w.detach()), expected), mode


@pytest.mark.cuda
def test_the_switch_reaches_the_gradients():
    x, w = one_by_one("cuda")
    geometry = (1, 1, 0, 0, 16, 16, 1, 1, 1, False)
    for mode, precision in (("tf32", 1), ("ieee", 0)):
        with fp32_precision(mode):
            x.requires_grad_()
            y = convt2d_ext.conv_transpose2d(x, w)
            (grad_x,) = torch.autograd.grad(y, x, x.detach())
            expected = INNER.grad_input(x.detach(), w, *geometry, precision, -1)
            assert torch.equal(grad_x, expected)


@pytest.mark.cuda
def test_some_family_uses_tf32():
    """Otherwise the tests above compare nothing."""
    families = INNER.families("cuda").split(",")
    if families == ["direct"]:
        pytest.skip("`direct` alone is built, and it multiplies in fp32")
    x, w = one_by_one("cuda", channels=64)
    with fp32_precision("tf32"):
        assert torch.equal(convt2d_ext.conv_transpose2d(x, w), torch.ones_like(x))


@pytest.mark.cuda
@pytest.mark.parametrize(
    "flags, expected",
    [
        ({"conv": "ieee"}, "ieee"),
        ({"conv": "tf32"}, "tf32"),
        ({"cudnn": "ieee", "conv": "tf32"}, "tf32"),
        ({"generic": "ieee", "cudnn": "tf32", "conv": "none"}, "tf32"),
        ({"generic": "ieee", "cudnn": "none", "conv": "none"}, "ieee"),
    ],
    ids=str,
)
def test_precedence(flags, expected):
    """conv before cudnn before the generic switch."""
    places = {
        "conv": torch.backends.cudnn.conv,
        "cudnn": torch.backends.cudnn,
        "generic": torch.backends,
    }
    before = {name: place.fp32_precision for name, place in places.items()}
    x, w = one_by_one("cuda")
    geometry = (1, 1, 0, 0, 16, 16, 1, 1, 1, False)
    try:
        for name, mode in flags.items():
            places[name].fp32_precision = mode
        ours = convt2d_ext.conv_transpose2d(x, w)
        wanted = INNER.forward(x, w, None, *geometry, int(expected == "tf32"), -1)
        assert torch.equal(ours, wanted)
    finally:
        for name, mode in before.items():
            places[name].fp32_precision = mode


def test_matmul_precision_is_another_switch(device):
    before = torch.get_float32_matmul_precision()
    try:
        with fp32_precision("ieee"):
            torch.set_float32_matmul_precision("medium")
            x, w = one_by_one(device)
            assert torch.equal(convt2d_ext.conv_transpose2d(x, w), x)
    finally:
        torch.set_float32_matmul_precision(before)
