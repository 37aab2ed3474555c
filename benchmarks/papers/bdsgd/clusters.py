"""BDSGD, figures 1 to 4: cut-offs beside the oracle's on clusters i and ii. See clusters.yaml."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.papers.bdsgd.cut_offs import paper_figures, picture
from benchmarks.papers.bdsgd.cut_offs.figures import (
    claims_1,
    claims_2,
    figure_1,
    figure_2,
    figure_3a,
)
from benchmarks.papers.bdsgd.cut_offs.goals import papers
from benchmarks.papers.bdsgd.cut_offs.tables import (
    fits_of,
    measure_rules,
    read_rules,
    settings_of,
    show_rules,
)
from benchmarks.papers.claims import Claim

QUICK = ("repeats=2", "clusters=[ii-0.24]", "rules=[all, fixed, elfving]")

FIGURES: Final = "figures.json"
_II: Final = "ii-"
_BDSGD: Final = "deep-markov count"


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Measure; keep all in out/results.json and out/figures.json; draw, show and judge."""
    found = fits_of(data)
    measure_rules(data, found, out)
    speeds = [name.removeprefix(_II) for name in found if name.startswith(_II)]
    figures: dict[str, Any] = {
        "figure 1": {speed: figure_1(speed, data["seed"]) for speed in speeds}
    }
    if "i" in found and _BDSGD in data["rules"]:
        fits = found["i"][1]
        figures["figure 2"] = figure_2(fits, settings_of(data))
        figures["figure 3a"] = figure_3a(fits, settings_of(data))
    (out / FIGURES).write_text(json.dumps(figures) + "\n")
    return judge(out)


def judge(out: Path) -> list[Claim]:
    """Show, draw and judge what `run` kept in this folder."""
    figures = json.loads((out / FIGURES).read_text())
    claims = [claim for speed, one in figures["figure 1"].items() for claim in claims_1(speed, one)]
    if "figure 2" in figures:
        claims += claims_2(figures["figure 2"])
    kept, _ = read_rules(out)
    for (cluster, observation), rows in kept.items():
        show_rules(f"{cluster}, {observation}", rows)
        claims += papers(cluster, rows)
    titled = {", ".join(title): rows for title, rows in kept.items()}
    print(f"picture: {picture.draw(titled, out)}")
    print(f"picture: {paper_figures.draw(figures, out)}")
    return claims
