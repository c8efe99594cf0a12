"""The registrations: opcheck, torch's own OpInfo and ModuleInfo samples, fake kernels."""

import pytest
import torch
import torch.nn.functional as F
from calls import DTYPES, INNER, conv, layer, own, raw
from cases import BY_NAME, CASES
from conftest import REQUIRE_CUDA
from data import sliced
from tolerance import BY_NAME as FORMATS
from tolerance import assert_close
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode

import convt2d_ext
from convt2d_ext import _autograd, _inner

if not REQUIRE_CUDA:
    pytest.importorskip("expecttest", reason="torch.testing._internal needs it")

FORMAT_OF = {each.dtype: each for name, each in FORMATS.items() if name != "tf32"}
FORWARD_CASES = ("k3s2p1op1", "kernelbench_75", "k2s3op2", "depthwise_k4s2p1", "1d_tall")


@pytest.fixture(scope="module")
def op_info():
    from torch.testing._internal.common_methods_invocations import op_db

    return next(each for each in op_db if each.name == "nn.functional.conv_transpose2d")


@pytest.fixture(scope="module")
def module_info():
    from torch.testing._internal.common_modules import module_db

    return next(each for each in module_db if each.module_cls is torch.nn.ConvTranspose2d)


def tensors_of(case, device, dtype=torch.float32, requires_grad=False):
    shapes = (case.x_shape, case.w_shape, (case.out_channels,))
    return [
        torch.randn(shape, dtype=dtype, device=device).requires_grad_(requires_grad)
        for shape in shapes
    ]


def positional(case):
    return tuple(case.arguments.values())


@pytest.mark.parametrize("name", FORWARD_CASES)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck_of_the_public_op(name, requires_grad, device, strict_fp32):
    case = BY_NAME[name]
    x, w, bias = tensors_of(case, device, requires_grad=requires_grad)
    op = torch.ops.convt2d.conv_transpose2d.default
    for arguments in ((x, w, bias), (x, w, None), (x.detach()[0], w, bias)):
        torch.library.opcheck(op, (*arguments, *positional(case)), {"algorithm": own(device)})


@pytest.mark.parametrize("name", FORWARD_CASES)
@pytest.mark.parametrize("channels_last", [False, True])
def test_opcheck_of_the_inner_ops(name, channels_last, device, strict_fp32):
    case = BY_NAME[name]
    x, w, bias = tensors_of(case, device)
    grad_y = torch.randn(case.y_shape, device=device)
    head, tail = (*case.stride, *case.padding), (*case.dilation, case.groups, channels_last)
    auto = (0, -1)
    calls = (
        (INNER.forward, (x, w, bias, *head, *case.out_size, *tail, *auto)),
        (INNER.forward, (sliced(x), w, None, *head, *case.out_size, *tail, *auto)),
        (INNER.grad_input, (grad_y, w, *head, *case.size, *tail, *auto)),
        (INNER.grad_weight, (grad_y, x, *head, *case.kernel, *tail, True, *auto)),
        (INNER.grad_weight, (sliced(grad_y), x, *head, *case.kernel, *tail, False, *auto)),
        (INNER.grad_bias, (grad_y,)),
    )
    for op, arguments in calls:
        torch.library.opcheck(op.default, arguments)
        packed = packed_overload(op, arguments)
        if packed is not None:
            torch.library.opcheck(*packed)
            results, of_scalars = packed[0](*packed[1]), op(*arguments)
            if isinstance(results, torch.Tensor) and not isinstance(of_scalars, torch.Tensor):
                of_scalars = of_scalars[0]
            torch.testing.assert_close(results, of_scalars, rtol=0, atol=0)


def packed_overload(op, arguments):
    """The overload that takes its scalars as a string, and its arguments."""
    scalars = [each for each in arguments if isinstance(each, int)]
    if not scalars:
        return None
    with_bias = op is INNER.grad_weight and scalars[10]
    overload = op.packed_with_bias if with_bias else op.packed
    tensors = arguments[: len(arguments) - len(scalars)]
    return overload, (*tensors, ",".join(str(int(each)) for each in scalars))


@pytest.mark.parametrize(
    "change", [lambda s: s[:-3], lambda s: s + ",1", lambda s: "x" + s, lambda s: ""]
)
def test_malformed_packs_are_refused(change, device):
    x, w, _ = tensors_of(BY_NAME["k3s2p1op1"], device)
    with pytest.raises(RuntimeError, match="not the scalars"):
        INNER.forward.packed(x, w, None, change("2,2,1,1,8,8,1,1,1,0,0,-1"))


