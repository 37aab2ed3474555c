"""The runs of a report, read from their folders.

A run may have failed, been killed, or been written by another version of Outpace. A value that
is missing or has another type is None, not an error. Only the summary must be readable.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from outpace.errors import ConfigError
from outpace.record.comparison import VariantResult
from outpace.record.curves import QUANTITIES, curve_of
from outpace.record.folder import CONFIG, METRICS, TRACE, read_config, read_summary, table_file
from outpace.record.reading import Unreadable, one_line, reading
from outpace.support.estimates import NOTHING, Estimate
from outpace.support.regular_files import read_text

Series = list[float | None]
_MOST_LOGS: Final = 16
_COLUMNS: Final = (
    "time_s",
    "updates",
    "gradients",
    "accuracy",
    "train_loss",
    "test_loss",
    "worker",
)


def scheduler_of(summary: Mapping[str, Any]) -> int | None:
    """Return the scheduler's number among the shards of the trace; None if it is not a shard."""
    shard = summary.get("scheduler_shard")
    return shard if isinstance(shard, int) else None


def node_in(summary: Mapping[str, Any], name: str) -> str:
    """Return the node of a process by the summary of its run; empty if it does not say so."""
    nodes = summary.get("nodes")
    return str(nodes.get(name, "")) if isinstance(nodes, Mapping) else ""


