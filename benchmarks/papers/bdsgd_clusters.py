"""BDSGD: rules of when to stop waiting, on clusters i, ii, iii. See bdsgd-clusters.yaml."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from benchmarks.papers.claims import Claim
from benchmarks.papers.cutoff_rows import (
    DATA,
    Fits,
    Settings,
    clusters,
    mean_and_error,
    measure,
)
from rich.console import Console
from rich.table import Table

from outpace.errors import ConfigError
from outpace.predict.replay import Replay

ROLLING: Final = ("last", "mean-5", "last-20", "last-5")
Rows = dict[str, dict[str, float]]


def run(data: Mapping[str, Any], out: Path) -> list[Claim]:
    """Measure, print a table for each cluster and observation, keep all in out/results.json."""
    torch.set_num_threads(1)  # decisions are timed on one core
    known = clusters(os.environ.get(DATA, "."))
    settings = Settings(
        data["seed"], data["repeats"], data["warmup"], data["samples"], data["objective"]
    )
    unknown = set(data["clusters"]) - set(known)
    if unknown:
        raise ConfigError(f"no cluster {', '.join(unknown)}; known: {', '.join(known)}")
    results: dict[str, Rows] = {}
    for name in data["clusters"]:
        fits = Fits(known[name], settings.seed)
        for observation in data["observations"]:
            rows = results[f"{name}, {observation}"] = {}
            for rule in data["rules"]:
                runs = measure(
                    known[name], rule, fits, settings, censored=observation == "censored"
                )
                if runs is not None:
                    rows[rule] = _row(runs, fits.seconds.get(rule.partition(" ")[0], np.nan))
                    print(f"{name}, {observation}, {rule}: {rows[rule]['of oracle']:.2f} %")
                    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
            _show(f"{name}, {observation}", rows)
    return [claim for title, rows in results.items() for claim in _claims(title, rows)]


def _row(runs: list[Replay], fit_s: float) -> dict[str, float]:
    percent, error = mean_and_error([run.of_oracle for run in runs])
    counts = np.concatenate([run.count for run in runs])
    apart = np.concatenate([run.count - run.best_count for run in runs])
    return {
        "of oracle": percent,
        "error": error,
        "gradients/s": mean_and_error([run.gradients_per_s for run in runs])[0],
        "time saved": 100 * mean_and_error([run.time_saved for run in runs])[0],
        **{f"count {level}": float(np.quantile(counts, level / 100)) for level in (10, 50, 90)},
        "apart": float(np.abs(apart).mean()),
        "ready ms": 1e3 * float(np.median(np.concatenate([run.ready_s for run in runs]))),
        "in all ms": 1e3 * float(np.median(np.concatenate([run.rule_s for run in runs]))),
        "reviews": float(np.concatenate([run.reviews for run in runs]).mean()),
        "fit s": fit_s,
    }


def _show(title: str, rows: Rows) -> None:
    table = Table("rule", "Ω, % of oracle", title=title)
    rest = ("gradients/s", "time saved", "count 10", "count 50", "count 90", "apart",
            "ready ms", "in all ms", "reviews", "fit s")  # fmt: skip
    for column in rest:
        table.add_column(column, justify="right")
    for name, row in rows.items():
        cells = (f"{row[column]:.4g}" if row[column] == row[column] else "" for column in rest)
        table.add_row(name, f"{row['of oracle']:.2f} ± {row['error']:.2f}", *cells)
    Console(width=170).print(table)


def _claims(title: str, rows: Rows) -> list[Claim]:
    def of(rule: str) -> float:
        return rows.get(rule, {}).get("of oracle", np.nan)

    best_rolling = max((of(rule) for rule in ROLLING if rule in rows), default=np.nan)
    found = []
    if "deep-markov count" in rows:
        rolling = {r: of(r) for r in ("all", "fixed", "elfving") if r in rows}
        found.append(
            Claim(
                title,
                "figures 2 to 4: BDSGD waits best, then Elfving and Chen, then for all",
                _listed({"deep-markov count": of("deep-markov count"), **rolling}),
                bool(of("deep-markov count") > max(rolling.values(), default=0)),
            )
        )
        if "true count" in rows:
            found.append(_goal(title, rows, "deep-markov count", of("true count"), 0.3))
    for hedge in ("rolling hedge", "deep-markov hedge", "pooled hedge", "true hedge"):
        if hedge in rows and np.isfinite(best_rolling):
            found.append(_goal(title, rows, hedge, best_rolling, 0.3))
    for replan in ("pooled replan", "true replan"):
        if replan in rows:
            best = max(
                row["of oracle"] for name, row in rows.items() if not name.startswith("true")
            )
            found.append(_goal(title, rows, replan, best, 0.3))
    return found


def _goal(title: str, rows: Rows, rule: str, other: float, within: float) -> Claim:
    """Ours: no row of the paper's says so."""
    value = rows[rule]["of oracle"]
    measured = f"{value:.2f} ± {rows[rule]['error']:.2f} against {other:.2f}"
    return Claim(title, f"goal: {rule} within {within}", measured, bool(value >= other - within))


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.1f}" for name, value in values.items())
