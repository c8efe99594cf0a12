"""Markdown as strings: tables, and text between marker comments."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> str:
    """Padded, so that it reads well on a screen too; after the text columns come numbers."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(3, *(len(cell) for cell in column)) for column in zip(*lines, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if place < text_columns else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "| " + " | ".join(padded) + " |\n"

    rule = [
        "-" * width if place < text_columns else "-" * (width - 1) + ":"
        for place, width in enumerate(widths)
    ]
    return line(lines[0]) + line(rule) + "".join(line(cells) for cells in lines[1:])


def number(value: float | None, digits: int = 3) -> str:
    """Significant digits without an exponent; an empty cell for what was not measured."""
    if value is None or math.isnan(value):
        return ""
    if math.isinf(value) or value == 0:
        return str(value).removesuffix(".0")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(decimals, 6)}f}"


def fill(text: str, sections: dict[str, str]) -> tuple[str, list[str]]:
    """Puts each section between `<!-- bench:name -->` and `<!-- /bench:name -->`, where the text
    has that pair of comments. Returns the text and the names of the sections it took."""
    filled = []
    for name, content in sections.items():
        opening, closing = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
        before, opened, rest = text.partition(opening)
        _, closed, after = rest.partition(closing)
        if opened and closed:
            text = f"{before}{opening}\n\n{content.strip()}\n\n{closing}{after}"
            filled.append(name)
    return text, filled
