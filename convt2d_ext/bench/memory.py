"""Memory that a pass asks of the allocator beyond what it returns."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .layers import Layer
from .modes import Mode
from .operands import Operands, our_convolution, torch_convolution
from .results import Measurement
from .timing import Call


def extra_memory(
    layers: Sequence[Layer],
    modes: Sequence[Mode],
    passes: Sequence[str],
    algorithm: str,
    cudnn_benchmark: bool,
) -> list[Measurement]:
    device = torch.device("cuda")
    rows = []
    for mode in modes:
        for layer in layers:
            with mode.switches(cudnn_benchmark):
                operands = Operands.random(layer, mode, device)
                for name in passes:
                    ours = _extra_bytes(operands.call(our_convolution(algorithm), name))
                    theirs = _extra_bytes(operands.call(torch_convolution, name))
                    what = f"{mode} {name}"
                    rows.append(Measurement(layer.name, what, ours, theirs, "bytes"))
                    print(rows[-1], flush=True)
            del operands
            torch.cuda.empty_cache()
    return rows


def _extra_bytes(call: Call) -> int:
    """Requested bytes, not blocks: the allocator's rounding is nobody's workspace."""
    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    result = call()
    torch.cuda.synchronize()
    peak = torch.cuda.memory_stats()["requested_bytes.all.peak"]
    tensors = result if isinstance(result, tuple) else (result,)
    returned = sum(t.numel() * t.itemsize for t in tensors if isinstance(t, Tensor))
    return int(peak - before - returned)
