"""The variants of a comparison over several seeds, each as the mean of its runs."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from outpace.record.comparison import VariantResult, read_comparison
from outpace.record.folder import COMPARISON
from outpace.report.read.runs import Run, number_or_none, read_run

_ENDED: Final = ("complete", "failed")


def seed_of(folder: Path) -> int:
    """Return K if the folder is called `seed-K`, else -1."""
    found = re.fullmatch(r"seed-(\d+)", folder.name)
    return -1 if found is None else int(found[1])


def read_variants(folders: Sequence[Path], compared: Sequence[VariantResult] = ()) -> list[Run]:
    """Return the mean of the runs of each variant, in the order of comparison.json.

    Only runs that ended count. Empty if the folders are not the runs of one comparison over
    several seeds, at least one for each variant in its comparison.json.

    Args:
        compared: the content of comparison.json, if it is known; empty: it is read.

    Raises:
        ConfigError: if a folder is not that of a run.
    """
    paths = [folder.resolve() for folder in folders]
    places = {path.parent.parent for path in paths}
    if len(places) != 1 or any(seed_of(path) < 0 for path in paths):
        return []
    (place,) = places
    said = {each.name: each for each in compared or read_comparison(place)}
    names = list(dict.fromkeys([*said, *sorted(path.parent.name for path in paths)]))
    variants = {
        name: sorted((path for path in set(paths) if path.parent.name == name), key=seed_of)
        for name in names
    }
    if not said or not all(variants.values()):
        return []
    means = []
    for name, inside in variants.items():
        runs = [read_run(path, f"{name}/{path.name}") for path in inside]
        if ended := [run for run in runs if run.status in _ENDED]:
            means.append(_mean_run(name, ended, said.get(name), place / COMPARISON))
    return means


def counted(run: Run) -> Sequence[Run]:
    """Return the runs whose mean this is: the complete ones, or all if none is complete.

    A run with one seed is the mean of itself.
    """
    return [each for each in run.seeds if each.complete] or run.seeds or [run]


def _mean_run(name: str, runs: Sequence[Run], compared: VariantResult | None, file: Path) -> Run:
    problems = []
    if compared is None or compared.seeds != len(runs):
        compared = None
        problems.append(
            f"{file} is not about the {len(runs)} runs of {name} that ended, so intervals are "
            "missing; `outpace compare --resume` writes it again"
        )
    mean = replace(runs[0], name=name, problems=problems, seeds=tuple(runs), compared=compared)
    summary = dict(_mean([run.summary for run in counted(mean)]))
    if isinstance(summary.get("staleness"), Mapping):
        histogram: Counter[int] = Counter()
        for run in counted(mean):
            histogram.update(run.histogram())
        summary["staleness"] = {**summary["staleness"], "histogram": histogram}
    failed = [run for run in runs if not run.complete]
    if failed:
        summary |= {"status": f"{len(failed)} of {len(runs)} runs failed", "error": failed[0].error}
    return replace(mean, summary=summary)


def _mean(values: Sequence[Any]) -> Any:
    """Return the mean of numbers, key by key and item by item; the first of other values."""
    if all(isinstance(value, Mapping) for value in values):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: _mean([value[key] for value in values if key in value]) for key in keys}
    if all(isinstance(value, list) and len(value) == len(values[0]) for value in values):
        return [_mean(items) for items in zip(*values, strict=True)]
    known = [number for value in values if (number := number_or_none(value)) is not None]
    return math.fsum(known) / len(known) if known else values[0]
