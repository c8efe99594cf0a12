"""What a run leaves behind: rows of one kind, with their provenance, as JSON and CSV."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from .provenance import Provenance


@dataclass(frozen=True)
class TimedRow:
    """One layer, mode and pass. Times in µs, errors in rounding units; None where not measured."""

    layer: str
    mode: str
    pass_name: str
    ours_us: float | None = None
    torch_us: float | None = None
    floor_us: float | None = None
    bound: str = ""
    family: str = ""
    predicted_us: float | None = None
    ours_error: float | None = None
    torch_error: float | None = None
    failure: str = ""

    @property
    def speed_up(self) -> float:
        return _ratio(self.torch_us, self.ours_us)

    @property
    def ours_over_floor(self) -> float:
        return times_floor(self.ours_us, self.floor_us)

    @property
    def torch_over_floor(self) -> float:
        return times_floor(self.torch_us, self.floor_us)

    @property
    def error_acceptable(self) -> bool:
        if self.ours_error is None:
            return not self.failure
        return error_acceptable(self.ours_error, self.torch_error)


@dataclass(frozen=True)
class Measurement:
    """One figure of ours beside torch's: host cost, extra memory, first call, training."""

    subject: str
    what: str
    ours: float
    torch: float
    unit: str
    note: str = ""

    def __str__(self) -> str:
        figures = f"ours {self.ours:10.4g}  torch {self.torch:10.4g} {self.unit:5s}"
        return f"{self.subject:20s} {self.what:30s} {figures} {self.note}"


@dataclass(frozen=True)
class Document:
    """`section` names the table of the report that these rows belong to."""

    section: str
    command: str
    provenance: Provenance
    settings: dict[str, str]
    timed: Sequence[TimedRow] = ()
    measurements: Sequence[Measurement] = ()

    def save(self, folder: Path, name: str = "") -> list[Path]:
        folder.mkdir(parents=True, exist_ok=True)
        stem = folder / (name or self.section)
        json_path, csv_path = stem.with_suffix(".json"), stem.with_suffix(".csv")
        json_path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        with csv_path.open("w", newline="", encoding="utf-8") as file:
            write_csv(file, self.timed or self.measurements)
        return [json_path, csv_path]

    @classmethod
    def load(cls, path: Path) -> Document:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            section=data["section"],
            command=data["command"],
            provenance=Provenance(**data["provenance"]),
            settings=data["settings"],
            timed=[TimedRow(**row) for row in data["timed"]],
            measurements=[Measurement(**row) for row in data["measurements"]],
        )


def write_csv(file: Any, rows: Sequence[TimedRow] | Sequence[Measurement]) -> None:
    names = [field.name for field in fields(rows[0])] if rows else []
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)


# Two sums of the same terms in another order differ by a few units, whoever is nearer the truth.
LARGEST_FP64_DISTANCE = 16.0


def error_acceptable(ours: float, torch: float | None) -> bool:
    """At most twice torch's own error and one rounding unit."""
    return ours <= (LARGEST_FP64_DISTANCE if torch is None else 2 * torch + 1)


# Launching and timing anything costs about this much, so no floor counts as less.
LEAST_FLOOR_US = 4.0


def times_floor(time_us: float | None, floor_us: float | None) -> float:
    if time_us is None or floor_us is None:
        return math.nan
    return max(1.0, time_us / max(floor_us, LEAST_FLOOR_US))


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values if value > 0]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def _ratio(numerator: float | None, denominator: float | None) -> float:
    return math.nan if numerator is None or not denominator else numerator / denominator
