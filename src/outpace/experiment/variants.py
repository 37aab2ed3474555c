"""Reads the variants of a comparison, and its number of seeds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from outpace.config.keys import faults_of_workers
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.experiment.compared import Variant
from outpace.record import folder as files
from outpace.support.notices import warn
from outpace.support.yaml_files import merged
from outpace.sync.assignment import has_servers

_MOST_SEEDS: Final = 1000
# Names that readers of a folder expect to be files.
_TAKEN: Final = (files.REPORT, files.COMPARISON, files.CONFIG, files.SUMMARY)


def variants_from(data: Mapping[str, Any], source: str, folder: Path) -> list[Variant]:
    """Return the variants of a configuration.

    Args:
        data: the keys of an Experiment, `variants`: a list of mappings with a name and the
            keys in which that variant differs, and perhaps `seeds`.
        source: names the data in errors.
        folder: the folder that paths in the data are relative to.

    Raises:
        ConfigError: with all errors of all variants.
    """
    base = {key: value for key, value in data.items() if key not in ("variants", "seeds")}
    if "variants" not in data:
        raise ConfigError(
            f"{source} has no variants: run it with outpace simulate {source}, or add variants "
            "such as variants=[{name: BSP, sync: {kind: bsp}}, {name: ASP, sync: {kind: asp}}]"
        )
    entries = data["variants"]
    if not isinstance(entries, list) or not entries:
        raise ConfigError(
            f"{source}: variants must be a list of mappings such as "
            "{name: BSP, sync: {kind: bsp}}"
        )
    variants, problems, names = [], [], set()
    spared: list[str] = []  # variants without servers
    for place, entry in enumerate(entries):
        where = f"{source}: variants[{place}]"
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            problems.append(f"{where} must be a mapping with a name, not {entry!r}")
            continue
        name = entry["name"]
        if not re.fullmatch(r"[^\s/\\.][^/\\\x00-\x1f]{0,99}", name) or name in _TAKEN:
            problems.append(f"{where}.name: {name!r} cannot be the name of the run's folder")
        if name.casefold() in names:
            problems.append(f"{where}.name: another variant is called {name!r} already")
        names.add(name.casefold())
        if "seeds" in entry:
            problems.append(f"{where}.seeds: all variants have as many: give it once, above")
        if "target" in entry:
            problems.append(f"{where}.target: all variants have the same one: give it once, above")
        over = {key: value for key, value in entry.items() if key != "name"}
        try:
            whole = merged(base, over)
            left = whole
            if "faults" not in over and not has_servers(whole.get("sync"), folder):
                left = faults_of_workers(whole)
            experiment = experiment_from(left, f"{where} ({name})", folder)
            if left != whole:
                spared.append(name)
        except ConfigError as error:
            problems.append(str(error))
        else:
            variants.append(Variant(name, experiment))
    if problems:
        raise ConfigError("\n".join(problems))
    if spared and len(spared) == len(variants):
        raise ConfigError(
            f"{source}: faults has failures of servers, and no variant has servers: leave them out"
        )
    if spared:
        warn(
            "faults: failures of servers are passed over for the variants without servers "
            f"({', '.join(spared)})"
        )
    return variants


def seeds_from(data: Mapping[str, Any], source: str) -> int:
    """Return the number of seeds of a comparison, 1 by default. Raises ConfigError."""
    seeds = data.get("seeds", 1)
    if _is_number_of_seeds(seeds):
        return int(seeds)
    raise ConfigError(f"{source}: seeds must be from 1 to {_MOST_SEEDS}, not {seeds!r}")


def _is_number_of_seeds(seeds: Any) -> bool:
    return type(seeds) is int and 1 <= seeds <= _MOST_SEEDS


def check_seeds(variants: Sequence[Variant], seeds: int) -> None:
    if not _is_number_of_seeds(seeds):
        raise ConfigError(f"seeds must be from 1 to {_MOST_SEEDS}, not {seeds!r}")
    for variant in variants:
        if variant.experiment.seed + seeds > 2**63:
            raise ConfigError(
                f"variant {variant.name}: seed {variant.experiment.seed} leaves no room for "
                f"{seeds} seeds below 2^63: choose a smaller seed"
            )


def alike(variants: Sequence[Variant]) -> list[tuple[str, str]]:
    """Return the names of variants with the same configuration: the first of them, and another."""
    found = []
    for place, variant in enumerate(variants):
        for before in variants[:place]:
            if before.experiment == variant.experiment:
                found.append((before.name, variant.name))
                break
    return found
