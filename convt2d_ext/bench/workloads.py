"""Training tasks for the four networks: sizes, synthetic data that can be learnt, and losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .models import Dcgan, Pix2PixGenerator, ResnetGenerator, UNet

LATENT = 100


@dataclass(frozen=True)
class Size:
    batch: int
    image: int
    width: int
    depth: int = 0  # levels or blocks, where a network has them


@dataclass(frozen=True)
class Batch:
    images: Tensor
    latent: Tensor


@dataclass(frozen=True)
class Workload:
    """`losses` yields one loss for each of `parts`, in order; each part has an optimiser of its own
    and is updated before the next loss is computed."""

    name: str
    build: Callable[[Size], nn.Module]
    parts: Sequence[str]
    losses: Callable[[nn.Module, Batch], Iterator[Tensor]]
    gpu: Size
    cpu: Size


def batches(size: Size, count: int, device: torch.device) -> list[Batch]:
    """Smooth random images in (-1, 1), the same ones every time."""
    generator = torch.Generator(device).manual_seed(2)
    made = []
    for _ in range(count):
        coarse = torch.randn(
            size.batch, 3, size.image // 8, size.image // 8, device=device, generator=generator
        )
        latent = torch.randn(size.batch, LATENT, 1, 1, device=device, generator=generator)
        images = F.interpolate(coarse, scale_factor=8, mode="bilinear", align_corners=False).tanh()
        made.append(Batch(images, latent))
    return made


def _dcgan_losses(model: nn.Module, batch: Batch) -> Iterator[Tensor]:
    model = cast(Dcgan, model)
    fake = model.generator(batch.latent)
    real_score = model.discriminator(batch.images)
    fake_score = model.discriminator(fake.detach())
    yield F.softplus(-real_score).mean() + F.softplus(fake_score).mean()
    yield F.softplus(-model.discriminator(fake)).mean()


def _segmentation_loss(model: nn.Module, batch: Batch) -> Iterator[Tensor]:
    target = (batch.images.mean(dim=1, keepdim=True) > 0).float()
    yield F.binary_cross_entropy_with_logits(model(batch.images), target)


def _translation_loss(model: nn.Module, batch: Batch) -> Iterator[Tensor]:
    yield F.l1_loss(model(batch.images), -batch.images.flip(1))


WORKLOADS = (
    Workload(
        "dcgan",
        lambda size: Dcgan(size.width, LATENT),
        ("discriminator", "generator"),
        _dcgan_losses,
        gpu=Size(batch=128, image=64, width=64),
        cpu=Size(batch=4, image=64, width=4),
    ),
    Workload(
        "u-net",
        lambda size: UNet(size.width, size.depth),
        ("",),
        _segmentation_loss,
        gpu=Size(batch=8, image=256, width=64, depth=4),
        cpu=Size(batch=2, image=32, width=4, depth=2),
    ),
    Workload(
        "pix2pix",
        lambda size: Pix2PixGenerator(size.width, size.depth),
        ("",),
        _translation_loss,
        gpu=Size(batch=16, image=256, width=64, depth=8),
        cpu=Size(batch=2, image=32, width=4, depth=5),
    ),
    Workload(
        "resnet-generator",
        lambda size: ResnetGenerator(size.width, size.depth),
        ("",),
        _translation_loss,
        gpu=Size(batch=8, image=256, width=64, depth=9),
        cpu=Size(batch=2, image=32, width=4, depth=1),
    ),
)
