"""Claims of a paper together with the measurements here, and whether the two agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from benchmarks.recorded import write_json
from rich.console import Console
from rich.table import Table

# It cannot be decided from the seeds whether the measurement agrees.
UNDECIDED: Final = "undecided"
Verdict = bool | Literal["undecided"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that is judged.

    where: figure or section, or the experiment. agrees: None if it is shown for information,
    UNDECIDED if the seeds do not decide. margin: how near the measurement must come; None if it
    must only be in the published order.
    """

    where: str
    published: str
    measured: str
    agrees: Verdict | None
    margin: str | None = None

    @property
    def verdict(self) -> str | None:
        if isinstance(self.agrees, bool):
            return "agrees" if self.agrees else "differs"
        return self.agrees


def show(claims: Sequence[Claim]) -> None:
    table = Table("where", "published", "measured", "margin", "verdict", show_lines=True)
    for each in claims:
        table.add_row(
            each.where,
            each.published,
            each.measured,
            each.margin,
            each.verdict,
            style="red" if each.agrees is False else "",
        )
    Console(width=170).print(table)


def rows(name: str, claims: Sequence[Claim]) -> list[dict[str, str | None]]:
    """Return the claims of an experiment as plain data."""
    return [
        {
            "paper": name,
            "claim": each.where,
            "published": each.published,
            "measured": each.measured,
            "margin": each.margin,
            "verdict": each.verdict,
        }
        for each in claims
    ]


def write(claims: Mapping[str, Sequence[Claim]], path: Path) -> None:
    """Write the claims of some experiments, by name, as one JSON list."""
    found = [row for name, of_paper in claims.items() for row in rows(name, of_paper)]
    write_json(path, found)
