"""Four small networks that train through transposed convolutions, after the papers they are known
from. Widths and sizes are arguments, so that a CPU can run them too."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn


def _normal_init(module: nn.Module) -> nn.Module:
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.ConvTranspose2d):
            nn.init.normal_(part.weight, 0.0, 0.02)
    return module


class Dcgan(nn.Module):
    """Generator and discriminator for 64 × 64 images (Radford et al.)."""

    def __init__(self, width: int = 64, latent: int = 100) -> None:
        super().__init__()
        self.latent = latent
        up: list[nn.Module] = []
        channels = [latent, 8 * width, 4 * width, 2 * width, width]
        for step, (before, after) in enumerate(pairwise(channels)):
            stride, padding = (1, 0) if step == 0 else (2, 1)
            up += [nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False)]
            up += [nn.BatchNorm2d(after), nn.ReLU(True)]
        up += [nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh()]
        self.generator = _normal_init(nn.Sequential(*up))

        down: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True)]
        for before, after in ((width, 2 * width), (2 * width, 4 * width), (4 * width, 8 * width)):
            down += [nn.Conv2d(before, after, 4, 2, 1, bias=False)]
            down += [nn.BatchNorm2d(after), nn.LeakyReLU(0.2, True)]
        down += [nn.Conv2d(8 * width, 1, 4, 1, 0, bias=False), nn.Flatten(0)]
        self.discriminator = _normal_init(nn.Sequential(*down))


class UNet(nn.Module):
    """Encoder and decoder with skips; k2 s2 doubles the size (Ronneberger et al.)."""

    def __init__(self, width: int = 64, depth: int = 4) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            self._block(before, after) for before, after in zip([3, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(2 * after, after, 2, 2) for after in reversed(widths[:-1])
        )
        self.merge = nn.ModuleList(self._block(2 * after, after) for after in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, 1, 1)

    @staticmethod
    def _block(before: int, after: int) -> nn.Sequential:
        parts: list[nn.Module] = []
        for channels in (before, after):
            parts += [nn.Conv2d(channels, after, 3, padding=1, bias=False)]
            parts += [nn.BatchNorm2d(after), nn.ReLU(True)]
        return nn.Sequential(*parts)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for level, block in enumerate(self.down):
            x = block(nn.functional.max_pool2d(x, 2) if level else x)
            skips.append(x)
        skips.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([skips.pop(), up(x)], dim=1))
        y: Tensor = self.head(x)
        return y


class Pix2PixGenerator(nn.Module):
    """U-shaped generator down to 1 × 1, k4 s2 p1 both ways (Isola et al.)."""

    def __init__(self, width: int = 64, levels: int = 8) -> None:
        super().__init__()
        widths = [3] + [width * min(8, 1 << level) for level in range(levels)]
        self.down = nn.ModuleList()
        self.up = nn.ModuleList()
        for level in range(levels):
            before, after = widths[level], widths[level + 1]
            innermost, outermost = level == levels - 1, level == 0
            plain = innermost or outermost
            self.down.append(
                nn.Sequential(
                    nn.Identity() if outermost else nn.LeakyReLU(0.2),
                    nn.Conv2d(before, after, 4, 2, 1, bias=plain),
                    nn.Identity() if plain else nn.BatchNorm2d(after),
                )
            )
            self.up.append(
                nn.Sequential(
                    nn.ReLU(),
                    nn.ConvTranspose2d(
                        after if innermost else 2 * after, before, 4, 2, 1, bias=outermost
                    ),
                    nn.Tanh() if outermost else nn.BatchNorm2d(before),
                )
            )
        _normal_init(self)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for down in self.down:
            x = down(x)
            skips.append(x)
        x = self.up[-1](skips.pop())
        for up in list(self.up)[-2::-1]:
            x = up(torch.cat([skips.pop(), x], dim=1))
        return x


class ResnetGenerator(nn.Module):
    """Two strided convolutions, residual blocks, two k3 s2 p1 op1 (Johnson et al., CycleGAN)."""

    def __init__(self, width: int = 64, blocks: int = 9) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7)]
        parts += [nn.InstanceNorm2d(width), nn.ReLU(True)]
        for before in (width, 2 * width):
            parts += [nn.Conv2d(before, 2 * before, 3, 2, 1)]
            parts += [nn.InstanceNorm2d(2 * before), nn.ReLU(True)]
        parts += [_Residual(4 * width) for _ in range(blocks)]
        for after in (2 * width, width):
            parts += [nn.ConvTranspose2d(2 * after, after, 3, 2, 1, output_padding=1)]
            parts += [nn.InstanceNorm2d(after), nn.ReLU(True)]
        parts += [nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh()]
        self.layers = _normal_init(nn.Sequential(*parts))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        for activation in (nn.ReLU(True), nn.Identity()):
            parts += [nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3)]
            parts += [nn.InstanceNorm2d(channels), activation]
        self.layers = nn.Sequential(*parts)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.layers(x)
        return y