def test_one_result_has_no_room_for_a_bias_gradient(device):
    x = torch.randn(1, 1, 2, 2, device=device)
    with pytest.raises(RuntimeError, match="two results"):
        INNER.grad_weight.packed(x, x, "1,1,0,0,1,1,1,1,1,0,1,0,-1")


@pytest.mark.parametrize("direction", ["forward", "grad_input", "grad_weight"])
def test_who_gets_packs(direction, device, strict_fp32, monkeypatch):
    """Plain calls do; whoever records them gets scalars, which may be symbolic."""
    monkeypatch.setattr(_autograd, "_PLAIN", frozenset())  # our own node
    x, w, _ = tensors_of(BY_NAME["k3s2p1op1"], device, requires_grad=True)

    def run():
        y = conv(x, w, stride=2, padding=1)
        return torch.autograd.grad(y.sum(), (x, w))

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(str(function))
            return function(*args, **(kwargs or {}))

    names = []
    with Names():
        recorded = run()
    assert f"convt2d.{direction}.default" in names
    assert not any("packed" in name for name in names)
    packed, strings = getattr(_inner, f"_{direction}_packed"), []
    watched = lambda *arguments: strings.append(arguments[-1]) or packed(*arguments)  # noqa: E731
    monkeypatch.setattr(_inner, f"_{direction}_packed", watched)
    plain = run()
    assert len(strings) == 1 and isinstance(strings[0], str)
    assert all(torch.equal(*pair) for pair in zip(recorded, plain))


def test_strides_are_free():
    """Any other stride tag costs a copy before the op in graphs that Inductor turned to NHWC."""
    for name in ("conv_transpose2d", "forward", "grad_input", "grad_weight", "grad_bias"):
        assert torch.Tag.flexible_layout in getattr(INNER, name).default.tags


def samples(info, device, dtype, requires_grad=False):
    """OpInfo's samples as (x, w, bias, keyword arguments)."""
    names = ("stride", "padding", "output_padding", "groups", "dilation")
    for sample in info.sample_inputs(device, dtype, requires_grad=requires_grad):
        w, bias, *rest = (*sample.args, None)[: max(2, len(sample.args))]
        yield sample.input, w, bias, {**dict(zip(names, rest)), **sample.kwargs}


def test_samples_are_many(op_info):
    assert len(list(samples(op_info, "cpu", torch.float32))) >= 8


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_opinfo_values_and_strides(op_info, device, dtype, strict_fp32):
    for x, w, bias, arguments in samples(op_info, device, dtype):
        exact = [None if each is None else each.double() for each in (x, w, bias)]
        expected = F.conv_transpose2d(*exact, **arguments)
        magnitudes = [None if each is None else each.abs() for each in exact]
        scale = F.conv_transpose2d(*magnitudes, **arguments)
        theirs = F.conv_transpose2d(x, w, bias, **arguments)
        ours = conv(x, w, bias, **arguments)
        assert_close(ours, expected, scale, theirs, FORMAT_OF[dtype].unit)
        assert ours.dtype == dtype and ours.stride() == theirs.stride()


def test_opinfo_of_unserved_dtypes(op_info, device):
    for dtype in op_info.supported_dtypes(device) - set(DTYPES):
        for x, w, bias, arguments in samples(op_info, device, dtype):
            ours = convt2d_ext.conv_transpose2d(x, w, bias, **arguments)
            assert torch.equal(ours, F.conv_transpose2d(x, w, bias, **arguments))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_opinfo_noncontiguous(op_info, device, dtype, strict_fp32):
    from torch.testing._internal.common_utils import noncontiguous_like

    for x, w, bias, arguments in samples(op_info, device, dtype):
        strange = [None if each is None else noncontiguous_like(each) for each in (x, w, bias)]
        torch.testing.assert_close(conv(*strange, **arguments), conv(x, w, bias, **arguments))


def test_opinfo_gradients(op_info, device):
    for x, w, bias, arguments in samples(op_info, device, torch.float64, requires_grad=True):
        tensors = [each for each in (x, w, bias) if each is not None]
        options = {"fast_mode": True, "nondet_tol": 0.0}
        function = lambda *each: conv(*each, **arguments)  # noqa: B023, E731
        assert gradcheck(function, tensors, check_forward_ad=True, **options)
        assert gradgradcheck(function, tensors, check_fwd_over_rev=True, **options)


