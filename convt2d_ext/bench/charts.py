"""PNG charts of a suite. matplotlib is wanted by this file alone."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .results import TimedRow, geometric_mean

OURS, TORCH, EVEN_LINE = "#2a6f97", "#c8553d", "#444444"


def require_matplotlib() -> Any:
    """pyplot with the file-only backend, or a sentence about what to install."""
    try:
        matplotlib = importlib.import_module("matplotlib")
    except ModuleNotFoundError as error:
        raise SystemExit("charts need matplotlib: pip install matplotlib") from error
    matplotlib.use("Agg")
    return importlib.import_module("matplotlib.pyplot")


def draw(rows: Sequence[TimedRow], folder: Path, name: str, caption: str) -> list[Path]:
    pyplot = require_matplotlib()
    timed = [row for row in rows if row.ours_us is not None]
    if not timed:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    figures = {
        f"{name}-floor.png": _times_floor(pyplot, timed, caption),
        f"{name}-speed-up.png": _speed_ups(pyplot, timed, caption),
    }
    for file, figure in figures.items():
        figure.savefig(folder / file, dpi=110, bbox_inches="tight")
        pyplot.close(figure)
    return [folder / file for file in figures]


def _times_floor(pyplot: Any, rows: Sequence[TimedRow], caption: str) -> Any:
    """Bars: geometric mean of time ÷ floor, a group for each mode and pass."""
    groups = list(dict.fromkeys((row.mode, row.pass_name) for row in rows))
    figure, axes = pyplot.subplots(figsize=(max(6.0, 0.9 * len(groups)), 4))
    cells = [[row for row in rows if (row.mode, row.pass_name) == group] for group in groups]
    places = range(len(groups))
    ours = [geometric_mean(row.ours_over_floor for row in group) for group in cells]
    theirs = [geometric_mean(row.torch_over_floor for row in group) for group in cells]
    axes.bar([place - 0.2 for place in places], ours, 0.4, color=OURS, label="convt2d_ext")
    axes.bar([place + 0.2 for place in places], theirs, 0.4, color=TORCH, label="torch")
    axes.axhline(1, color=EVEN_LINE, linewidth=0.8)
    axes.set_xticks(places, [f"{mode}\n{name}" for mode, name in groups], fontsize=7)
    axes.set_ylabel("time ÷ floor (geometric mean)")
    axes.set_title(caption, fontsize=8)
    axes.legend()
    return figure


def _speed_ups(pyplot: Any, rows: Sequence[TimedRow], caption: str) -> Any:
    """Points: every cell's speed-up over torch, a row for each layer, a colour for each mode."""
    layers = list(dict.fromkeys(row.layer for row in rows))
    modes = list(dict.fromkeys(row.mode for row in rows))
    passes = list(dict.fromkeys(row.pass_name for row in rows))
    size = 4.5 * len(passes), 1.5 + 0.22 * len(layers)
    figure, panels = pyplot.subplots(1, len(passes), figsize=size, sharey=True, squeeze=False)
    for panel, pass_name in zip(panels[0], passes, strict=True):
        for mode in modes:
            cells = [row for row in rows if (row.mode, row.pass_name) == (mode, pass_name)]
            places = [layers.index(row.layer) for row in cells]
            panel.scatter([row.speed_up for row in cells], places, s=14, label=mode)
        panel.axvline(1, color=EVEN_LINE, linewidth=0.8)
        panel.set_xscale("log")
        panel.set_xlabel(f"{pass_name}: torch's time ÷ ours")
        panel.grid(axis="y", linewidth=0.3)
    panels[0][0].set_yticks(range(len(layers)), layers, fontsize=7)
    panels[0][0].invert_yaxis()
    panels[0][-1].legend(fontsize=7)
    figure.suptitle(caption, fontsize=8)
    return figure
