"""The runs of a report, read from their folders, and the mean of the runs of a variant.

A run may have failed, been killed, or been written by another version of Outpace. A value that
is missing or has another type is None, not an error. Only the summary must be readable.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from outpace.errors import ConfigError
from outpace.record.comparison import VariantResult, read_comparison
from outpace.record.curves import curve_of
from outpace.record.folder import (
    COMPARISON,
    CONFIG,
    METRICS,
    TRACE,
    read_config,
    read_summary,
    table_file,
)
from outpace.record.reading import Unreadable, one_line, reading
from outpace.support.regular_files import read_text

Floats = npt.NDArray[np.float64]

_NOT_COMPARED: Final = VariantResult("")
_MOST_LOGS: Final = 16
_MOST_WORKERS: Final = 1_000_000
_ENDED: Final = ("complete", "failed")
_METRICS: Final = pa.schema(
    (name, pa.float64())
    for name in (
        "time_s",
        "gradients",
        "accuracy",
        "train_loss",
        "test_loss",
        "worker",
    )
)


@dataclass(frozen=True)
class Run:
    """The summary, configuration and metrics of one folder; `trace` is only a path.

    Attributes:
        metrics: the curve of the run, see `outpace.record.curves`; all columns are floats.
        logs: the log of each worker of a script, if several have logged; for at most _MOST_LOGS
            workers.
        problems: a line for each file that could not be read; readers of the trace add lines.
        seeds: the runs with one seed each, if this is the mean of the runs of a variant.
        compared: the results of the comparison for this variant; empty for a run with one seed.
    """

    name: str
    summary: Mapping[str, Any]
    config: Mapping[str, Any]
    config_text: str
    metrics: pa.Table
    trace: Path
    logs: Mapping[int, pa.Table] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    seeds: tuple[Run, ...] = ()
    compared: VariantResult = _NOT_COMPARED

    @property
    def status(self) -> str:
        return str(self.summary.get("status", "unknown"))

    @property
    def complete(self) -> bool:
        return self.status == "complete"

    @property
    def error(self) -> str | None:
        error = self.summary.get("error")
        return None if error is None else str(error)

    @property
    def warnings(self) -> list[str]:
        """The warnings of the run, or of all runs of a variant, each text once."""
        found = [run.summary.get("warnings") for run in self.seeds or (self,)]
        texts = [text for said in found if isinstance(said, list) for text in said]
        return list(dict.fromkeys(text for text in texts if isinstance(text, str)))

    def number(self, *keys: str) -> float | None:
        """Return a finite number of the summary, such as `number("staleness", "mean")`."""
        return number_or_none(_at(self.summary, *keys))

    def setting(self, *keys: str) -> Any:
        """Return a value of the configuration, or None if it does not exist."""
        return _at(self.config, *keys)

    def points(self, x: str, y: str) -> tuple[Floats, Floats]:
        """Return the values of two columns of the curve where both are known."""
        return known_points(self.metrics, x, y)

    def counted(self) -> Sequence[Run]:
        """Return the runs whose mean this is: the complete ones, or all if none is complete.

        A run with one seed is the mean of itself.
        """
        return [each for each in self.seeds if each.complete] or self.seeds or [self]

    def histogram(self) -> dict[int, int]:
        """Return the number of pairs (gradient, server) for each staleness."""
        counts = _at(self.summary, "staleness", "histogram")
        return {
            int(key): int(count)
            for key, count in (counts.items() if isinstance(counts, Mapping) else ())
            if str(key).isdecimal() and number_or_none(count) is not None
        }

    @property
    def kind(self) -> str:
        """Kind of the strategy, or all kinds if servers differ; empty if it is unknown."""
        return kind_of(self.setting("sync"))

    @property
    def real(self) -> bool:
        """True if it was a run on real processes."""
        return "wall_time_s" in self.summary

    @property
    def time_s(self) -> float | None:
        """Duration of the run in seconds of its own clock."""
        return self.number("wall_time_s" if self.real else "virtual_time_s")

    @property
    def waiting_share(self) -> float | None:
        """Share of the workers' time spent waiting, in [0, 1]."""
        parts = [self.number("seconds", key) for key in ("compute", "communicate", "wait")]
        known = [part for part in parts if part is not None]
        return known[2] / sum(known) if len(known) == 3 and sum(known) > 0 else None


