"""BDSGD: rules of when to stop waiting, on clusters i, ii, iii. See clusters.yaml."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.papers.bdsgd.cut_offs.goals import LARGE, Rows, goals
from benchmarks.papers.bdsgd.cut_offs.measuring import DATA, Fits, Settings, clusters, measure
from benchmarks.papers.bdsgd.cut_offs.picture import draw
from benchmarks.papers.bdsgd.cut_offs.results import Row
from benchmarks.papers.claims import Claim
from rich.console import Console
from rich.table import Table

from outpace.errors import ConfigError

QUICK = (
    "repeats=1",
    "clusters=[i]",
    "rules=[all, fixed, elfving, last-5, rolling hedge]",
)


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Measure; print a table for each cluster and observation, keep all in out/results.json,
    and draw it in out/cut-offs.html."""
    torch.set_num_threads(1)  # decisions are timed on one core
    known = clusters(os.environ.get(DATA, "."))
    settings = Settings(
        data["seed"], data["repeats"], data["warmup"], data["samples"], data["objective"]
    )
    unknown = set(data["clusters"]) - set(known)
    if unknown:
        raise ConfigError(f"no cluster {', '.join(unknown)}; known: {', '.join(known)}")
    results: dict[str, Rows] = {}
    claims: list[Claim] = []
    for name in data["clusters"]:
        fits = Fits(known[name], settings.seed)
        workers = len(known[name].test(settings.seed).node)
        same: dict[str, Row] = {}  # whatever is observed
        for observation in data["observations"]:
            title = f"{name}, {observation}"
            rows: dict[str, Row] = {}
            results[title] = rows
            for rule in data["rules"]:
                model = rule.partition(" ")[0]
                if workers > LARGE and rule in data["not_if_large"]:
                    continue
                if rule in same:
                    rows[rule] = same[rule]
                    continue
                runs = measure(
                    known[name], rule, fits, settings, censored=observation == "censored"
                )
                if runs is not None:
                    rows[rule] = Row.of(runs, fits.seconds.get(model, np.nan))
                    print(f"{title}, {rule}: {rows[rule].of_oracle:.2f} %", flush=True)
                    _keep(results, out)
                    if model == "true" and not rule.endswith("hedge"):
                        same[rule] = rows[rule]  # it is told all there is to know
            _show(title, rows)
            claims += goals(title, name, workers, rows)
    print(f"picture: {draw(results, out)}")
    return claims


def _keep(results: Mapping[str, Rows], out: Path) -> None:
    """Write the results so far, so that an interrupted run keeps them."""
    plain = {
        title: {rule: row.plain() for rule, row in rows.items()} for title, rows in results.items()
    }
    (out / "results.json").write_text(json.dumps(plain) + "\n")


def _show(title: str, rows: Rows) -> None:
    table = Table("rule", "Ω, % of oracle", title=title)
    rest = (
        "gradients/s",
        "time saved",
        "count 10",
        "count 50",
        "count 90",
        "apart",
        "ready ms",
        "in all ms",
        "reviews",
        "fit s",
    )
    for column in rest:
        table.add_column(column, justify="right")
    for name, row in rows.items():
        values = (row.numbers[column] for column in rest)
        cells = (f"{value:.4g}" if value == value else "" for value in values)
        table.add_row(name, f"{row.of_oracle:.2f} ± {row.error:.2f}", *cells)
    Console(width=170).print(table)
