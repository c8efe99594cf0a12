"""Switch a model over to this package, and back."""

from __future__ import annotations

from typing import TypeVar

from torch import nn
from torch.nn.utils import parametrize

from .modules import ConvTranspose2d, LazyConvTranspose2d

Model = TypeVar("Model", bound=nn.Module)

_PAIRS: tuple[tuple[type[nn.Module], type[nn.Module]], ...] = (
    (nn.ConvTranspose2d, ConvTranspose2d),
    (nn.LazyConvTranspose2d, LazyConvTranspose2d),
)


def convert(model: Model) -> Model:
    """Makes every torch.nn.ConvTranspose2d in `model`, and `model` itself, one of this package.

    In place: modules keep their identity, parameters, buffers, hooks and attributes; only their
    class changes. Subclasses of torch's module are left alone, since they may override what this
    one does; parametrized modules (weight_norm, spectral_norm) are converted. Returns `model`.
    """
    return _swap(model, dict(_PAIRS))


def restore(model: Model) -> Model:
    """Undoes convert(). Returns `model`."""
    return _swap(model, {ours: theirs for theirs, ours in _PAIRS})


def _swap(model: Model, replacement: dict[type[nn.Module], type[nn.Module]]) -> Model:
    for module in model.modules():
        kind = type(module)
        if kind in replacement:
            module.__class__ = replacement[kind]
        elif parametrize.is_parametrized(module) and kind.__base__ in replacement:
            # torch gives each parametrized module a class of its own, derived from the real one.
            kind.__bases__ = (replacement[kind.__base__],)
    return model
