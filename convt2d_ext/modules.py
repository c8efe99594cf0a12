"""The modules: torch's own, with another forward. Everything else about them is inherited."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .functional import conv_transpose2d


class ConvTranspose2d(nn.ConvTranspose2d):
    """A drop-in for torch.nn.ConvTranspose2d: same arguments, parameters and state_dict.

    Set the attribute `algorithm` to force a family, as in conv_transpose2d().
    """

    algorithm: str = "auto"

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        if self.padding_mode != "zeros":
            raise ValueError("Only `zeros` padding mode is supported for ConvTranspose2d")
        stride: Any = self.stride
        padding: Any = self.padding
        output_padding: Any = self.output_padding
        dilation: Any = self.dilation
        if output_size is not None:
            kernel: Any = self.kernel_size
            output_padding = self._output_padding(
                input, output_size, stride, padding, kernel, 2, dilation
            )
        return conv_transpose2d(
            input,
            self.weight,
            self.bias,
            stride,
            padding,
            output_padding,
            self.groups,
            dilation,
            algorithm=self.algorithm,
        )


class LazyConvTranspose2d(nn.LazyConvTranspose2d, ConvTranspose2d):  # type: ignore[misc]
    """A ConvTranspose2d that takes in_channels from its first input."""

    cls_to_become = ConvTranspose2d
