"""Devices, markers, and a clean state for every test.

`@pytest.mark.cuda` skips without a GPU. With REQUIRE_CUDA=1 it does not: such a test then fails.
"""

import os

import pytest
import torch

from convt2d_ext import _autograd

REQUIRE_CUDA = os.environ.get("REQUIRE_CUDA") == "1"

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)


def pytest_configure(config):
    config.addinivalue_line("markers", "cuda: needs a CUDA device")
    config.addinivalue_line("markers", "two_gpus: needs two CUDA devices")


def pytest_collection_modifyitems(items):
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for item in items:
        if item.get_closest_marker("two_gpus") and devices < 2:
            item.add_marker(pytest.mark.skip(reason=f"needs two CUDA devices, there are {devices}"))
        elif item.get_closest_marker("cuda") and devices < 1 and not REQUIRE_CUDA:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.fail("REQUIRE_CUDA=1, but torch finds no CUDA device")
    return request.param


@pytest.fixture(autouse=True)
def clean_state(request):
    """Seeded, poisoned (uninitialised memory is NaN) and with the user's switches put back."""
    if request.node.get_closest_marker("cuda") and not torch.cuda.is_available():
        pytest.fail("REQUIRE_CUDA=1, but torch finds no CUDA device")
    torch.manual_seed(0)
    precision = torch.backends.cudnn.conv.fp32_precision
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.conv.fp32_precision = precision


@pytest.fixture
def strict_fp32():
    """For tests that compare two of our results closely: each may come from another family, and
    those differ where torch's default, TF32, lets them round."""
    torch.backends.cudnn.conv.fp32_precision = "ieee"


@pytest.fixture(params=["torch's node", "our node"])
def node(request, monkeypatch):
    """Whose node of the graph stands for a forward: torch's is for plain eager calls only."""
    if request.param == "our node":
        monkeypatch.setattr(_autograd, "_PLAIN", frozenset())
    return request.param
