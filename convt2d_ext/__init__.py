"""Transposed 2-D convolution for PyTorch, as one ahead-of-time built CUDA extension."""

from importlib.metadata import PackageNotFoundError, version

from .convert import convert, restore
from .explain import explain
from .functional import conv_transpose2d
from .modules import ConvTranspose2d, LazyConvTranspose2d

try:
    __version__ = version("convt2d_ext")
except PackageNotFoundError:  # a source tree that was built but not installed
    __version__ = "unknown"

__all__ = [
    "ConvTranspose2d",
    "LazyConvTranspose2d",
    "__version__",
    "conv_transpose2d",
    "convert",
    "explain",
    "restore",
]