def _at(mapping: Any, *keys: str) -> Any:
    """Return the value at these keys in nested mappings; None if it does not exist."""
    for key in keys:
        mapping = mapping.get(key) if isinstance(mapping, Mapping) else None
    return mapping


def number_or_none(value: Any) -> float | None:
    """Return the value if it is a finite number, else None."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if abs(value) <= sys.float_info.max else None


def kind_of(sync: Any) -> str:
    """Return the kind of a strategy, or the kinds if there is a strategy for each server."""
    listed = sync if isinstance(sync, list) else [sync]
    kinds = [str(each.get("kind", "")) for each in listed if isinstance(each, Mapping)]
    return " + ".join(dict.fromkeys(kinds))


def workers_in(summary: Mapping[str, Any], config: Mapping[str, Any]) -> int | None:
    """Return how many workers a run had, by its summary or else its configuration.

    None if neither has the number, or if the number is impossible.
    """
    counts = summary.get("iterations")
    workers = len(counts) if isinstance(counts, list) else config.get("workers")
    return workers if type(workers) is int and 0 < workers <= _MOST_WORKERS else None


def node_in(summary: Mapping[str, Any], name: str) -> str:
    """Return the node of a process from the summary of its run; empty if it is not given."""
    return str(_at(summary, "nodes", name) or "")


def clock(runs: Sequence[Run]) -> str:
    """Return `virtual time`, `wall time`, or only `time` if the runs have both."""
    kinds = {run.real for run in runs}
    return "time" if len(kinds) > 1 else "wall time" if kinds == {True} else "virtual time"


def known_points(metrics: pa.Table, x: str, y: str) -> tuple[Floats, Floats]:
    """Return the values of two columns of metrics where both are known."""
    rows = metrics.select([x, y]).drop_null()
    return rows[x].to_numpy(), rows[y].to_numpy()


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Read the runs in these folders. Raises ConfigError if a folder is not the folder of a run."""
    if not folders:
        raise ConfigError("a report needs the folder of at least one run")
    return [read_run(folder, name) for folder, name in zip(folders, names_of(folders), strict=True)]


def names_of(folders: Sequence[Path]) -> list[str]:
    """Return the folders' names, with the parents' names if two names are equal."""
    paths = [folder.resolve() for folder in folders]
    counts = Counter(path.name for path in paths)
    names: list[str] = []
    for path in paths:
        name = path.name if counts[path.name] == 1 else f"{path.parent.name}/{path.name}"
        taken = sum(other == name or other.startswith(f"{name} (") for other in names)
        names.append(f"{name} ({taken + 1})" if taken else name)
    return names


def read_run(folder: Path, name: str) -> Run:
    """Read the run in a folder. Raises ConfigError if it is not the folder of a run."""
    summary = read_summary(folder, lenient=True)
    problems: list[str] = []
    try:
        config, text = read_config(folder), read_text(folder / CONFIG)
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        config, text = {}, f"# {error}\n"
        problems.append(one_line(error))
    try:
        metrics, logs = _metrics(folder / METRICS)
    except Unreadable as error:
        metrics, logs = _METRICS.empty_table(), {}
        problems.append(str(error))
    return Run(name, summary, config, text, metrics, folder / TRACE, logs, problems)


