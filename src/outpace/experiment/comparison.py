"""Runs the variants of one experiment one after the other, with the same seed and data."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outpace.config.experiment import Experiment
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError, RunError
from outpace.experiment.results import Result
from outpace.experiment.running import check, simulate
from outpace.record import folder as files
from outpace.report import write_report
from outpace.simulation.virtual import Progress
from outpace.support.yaml_files import merged


@dataclass(frozen=True, slots=True)
class Variant:
    """A named experiment."""

    name: str
    experiment: Experiment


@dataclass(frozen=True, slots=True)
class Row:
    """A variant with its result, or with the error that ended its run."""

    variant: Variant
    summary: dict[str, Any]
    result: Result | None
    error: str | None


def variants_from(data: Mapping[str, Any], source: str, folder: Path) -> list[Variant]:
    """Return the variants of a configuration.

    Args:
        data: the keys of an Experiment, and `variants`: a list of mappings with a name and the
            keys in which that variant differs.
        source: names the data in errors.
        folder: the folder that paths in the data are relative to.

    Raises:
        ConfigError: with all errors of all variants.
    """
    base = {key: value for key, value in data.items() if key != "variants"}
    entries = data.get("variants")
    if not isinstance(entries, list) or not entries:
        raise ConfigError(
            f"{source}: variants must be a list of mappings such as "
            "{name: BSP, sync: {kind: bsp}}"
        )
    variants, problems, names = [], [], set()
    for place, entry in enumerate(entries):
        where = f"{source}: variants[{place}]"
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            problems.append(f"{where} must be a mapping with a name, not {entry!r}")
            continue
        name = entry["name"]
        if not re.fullmatch(r"[^\s/\\.][^/\\\x00-\x1f]{0,99}", name) or name == files.REPORT:
            problems.append(f"{where}.name: {name!r} cannot be the name of the run's folder")
        if name.casefold() in names:
            problems.append(f"{where}.name: another variant is called {name!r} already")
        names.add(name.casefold())
        if "target" in entry:
            problems.append(f"{where}.target: all variants have the same one: give it once, above")
        over = {key: value for key, value in entry.items() if key != "name"}
        try:
            experiment = experiment_from(merged(base, over), f"{where} ({name})", folder)
        except ConfigError as error:
            problems.append(str(error))
        else:
            variants.append(Variant(name, experiment))
    if problems:
        raise ConfigError("\n".join(problems))
    return variants


def compare(
    variants: Sequence[Variant],
    out: Path | None = None,
    *,
    progress: Callable[[Variant], Progress | None] = lambda _: None,
) -> list[Row]:
    """Run each variant and report on all of them.

    A run that fails gives a row with its error, and the other variants are still run.

    Args:
        out: a new or empty folder, in which each run gets a folder of the variant's name.
        progress: called with each variant; returns a function that takes the share of its run done.

    Raises:
        ConfigError: before anything is run or written, if a variant cannot be run or `out` is
            not empty.
    """
    for variant in variants:
        try:
            check(variant.experiment)
        except ConfigError as error:
            raise ConfigError(f"variant {variant.name}: {error}") from error
    if out is not None:
        files.new_folder(out)
    rows: list[Row] = []
    try:
        for variant in variants:
            rows.append(_run(variant, out, progress(variant)))
    finally:  # after Ctrl-C the report is about the runs that ended
        if out is not None and rows:
            write_report([out / row.variant.name for row in rows], out / files.REPORT)
    return rows


def _run(variant: Variant, out: Path | None, progress: Progress | None) -> Row:
    place = None if out is None else out / variant.name
    try:
        result = simulate(variant.experiment, place, progress=progress)
    except RunError as error:
        summary = {"status": "failed", "error": str(error)}
        if place is not None:
            summary = files.read_summary(place)
        return Row(variant, summary, None, str(error))
    return Row(variant, result.summary, result, None)
