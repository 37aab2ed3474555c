"""Claims of a paper beside what was measured here, and whether the two agree."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

_VERDICTS: Final = {True: "agrees", False: "differs", None: None}


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that is judged.

    where: figure or section, or the experiment. agrees: None if it is shown for information.
    margin: how near the measurement must come; None if it must only be in the published order.
    """

    where: str
    published: str
    measured: str
    agrees: bool | None
    margin: str | None = None

    @property
    def verdict(self) -> str | None:
        return _VERDICTS[self.agrees]


def show(claims: Sequence[Claim]) -> None:
    table = Table("where", "published", "measured", "margin", "verdict", show_lines=True)
    colours = {True: "green", False: "red", None: ""}
    for each in claims:
        table.add_row(
            each.where,
            each.published,
            each.measured,
            each.margin,
            each.verdict,
            style=colours[each.agrees] if each.agrees is False else "",
        )
    Console(width=170).print(table)


def write(claims: Mapping[str, Sequence[Claim]], path: Path) -> None:
    """Write the claims of some experiments, by name, as one JSON list."""
    rows = [
        {
            "paper": name,
            "claim": each.where,
            "published": each.published,
            "measured": each.measured,
            "margin": each.margin,
            "verdict": each.verdict,
        }
        for name, of_paper in claims.items()
        for each in of_paper
    ]
    path.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", "utf-8")
