"""Where a number came from: without this a result is worth nothing."""

from __future__ import annotations

import datetime
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import convt2d_ext


@dataclass(frozen=True)
class Provenance:
    device: str
    date: str
    commit: str
    package: str
    torch: str
    cudnn: str
    driver: str
    python: str

    def __str__(self) -> str:
        shown = {name: value for name, value in asdict(self).items() if value and name != "device"}
        return f"{self.device}; " + ", ".join(f"{name} {value}" for name, value in shown.items())


def collect(device: torch.device, commit: str = "") -> Provenance:
    """`commit` names the source where the checkout's history did not travel with it."""
    gpu = device.type == "cuda"
    cudnn: Any = torch.backends.cudnn
    return Provenance(
        device=torch.cuda.get_device_name(device) if gpu else f"CPU {platform.machine()}",
        date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        commit=commit or _commit(),
        package=convt2d_ext.__version__,
        torch=torch.__version__,
        cudnn=str(cudnn.version()) if gpu else "",
        driver=_driver() if gpu else "",
        python=platform.python_version(),
    )


def _commit() -> str:
    """Empty for an installed package: only a checkout has a commit."""
    root = Path(convt2d_ext.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return ""
    commit = _output(["git", "-C", str(root), "rev-parse", "--short", "HEAD"])
    changed = _output(["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"])
    return commit + ("+changes" if commit and changed else "")


def _driver() -> str:
    lines = _output(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return lines.splitlines()[0] if lines else ""


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