def _metrics(path: Path) -> tuple[pa.Table, dict[int, pa.Table]]:
    """Return the curve of a run, and the logs of its workers if several have logged."""
    with reading(path), pq.ParquetFile(table_file(path)) as file:
        names = [name for name in _METRICS.names if name in file.schema_arrow.names]
        rows = file.read(names, use_threads=False)
        workers = sorted(
            pc.unique(rows["worker"].drop_null()).to_pylist() if "worker" in names else []
        )
        logs = {
            worker: _numbers(rows.filter(pc.equal(rows["worker"], worker)))
            for worker in (workers[:_MOST_LOGS] if len(workers) > 1 else ())
        }
        return _numbers(curve_of(rows)), logs


def _numbers(table: pa.Table) -> pa.Table:
    """Return the columns of _METRICS; null for missing columns and values that are not finite."""
    columns = []
    for name in _METRICS.names:
        column = pa.nulls(len(table), pa.float64())
        if name in table.column_names:
            values = table[name].cast(pa.float64())
            column = pc.if_else(pc.is_finite(values), values, pa.scalar(None, pa.float64()))
        columns.append(column)
    return pa.table(columns, schema=_METRICS)


def seed_of(folder: Path) -> int:
    """Return K if the folder is called `seed-K`, else -1."""
    found = re.fullmatch(r"seed-(\d+)", folder.name)
    return -1 if found is None else int(found[1])


def read_variants(folders: Sequence[Path], compared: Sequence[VariantResult] = ()) -> list[Run]:
    """Return the mean of the runs of each variant, in the order of comparison.json.

    Only runs that ended count. The result is empty if the folders are not the runs of one
    comparison over several seeds, with at least one run for each variant in its comparison.json.

    Args:
        compared: the content of comparison.json, if it is known; empty: the file is read.

    Raises:
        ConfigError: if a folder is not the folder of a run.
    """
    paths = sorted({folder.resolve() for folder in folders}, key=seed_of)
    places = {path.parent.parent for path in paths}
    if len(places) != 1 or any(seed_of(path) < 0 for path in paths):
        return []
    (place,) = places
    said = {each.name: each for each in compared or read_comparison(place)}
    names = list(dict.fromkeys([*said, *sorted(path.parent.name for path in paths)]))
    if not said or not set(names) <= {path.parent.name for path in paths}:
        return []
    means = []
    for name in names:
        inside = (path for path in paths if path.parent.name == name)
        runs = [read_run(path, f"{name}/{path.name}") for path in inside]
        if ended := [run for run in runs if run.status in _ENDED]:
            means.append(_mean_run(said.get(name, VariantResult(name)), ended, place / COMPARISON))
    return means


def _mean_run(compared: VariantResult, runs: Sequence[Run], file: Path) -> Run:
    name, problems = compared.name, []
    if compared.seeds != len(runs):
        compared = VariantResult(name)
        problems.append(
            f"{file} is not about the {len(runs)} runs of {name} that ended, so intervals are "
            "missing; `outpace compare --resume` writes it again"
        )
    mean = replace(runs[0], name=name, problems=problems, seeds=tuple(runs), compared=compared)
    summary = dict(_mean([run.summary for run in mean.counted()]))
    if isinstance(summary.get("staleness"), Mapping):
        histogram: Counter[int] = Counter()
        for run in mean.counted():
            histogram.update(run.histogram())
        summary["staleness"] = {**summary["staleness"], "histogram": histogram}
    failed = [run for run in runs if not run.complete]
    if failed:
        summary |= {"status": f"{len(failed)} of {len(runs)} runs failed", "error": failed[0].error}
    return replace(mean, summary=summary)


def _mean(values: Sequence[Any]) -> Any:
    """Return the mean of numbers, key by key and item by item; of other values, the first one."""
    if all(isinstance(value, Mapping) for value in values):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: _mean([value[key] for value in values if key in value]) for key in keys}
    if all(isinstance(value, list) and len(value) == len(values[0]) for value in values):
        return [_mean(items) for items in zip(*values, strict=True)]
    known = [number for value in values if (number := number_or_none(value)) is not None]
    return math.fsum(known) / len(known) if known else values[0]