@dataclass(frozen=True)
class Run:
    """The summary, configuration and metrics of one folder; `trace` is only a path.

    Attributes:
        metrics: the curve of the run, see `outpace.record.curves`.
        logs: what each worker of a script logged, if several did, of at most _MOST_LOGS workers.
        problems: a line for each file that could not be read; readers of the trace add lines.
        seeds: the runs with one seed each, if this is the mean of the runs of a variant.
        compared: what the comparison says about the variant; None for a run with one seed.
    """

    name: str
    summary: Mapping[str, Any]
    config: Mapping[str, Any]
    config_text: str
    metrics: Mapping[str, Series]  # column -> values; all columns have the same length
    trace: Path
    logs: Mapping[int, Mapping[str, Series]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    seeds: tuple[Run, ...] = ()
    compared: VariantResult | None = None

    @property
    def status(self) -> str:
        return str(self.summary.get("status", "unknown"))

    @property
    def without_servers(self) -> bool:
        """True if the workers averaged among themselves."""
        return self.summary.get("servers") == []

    @property
    def complete(self) -> bool:
        return self.status == "complete"

    @property
    def error(self) -> str | None:
        error = self.summary.get("error")
        return None if error is None else str(error)

    @property
    def warnings(self) -> list[str]:
        """The warnings of the run, or those of the runs of a variant, each text once."""
        found = [run.summary.get("warnings") for run in self.seeds or (self,)]
        texts = [text for said in found if isinstance(said, list) for text in said]
        return list(dict.fromkeys(text for text in texts if isinstance(text, str)))

    def number(self, *keys: str) -> float | None:
        """Return a finite number of the summary, such as `number("staleness", "mean")`."""
        return number_or_none(_at(self.summary, *keys))

    def setting(self, *keys: str) -> Any:
        """Return a value of the configuration, or None if it is not there."""
        return _at(self.config, *keys)

    def estimate(self, key: str) -> Estimate:
        """Return an estimate over the seeds; it is NOTHING for a run with one seed."""
        found: Estimate = getattr(self.compared, key, NOTHING)
        return found

    @property
    def distinguishable(self) -> bool | None:
        """Whether the variant can be told apart from the first one; None: not known."""
        return None if self.compared is None else self.compared.distinguishable

    @property
    def missed(self) -> int:
        """Number of the runs of the variant that missed the target."""
        return 0 if self.compared is None else self.compared.missed

    def histogram(self) -> dict[int, int]:
        """Return the number of pairs (gradient, server) for each staleness."""
        counts = _at(self.summary, "staleness", "histogram")
        return {
            int(key): int(count)
            for key, count in (counts.items() if isinstance(counts, Mapping) else ())
            if str(key).isdecimal() and number_or_none(count) is not None
        }

    @property
    def sync(self) -> Mapping[str, Any]:
        """The configured strategy; empty if unknown, only its kinds if servers differ."""
        sync = self.setting("sync")
        if isinstance(sync, list):
            return {"kind": _kind_of(sync)}
        return sync if isinstance(sync, Mapping) else {}

    @property
    def kind(self) -> str:
        """Kind of the strategy."""
        return str(self.sync.get("kind", ""))

    @property
    def real(self) -> bool:
        """True if the run was on real processes."""
        return "wall_time_s" in self.summary

    def node(self, name: str) -> str:
        """Return the node of a process, such as `worker-3`; empty if the run has no nodes."""
        return node_in(self.summary, name)

    @property
    def time_s(self) -> float | None:
        """Duration of the run in seconds of its own clock."""
        return self.number("wall_time_s" if self.real else "virtual_time_s")

    @property
    def gradients_per_s(self) -> float | None:
        gradients, time_s = self.number("gradients_applied"), self.time_s
        return None if gradients is None or not time_s else gradients / time_s

    @property
    def waiting_share(self) -> float | None:
        """Share of the workers' time spent waiting, in [0, 1]."""
        parts = [self.number("seconds", key) for key in ("compute", "communicate", "wait")]
        known = [part for part in parts if part is not None]
        if len(known) < 3 or sum(known) <= 0:
            return None
        return known[2] / sum(known)


def _at(mapping: Any, *keys: str) -> Any:
    """Return the value that the keys lead to through nested mappings; None if it is not there."""
    for key in keys:
        mapping = mapping.get(key) if isinstance(mapping, Mapping) else None
    return mapping


def clock(runs: Sequence[Run]) -> str:
    """Return `virtual time`, `wall time`, or only `time` if the runs have both."""
    kinds = {run.real for run in runs}
    return "time" if len(kinds) > 1 else "wall time" if kinds == {True} else "virtual time"


def strategies(runs: Sequence[Run]) -> list[str]:
    """Return a label for each strategy that tells it apart, such as `ssp, staleness 3`.

    Numbers are always given; other settings only if runs with the same kind of strategy differ
    in them. For cut-offs, which have many numbers, the model is always given. The time-out of an
    all-reduce is left out, because it does not affect a run that ends.
    """

    def words(run: Run) -> list[str]:
        alike = [other.sync for other in runs if other.kind == run.kind]
        always = (
            {"model"}
            if "model" in run.sync
            else {key for key, value in run.sync.items() if number_or_none(value) is not None}
        )
        if "all_reduce" in run.sync:
            always.discard("timeout_s")
        return [
            f"{key} {Path(value).name if key == 'file' else value}"
            for key, value in run.sync.items()
            if key != "kind"
            and value is not None
            and (key in always or any(other.get(key) != value for other in alike))
        ]

    return [", ".join([run.kind, *words(run), *_beside(run)]) for run in runs]


def _beside(run: Run) -> Iterator[str]:
    """Yield settings of the strategy that are elsewhere in the configuration."""
    changes = run.setting("sync_changes")
    for change in changes if isinstance(changes, list) else ():
        known = change if isinstance(change, Mapping) else {}
        at_s, kind = number_or_none(known.get("at_s")), _kind_of(known.get("sync"))
        if kind and at_s is not None:
            yield f"from {at_s:g} s on {kind}"
    if run.setting("conditions"):
        yield "conditions of the user"
    if (percent := number_or_none(run.setting("pull", "quorum_percent"))) is not None:
        yield f"pull {percent:g} %"
    if run.setting("slicing") == "layers":
        yield "sliced by layers"


def _kind_of(sync: Any) -> str:
    """Return the kind of a strategy, or the kinds if there is a strategy for each server."""
    listed = sync if isinstance(sync, list) else [sync]
    kinds = [str(each.get("kind", "")) for each in listed if isinstance(each, Mapping)]
    return " + ".join(dict.fromkeys(kinds))


def on_one_clock(runs: Sequence[Run]) -> list[Run]:
    """Return the runs in virtual time or the runs on real processes, whichever are more."""
    real = [run for run in runs if run.real]
    return real if 2 * len(real) > len(runs) else [run for run in runs if not run.real]


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Read the runs in these folders. Raises ConfigError if a folder is not that of a run."""
    if not folders:
        raise ConfigError("a report needs the folder of at least one run")
    return [read_run(folder, name) for folder, name in zip(folders, names_of(folders), strict=True)]


def names_of(folders: Sequence[Path]) -> list[str]:
    """Return the folders' names, with their parents' names where two are the same."""
    paths = [folder.resolve() for folder in folders]
    counts = Counter(path.name for path in paths)
    names: list[str] = []
    for path in paths:
        name = path.name if counts[path.name] == 1 else f"{path.parent.name}/{path.name}"
        taken = sum(other == name or other.startswith(f"{name} (") for other in names)
        names.append(f"{name} ({taken + 1})" if taken else name)
    return names


def read_summary_of(folder: Path) -> Mapping[str, Any]:
    """Return the summary. Raises ConfigError if this is not the folder of a run."""
    return read_summary(folder, lenient=True)


def read_run(folder: Path, name: str) -> Run:
    """Read the run in a folder. Raises ConfigError if the folder is not that of a run."""
    summary = read_summary_of(folder)
    problems: list[str] = []
    try:
        config, text = read_config(folder), read_text(folder / CONFIG)
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        config, text = {}, f"# {error}\n"
        problems.append(one_line(error))
    try:
        metrics, logs = _metrics(folder / METRICS)
    except Unreadable as error:
        metrics, logs = {name: [] for name in _COLUMNS}, {}
        problems.append(str(error))
    return Run(name, summary, config, text, metrics, folder / TRACE, logs, problems)


def _metrics(path: Path) -> tuple[dict[str, Series], dict[int, dict[str, Series]]]:
    """Return the curve of a run, and the logs of its workers if several have logged."""
    logs: dict[int, dict[str, Series]] = {}
    with reading(path), pq.ParquetFile(table_file(path)) as file:
        names = set(_COLUMNS).intersection(file.schema_arrow.names)
        rows = file.read(sorted(names), use_threads=False)
        curve = curve_of(rows)
        if "worker" in names:  # without the points of a script that are on no curve
            on_curve = [curve[name].is_valid() for name in QUANTITIES if name in names]
            curve = curve.filter(reduce(pc.or_, [curve["worker"].is_null(), *on_curve]))
            workers = sorted(pc.unique(rows["worker"].drop_null()).to_pylist())
            if len(workers) > 1:
                for worker in workers[:_MOST_LOGS]:
                    logs[worker] = _series(rows.filter(pc.equal(rows["worker"], worker)))
        return _series(curve), logs


def _series(table: pa.Table) -> dict[str, Series]:
    """Return the values of each column; those of a column that is missing are None."""
    return {
        name: [number_or_none(value) for value in table[name].to_pylist()]
        if name in table.column_names
        else [None] * len(table)
        for name in _COLUMNS
    }


def number_or_none(value: Any) -> float | None:
    """Return the value if it is a finite number, else None."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if abs(value) <= sys.float_info.max else None
