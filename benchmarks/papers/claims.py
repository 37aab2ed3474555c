"""What a paper says, what was measured here, and whether the two agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Claim:
    """`where`: figure or section. `agrees` None: shown for information."""

    where: str
    published: str
    measured: str
    agrees: bool | None


def show(claims: Sequence[Claim]) -> None:
    table = Table("where", "published", "measured", "", show_lines=True)
    words = {True: "[green]agrees[/green]", False: "[red]differs[/red]", None: ""}
    for claim in claims:
        table.add_row(claim.where, claim.published, claim.measured, words[claim.agrees])
    Console(width=150).print(table)
