"""Measures every rule of an experiment on every cluster, keeps the results and shows them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from benchmarks.papers.bdsgd.cut_offs.goals import LARGE, Rows
from benchmarks.papers.bdsgd.cut_offs.measuring import (
    DATA,
    Cluster,
    Fits,
    Settings,
    clusters,
    measure,
)
from benchmarks.papers.bdsgd.cut_offs.results import Row
from rich.console import Console
from rich.table import Table

from outpace.errors import ConfigError

RESULTS: Final = "results.json"
_SEES_NOTHING: Final = ("all", "fixed", "elfving")  # of cut-offs; Elfving learns before the first

Plain = Mapping[str, Any]
Kept = dict[tuple[str, str], Rows]  # by cluster and observation


def settings_of(data: Plain) -> Settings:
    return Settings(
        data["seed"], data["repeats"], data["warmup"], data["samples"], data["objective"]
    )


def fits_of(data: Plain) -> dict[str, tuple[Cluster, Fits]]:
    """Return the clusters of an experiment by name, and their models, not fitted yet.

    Raises:
        ConfigError: for a cluster that does not exist.
    """
    torch.set_num_threads(1)  # decisions are timed on one core
    known = clusters(os.environ.get(DATA, "."))
    if unknown := set(data["clusters"]) - set(known):
        raise ConfigError(f"no cluster {', '.join(unknown)}; known: {', '.join(known)}")
    return {name: (known[name], Fits(known[name], data["seed"])) for name in data["clusters"]}


def measure_rules(data: Plain, found: Mapping[str, tuple[Cluster, Fits]], out: Path) -> None:
    """Write out/results.json, after every rule, so that an interrupted run keeps its results."""
    settings = settings_of(data)
    workers: dict[str, int] = {}
    results: Kept = {}
    for name, (cluster, fits) in found.items():
        workers[name] = len(cluster.test(settings.seed).node)
        left_out = data["not_if_large"] if workers[name] > LARGE else ()
        same: dict[str, Row] = {}  # whatever is observed
        for observation in data["observations"]:
            rows: dict[str, Row] = {}
            results[name, observation] = rows
            for rule in data["rules"]:
                model, _, decision = rule.partition(" ")
                if rule in left_out:
                    continue
                if rule not in same:
                    runs = measure(
                        cluster, rule, fits, settings, censored=observation == "censored"
                    )
                    if runs is None:
                        continue
                    row = Row.of(runs, fits.seconds.get(model, np.nan))
                    print(f"{name}, {observation}, {rule}: {row.of_oracle:.2f} %", flush=True)
                    if model in _SEES_NOTHING or (model == "true" and decision != "hedge"):
                        same[rule] = row
                else:
                    row = same[rule]
                rows[rule] = row
                _keep(results, workers, out)


def _keep(results: Kept, workers: Mapping[str, int], out: Path) -> None:
    plain = [
        {
            "cluster": name,
            "observation": observation,
            "workers": workers[name],
            "rows": {rule: row.plain() for rule, row in rows.items()},
        }
        for (name, observation), rows in results.items()
    ]
    (out / RESULTS).write_text(json.dumps(plain) + "\n")


def read_rules(out: Path) -> tuple[Kept, dict[str, int]]:
    """Return the results that `measure_rules` wrote, and the number of workers by cluster."""
    plain = json.loads((out / RESULTS).read_text())
    kept: Kept = {
        (one["cluster"], one["observation"]): {
            rule: Row.from_plain(row) for rule, row in one["rows"].items()
        }
        for one in plain
    }
    return kept, {one["cluster"]: one["workers"] for one in plain}


def markdown(kept: Kept, observation: str) -> str:
    """Return a table of Ω with this observation: a row for each rule, a column for each cluster."""
    found = {name: rows for (name, seen), rows in kept.items() if seen == observation}
    rules = dict.fromkeys(rule for rows in found.values() for rule in rows)
    lines = [f"| {observation} | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
    for rule in rules:
        cells = [_shown(rows.get(rule)) for rows in found.values()]
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _shown(row: Row | None) -> str:
    return "" if row is None else f"{row.of_oracle:.2f} ± {row.error:.2f}"


def show_rules(title: str, rows: Rows) -> None:
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
