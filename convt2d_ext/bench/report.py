"""Result files → markdown sections, and those into documents with marker comments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from . import tables
from .markdown import fill
from .results import Document, TimedRow

# With more layers than this, a section of single measurements shows medians and worst cases.
MANY_SUBJECTS = 8


def write_report(
    documents: Sequence[Document], folder: Path, fill_in: Sequence[Path]
) -> list[Path]:
    """A file for each section under `folder`; and `fill_in`, where they have marks for one."""
    content = sections(documents)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in content.items():
        written.append(folder / f"{name}.md")
        written[-1].write_text(f"# {name}\n\n{text}", encoding="utf-8")
    for path in fill_in:
        text, filled = fill(path.read_text(encoding="utf-8"), content)
        if filled:
            path.write_text(text, encoding="utf-8")
            written.append(path)
    return written


def sections(documents: Sequence[Document]) -> dict[str, str]:
    """Documents of one section become one table: a long suite is run in several commands."""
    found: dict[str, str] = {}
    ordered = sorted(documents, key=lambda document: document.section)
    for section, group in groupby(ordered, key=lambda document: document.section):
        members = list(group)
        origin = _origin(members)
        timed = latest(row for document in members for row in document.timed)
        measured = [row for document in members for row in document.measurements]
        if any(row.ours_us is not None for row in timed):
            found[section] = tables.summary(timed) + origin
            found[f"{section}-losing"] = tables.losing(timed) + origin
            found[f"{section}-full"] = tables.every_cell(timed) + origin
        elif timed:
            found[section] = tables.error_summary(timed) + origin
            found[f"{section}-full"] = tables.every_error(timed) + origin
        if measured:
            if len({row.subject for row in measured}) > MANY_SUBJECTS:
                found[section] = tables.measurement_summary(measured) + origin
                found[f"{section}-full"] = tables.measurements(measured) + origin
            else:
                found[section] = tables.measurements(measured) + origin
    return found


def latest(rows: Iterable[TimedRow]) -> list[TimedRow]:
    """A cell that was measured again counts once, with its last value."""
    return list({(row.layer, row.mode, row.pass_name): row for row in rows}.values())


def _origin(documents: Sequence[Document]) -> str:
    """Where the numbers came from, a line for each command."""
    lines = []
    for document in documents:
        settings = "; ".join(f"{name} {value}" for name, value in document.settings.items())
        lines.append(f"* `{document.command}`: {document.provenance}. {settings}")
    return "\n" + "\n".join(dict.fromkeys(lines)) + "\n"