ORDERS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


@pytest.mark.parametrize("x_order", ORDERS)
@pytest.mark.parametrize("w_order", ORDERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fake_is_real(x_order, w_order, dtype, device):
    """Shape, strides, dtype and device of every result, gradients included, without running."""

    def results(x, w, bias, case):
        y = conv(x, w, bias, **case.arguments)
        return y, *torch.autograd.grad(y, (x, w, bias), torch.ones_like(y))

    for case in (*CASES[::5], BY_NAME["pixel_to_4x4"], BY_NAME["1x1_one_channel"]):
        real = tensors_of(case, device, dtype)
        real[0] = real[0].contiguous(memory_format=ORDERS[x_order]).requires_grad_()
        real[1] = real[1].contiguous(memory_format=ORDERS[w_order]).requires_grad_()
        real[2].requires_grad_()
        mode = FakeTensorMode()
        fake = [mode.from_tensor(tensor) for tensor in real]
        with mode:
            predicted = results(*fake, case)
        for fact, guess in zip(results(*real, case), predicted):
            assert (fact.shape, fact.dtype, fact.device) == (guess.shape, guess.dtype, guess.device)
            assert fact.stride() == guess.stride(), case


def test_which_results_are_channels_last(device):
    """Either operand decides; float64 and empty batches never are."""
    last = {"memory_format": torch.channels_last}
    x, w = torch.randn(2, 4, 5, 6, device=device), torch.randn(4, 3, 3, 3, device=device)
    x, w = x.contiguous(**last), w.contiguous(**last)
    assert conv(x, w).is_contiguous(**last)
    assert conv(x.contiguous(), w).is_contiguous(**last)
    assert conv(x.double(), w.double()).is_contiguous()
    assert conv(x[:0], w).is_contiguous()


def test_meta_tensors():
    x, w = torch.empty(2, 4, 5, 6, device="meta"), torch.empty(4, 3, 3, 3, device="meta")
    y = convt2d_ext.conv_transpose2d(x, w, stride=2)
    assert y.device.type == "meta" and y.shape == F.conv_transpose2d(x, w, stride=2).shape


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_strides_are_torchs(dtype):
    """On CUDA: y and both gradients of every pair of layouts, batch 0 and CHW included."""
    orders = (
        lambda t: t,
        lambda t: t.contiguous(memory_format=torch.channels_last),
        sliced,
        lambda t: t.mT.contiguous().mT,
    )
    for x_order in orders:
        for w_order in orders:
            for case in (BY_NAME["k3s2p1op1"], BY_NAME["1x1"], BY_NAME["pixel_k3s1p1"]):
                x, w, _ = tensors_of(case, "cuda", dtype)
                x, w = x_order(x).requires_grad_(), w_order(w).requires_grad_()
                for cut in (x, x[:0], x[0], x[0].permute(1, 2, 0).contiguous().permute(2, 0, 1)):
                    ours = conv(cut, w, **case.arguments)
                    theirs = F.conv_transpose2d(cut, w, **case.arguments)
                    assert ours.stride() == theirs.stride()
                    if cut is x:
                        grad_y = torch.randn_like(theirs)
                        for mine, its in zip(
                            torch.autograd.grad(ours, (x, w), grad_y),
                            torch.autograd.grad(theirs, (x, w), grad_y),
                        ):
                            assert mine.stride() == its.stride()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_moduleinfo(module_info, device, dtype, strict_fp32):
    for sample in module_info.module_inputs_func(
        module_info, device, dtype, requires_grad=True, training=True
    ):
        build, call = sample.constructor_input, sample.forward_input
        torch.manual_seed(0)
        ours = layer(*build.args, device=device, dtype=dtype, **build.kwargs)
        theirs = torch.nn.ConvTranspose2d(*build.args, **build.kwargs).to(device, dtype)
        theirs.load_state_dict(ours.state_dict())
        expected = theirs(*call.args, **call.kwargs)
        result = ours(*call.args, **call.kwargs)
        torch.testing.assert_close(result, expected)
        gradients = torch.autograd.grad(result.sum(), [*call.args, *ours.parameters()])
        for mine, its in zip(
            gradients, torch.autograd.grad(expected.sum(), [*call.args, *theirs.parameters()])
        ):
            torch.testing.assert_close(mine, its)


def test_spellings_of_arguments(device):
    """int, 1-tuple, 2-tuple, list, torch.Size, numpy integers, positional and by name."""
    numpy = pytest.importorskip("numpy")
    x, w = torch.randn(2, 4, 5, 6, device=device), torch.randn(4, 3, 3, 3, device=device)
    expected = conv(x, w, None, stride=(2, 2), padding=(1, 1))
    for two, one in (
        (2, 1),
        ((2,), (1,)),
        ([2, 2], [1, 1]),
        (torch.Size([2, 2]), torch.Size([1, 1])),
        (numpy.int64(2), numpy.int32(1)),
        ((numpy.int64(2), 2), [1, numpy.int64(1)]),
    ):
        assert torch.equal(conv(x, w, None, stride=two, padding=one), expected)
        assert torch.equal(conv(x, w, None, two, one), expected)
    for result in (
        raw(x, w, None, 2, 1),
        raw(x, w, stride=2, padding=1),
        raw(x, w, None, [2, 2], [1, 1]),
    ):
        torch.testing.assert_close(result, expected)
    every = (None, 2, 1, 1, 2, (1, 1))  # groups come before dilation
    for function in (raw, conv):
        torch.testing.assert_close(function(x, w, *every), F.conv_transpose2d(x, w, *every))


def test_unbatched(device, strict_fp32):
    x, w = torch.randn(4, 5, 6, device=device), torch.randn(4, 3, 3, 3, device=device)
    for image in (x, x.permute(1, 2, 0).contiguous().permute(2, 0, 1)):
        y = conv(image, w, stride=2)
        assert y.shape == (3, 11, 13)
        torch.testing.assert_close(y, conv(image[None].contiguous(), w, stride=2)[0])
    assert conv(x, w).is_contiguous()
    grad_x = torch.autograd.grad(conv(x.requires_grad_(), w).sum(), x)[0]
    assert grad_x.shape == x.shape


def test_odd_strides(device, strict_fp32):
    """Expanded, flipped and transposed inputs, absurd strides on axes of size one."""
    x, w = torch.randn(2, 4, 5, 6, device=device), torch.randn(4, 3, 3, 3, device=device)
    pixel = torch.randn(2, 4, 1, 1, device=device)
    for image in (
        x[:1].expand(3, -1, -1, -1),
        x[:, :1].expand(-1, 4, -1, -1),
        x.flip(2),
        x.mT,
        x.permute(1, 0, 2, 3)[:, :1].expand(-1, 4, -1, -1),
        pixel.as_strided((2, 4, 1, 1), (4, 1, 1000003, 77)),
        pixel.expand(2, 4, 5, 6),
    ):
        torch.testing.assert_close(conv(image, w, stride=2), conv(image.contiguous(), w, stride=2))
    for weight in (w.flip(3), w.mT, w[:, :, :1, :1].expand(4, 3, 3, 3), w[:1].expand(4, 3, 3, 3)):
        torch.testing.assert_close(conv(x, weight), conv(x, weight.contiguous()))


@pytest.mark.parametrize("order", (torch.contiguous_format, torch.channels_last))
def test_a_part_of_a_gradient_is_laid_out_once(order, device, monkeypatch):
    """torch.cat hands back parts of its gradient: both of ours read the same copy, in x's order."""
    monkeypatch.setattr(_autograd, "_PLAIN", frozenset())  # our own node
    seen = []

    def watched(real):
        def call(grad_y, *rest):
            seen.append(grad_y)
            return real(grad_y, *rest)

        return call

    for name in ("grad_input", "grad_weight"):
        monkeypatch.setattr(_inner, name, watched(getattr(_inner, name)))
    x = torch.randn(2, 4, 5, 6, device=device).contiguous(memory_format=order).requires_grad_()
    w = torch.randn(4, 3, 3, 3, device=device, requires_grad=True)
    y = conv(x, w, stride=2)
    torch.cat([y, torch.ones_like(y)], 1).square().sum().backward()
    first, second = seen
    assert first.data_ptr() == second.data_ptr()
    assert first.is_contiguous(memory_format=order)
    whole = (2 * y.detach()).contiguous(memory_format=order)
    expected = torch.autograd.grad(conv(x, w, stride=2), (x, w), whole)
    assert torch.equal(x.grad, expected[0])
    assert torch.equal(w.grad, expected[1])
