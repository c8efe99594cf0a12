"""The markdown tables of a report, each from rows alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

from .markdown import number, table
from .results import Measurement, TimedRow, geometric_mean

Reduction = Callable[[Sequence[float]], float]

# Below this ratio a cell counts as lost: the rest is the noise of two medians.
EVEN = 0.97
# A prediction is good when it is within this factor of the measurement, either way.
PREDICTION_FACTOR = 1.5


def summary(rows: Sequence[TimedRow]) -> str:
    header = ["mode, pass", "layers", "speed-up (geomean)", "worst", f"cells < {EVEN}"]
    header += ["ours × floor", "torch × floor", "of copy rate, memory-bound (median)"]
    header += [f"predicted within {PREDICTION_FACTOR}×", "worst error, units: ours", "torch"]
    lines = []
    for (mode, pass_name), cells in _by_mode_and_pass(rows):
        timed = [row for row in cells if row.ours_us is not None]
        if not timed:
            continue
        ratios = [row.speed_up for row in timed]
        lines.append(
            [
                f"{mode} {pass_name}",
                str(len(timed)),
                number(geometric_mean(ratios)),
                number(min(ratios)),
                str(sum(ratio < EVEN for ratio in ratios)),
                number(geometric_mean(row.ours_over_floor for row in timed)),
                number(geometric_mean(row.torch_over_floor for row in timed)),
                _copy_rate(timed),
                _prediction_score(timed),
                _worst(row.ours_error for row in timed),
                _worst(row.torch_error for row in timed),
            ]
        )
    return table(header, lines) + _failures(rows)


def losing(rows: Sequence[TimedRow]) -> str:
    lost = sorted((row for row in rows if row.speed_up < EVEN), key=lambda row: row.speed_up)
    if not lost:
        return f"No cell is below {EVEN} of torch's speed.\n"
    header = ["layer", "mode", "pass", "ours µs", "torch µs", "torch ÷ ours"]
    header += ["ours × floor", "family"]
    return table(
        header,
        (
            [
                row.layer,
                row.mode,
                row.pass_name,
                number(row.ours_us),
                number(row.torch_us),
                number(row.speed_up),
                number(row.ours_over_floor),
                row.family,
            ]
            for row in lost
        ),
        text_columns=3,
    )


def every_cell(rows: Sequence[TimedRow]) -> str:
    header = ["layer", "mode", "pass", "ours µs", "torch µs", "speed-up", "floor µs", "bound"]
    header += ["ours × floor", "torch × floor", "family", "predicted µs", "error: ours", "torch"]
    return table(
        header,
        (
            [
                row.layer,
                row.mode,
                row.pass_name,
                number(row.ours_us),
                number(row.torch_us),
                number(row.speed_up),
                number(row.floor_us),
                row.bound,
                number(row.ours_over_floor),
                number(row.torch_over_floor),
                row.family or row.failure,
                number(row.predicted_us),
                number(row.ours_error),
                number(row.torch_error),
            ]
            for row in rows
        ),
        text_columns=3,
    )


def error_summary(rows: Sequence[TimedRow]) -> str:
    header = ["mode, pass", "layers", "worst: ours", "torch", "not acceptable"]
    return (
        table(
            header,
            (
                [
                    f"{mode} {pass_name}",
                    str(len(cells)),
                    _worst(row.ours_error for row in cells),
                    _worst(row.torch_error for row in cells),
                    str(sum(not row.error_acceptable for row in cells)),
                ]
                for (mode, pass_name), cells in _by_mode_and_pass(rows)
            ),
        )
        + "\nError = max |y − y64| ÷ (unit · (|x|∗|w| + |y64|)).\n"
        + _failures(rows)
    )


def every_error(rows: Sequence[TimedRow]) -> str:
    header = ["layer", "mode", "pass", "ours", "torch", "family"]
    return table(
        header,
        (
            [
                row.layer,
                row.mode,
                row.pass_name,
                number(row.ours_error),
                number(row.torch_error),
                row.family or row.failure,
            ]
            for row in rows
        ),
        text_columns=3,
    )


def measurement_summary(rows: Sequence[Measurement]) -> str:
    kinds: dict[tuple[str, str], list[Measurement]] = {}
    for row in rows:
        kinds.setdefault((row.what, row.unit), []).append(row)

    def column(members: Sequence[Measurement], ours: bool, reduce: Reduction) -> str:
        return number(reduce([row.ours if ours else row.torch for row in members]))

    header = ["what", "unit", "layers", "ours: median", "worst", "torch: median", "worst"]
    return table(
        header,
        (
            [what, unit, str(len(members))]
            + [
                column(members, ours, reduce)
                for ours in (True, False)
                for reduce in (statistics.median, max)
            ]
            for (what, unit), members in kinds.items()
        ),
        text_columns=2,
    )


def measurements(rows: Sequence[Measurement]) -> str:
    return table(
        ["subject", "what", "note", "unit", "ours", "torch"],
        (
            [row.subject, row.what, row.note, row.unit, number(row.ours, 4), number(row.torch, 4)]
            for row in rows
        ),
        text_columns=4,
    )


def _by_mode_and_pass(
    rows: Sequence[TimedRow],
) -> list[tuple[tuple[str, str], list[TimedRow]]]:
    cells: dict[tuple[str, str], list[TimedRow]] = {}
    for row in rows:
        cells.setdefault((row.mode, row.pass_name), []).append(row)
    return list(cells.items())


def _worst(errors: Iterable[float | None]) -> str:
    return number(max((error for error in errors if error is not None), default=None))


def _copy_rate(rows: Sequence[TimedRow]) -> str:
    shares = [1 / row.ours_over_floor for row in rows if row.bound == "bytes"]
    return f"{statistics.median(shares):.0%}" if shares else ""


def _prediction_score(rows: Sequence[TimedRow]) -> str:
    ratios = [row.ours_us / row.predicted_us for row in rows if row.ours_us and row.predicted_us]
    if not ratios:
        return ""
    good = sum(1 / PREDICTION_FACTOR <= ratio <= PREDICTION_FACTOR for ratio in ratios)
    return f"{good} of {len(ratios)}"


def _failures(rows: Sequence[TimedRow]) -> str:
    failed = [row for row in rows if row.failure]
    return "".join(f"\n* {row.layer} {row.mode} {row.pass_name}: {row.failure}" for row in failed)
