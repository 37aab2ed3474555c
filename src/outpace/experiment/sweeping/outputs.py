"""Writes what a sweep has found: `sweep.json`, `best.yaml` and `report.html`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from outpace.config.reading import to_plain
from outpace.experiment.sweeping.space import Dimension, Range, in_words
from outpace.record import folder as files
from outpace.record.folder import BEST, SWEEP
from outpace.report.sweeps.page import findings, write_sweep_page
from outpace.report.sweeps.reading import SweepData
from outpace.support.yaml_files import write_yaml

if TYPE_CHECKING:
    from outpace.experiment.sweeping.found import Sweep


def content(found: Sweep) -> dict[str, Any]:
    """Return the content of `sweep.json`."""
    lists = [each.key for each in found.space if not isinstance(each, Range)]
    candidates = []
    for each in found.candidates:
        plain = each.plain()
        for key in lists:
            if not isinstance(plain["values"][key], int | float):
                plain["values"][key] = in_words(plain["values"][key])
        candidates.append(plain)
    return {
        "source": found.source,
        "status": found.status,
        "objective": {**found.objective.plain(), "words": found.objective.words},
        "space": {each.key: _described(each) for each in found.space},
        "method": found.method,
        "seeds": list(found.seeds),
        "best": None if found.best is None else found.best.number,
        "candidates": candidates,
        "wall_s": found.wall_s,
        "cpu_s": found.cpu_s,
    }


def sentences(found: Sweep) -> list[str]:
    """Return what the sweep has found, the most important first."""
    return findings(SweepData.of(content(found)))


def write_outputs(found: Sweep, out: Path) -> None:
    """Write the files. Raises ConfigError or OSError if one cannot be written."""
    data = content(found)
    files.write_json(out / SWEEP, data)
    best = None
    if found.best is not None and found.experiment is not None:
        best = out / BEST
        files.write_text(best, _best_yaml(found, out))
    write_sweep_page(data, out / files.REPORT, best)


def _best_yaml(found: Sweep, out: Path) -> str:
    assert found.best is not None
    assert found.experiment is not None
    values = ", ".join(f"{key}={in_words(value)}" for key, value in found.best.values.items())
    lines = [
        f"The best of {len(found.candidates)} candidates of a sweep, number {found.best.number}:",
        values,
        f"{found.objective.words}: {found.best.value:.6g}",
        f"outpace simulate {out / BEST}",
    ]
    comments = "".join(f"# {line}\n" for line in lines)
    return comments + write_yaml(to_plain(found.experiment))


def _described(dimension: Dimension) -> dict[str, Any]:
    law = dimension.law if isinstance(dimension, Range) else ""
    values = [
        value if isinstance(value, int | float) and not isinstance(value, bool) else in_words(value)
        for value in dimension.ends
    ]
    return {"law": law, "values": values}
