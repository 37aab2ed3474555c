"""A calibration as a cluster file."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from outpace.cluster.calibration.all_reduces import AllReduceFit
from outpace.cluster.calibration.run_times import RunTimeFit
from outpace.cluster.network import NetworkLaw
from outpace.config.cluster_files import CALIBRATED
from outpace.errors import ConfigError
from outpace.predict.recorded import RunTimes, write
from outpace.record.folder import write_text
from outpace.report.calibration import write_calibration_page
from outpace.support.regular_files import named, read_text
from outpace.support.version import __version__
from outpace.support.yaml_files import write_yaml

WRITTEN: Final = "written by outpace calibrate"
_HEAD: Final = """\
# Cluster file, {written} {version}.
# In a configuration: include: {name}; on the command line: --cluster {name}
"""
_BLOCKS: Final = 10  # iterations of a block of recorded times, as drawn with draw_cluster
_DIGITS: Final = 5  # number of significant digits


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """The laws of a cluster, estimated from recorded runs or from the profiler traces of one run.

    Args:
        words: The laws as text, by their keys in the cluster file.
        notes: Sentences about assumptions and about data that were left out.
        compute: The law of the run times.
        all_reduces: None if they were not measured.
        without_servers: Folders of the runs that `all_reduces` come from.
        network_law: The law of the network.
        laws: The other keys of the cluster file besides `compute`.
        said: The data about these laws under `calibrated` in the file.
        caveats: The notes that say how the network of the file differs from the network of the run.
    """

    words: Mapping[str, str]
    notes: Sequence[str]
    compute: RunTimeFit
    all_reduces: AllReduceFit | None
    without_servers: Sequence[str]
    network_law: NetworkLaw
    laws: Mapping[str, Any]
    said: Mapping[str, Any]
    caveats: Sequence[str] = ()

    @property
    def parameters(self) -> int:
        """Number of four-byte parameters that have the size of the gradients of traces."""
        fit = self.all_reduces
        return 1 if fit is None else max(1, round(fit.training[-1, 0] / 4))

    def data(self, run_times: str) -> dict[str, Any]:
        """Return the content of the cluster file.

        Args:
            run_times: Path of the file of recorded run times, for a `trace` law.
        """
        fit = self.compute
        replayed = {"kind": "trace", "path": run_times, "wrap": True}
        said = {"date": datetime.date.today().isoformat(), **self.said, "compute": _fit_data(fit)}
        return plain(  # type: ignore[no-any-return]
            {
                "compute": replayed if fit.law is None else fit.law,
                "network": self.network_law,
                **self.laws,
                CALIBRATED: {**said, "notes": list(self.notes)},
            }
        )

    def compute_rows(self) -> list[list[str]]:
        """Return the table of the goodness of fit: titles, then a row per worker and place.

        If the recorded times are replayed, it is the table of the best law, which was rejected.
        """
        goodness, recorded = self.compute.goodness, self.compute.recorded
        fitted = "rejected law s" if self.compute.law is None else "fitted s"
        means = recorded.mean(axis=0), goodness.drawn.mean(axis=0), goodness.of_worker
        rows = [["run times", "recorded s", fitted, "error %", "Kolmogorov"]]
        for worker, (one, other, distance) in enumerate(zip(*means, strict=True)):
            rows.append([f"worker {worker}", *_compared(one, other), f"{distance:.3f}"])
        whole = _compared(recorded.mean(), goodness.drawn.mean())
        rows.append(["all", *whole, f"{goodness.distance:.3f}"])
        orders = zip(goodness.recorded_order, goodness.fitted_order, strict=True)
        for place, (one, other) in enumerate(orders):
            rows.append([f"place {place + 1} of {recorded.shape[1]}", *_compared(one, other), ""])
        return rows

    def all_reduce_rows(self) -> list[list[str]]:
        """Return the table of the all-reduces of the training; empty if none were measured."""
        fit = self.all_reduces
        if fit is None:
            return []
        rows = [["all-reduces", "recorded s", "fitted s", "error %", "bytes"]]
        for name, (size_bytes, *times) in zip(self.without_servers, fit.training, strict=True):
            cells = _compared(*times)
            cells[-1] = cells[-1] if fit.training_testable else "not testable"
            rows.append([name, *cells, f"{size_bytes:.0f}"])
        return rows


def write_calibration(found: Calibration, path: Path) -> None:
    """Write the page NAME.html and then the cluster file, so the file exists only if all else does.

    If recorded run times are replayed, they are written to the same folder, and the file names them
    by a relative path.

    Raises:
        ConfigError: if a file cannot be written.
    """
    run_times = path.with_name(f"{path.stem}.run-times.parquet")
    data = found.data(run_times.name)
    if found.compute.law is None:
        seconds = found.compute.recorded
        nodes = np.arange(seconds.shape[1])
        write(RunTimes(seconds, np.zeros(seconds.shape, np.bool_), nodes), run_times)
    tables = [rows for rows in (found.compute_rows(), found.all_reduce_rows()) if rows]
    page = path.with_suffix(".html")
    write_calibration_page(page, found.words, found.notes, found.compute, tables)
    head = _HEAD.format(written=WRITTEN, version=__version__, name=path.name)
    try:
        write_text(path, head + write_yaml(data))
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error


def require_own(path: Path) -> None:
    """Raise ConfigError if the file exists, unless its first line says that Outpace wrote it."""
    try:
        if path.exists() and WRITTEN not in read_text(path, named).partition("\n")[0]:
            raise ConfigError(
                f"{path} exists and was not {WRITTEN}, so it is not overwritten; name another "
                "file with -o"
            )
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def _compared(recorded: float, fitted: float) -> list[str]:
    """Return cells with a recorded value, a fitted value, and the error in percent."""
    return [f"{recorded:.5g}", f"{fitted:.5g}", f"{100 * (fitted / recorded - 1):+.2f}"]


def _fit_data(fit: RunTimeFit) -> dict[str, Any]:
    """Return the data of the cluster file about the goodness of the fit."""
    said: dict[str, Any] = {"kolmogorov_distance": fit.goodness.distance}
    if fit.law is None:
        said |= {"best_law": fit.tried.kind, "why_replayed": fit.reasons}
        said |= {"block": -(-fit.iterations // _BLOCKS), "speed_cv": fit.speed_cv}
    elif fit.errors is not None:
        said["errors"] = fit.errors
    return said


def plain(value: Any) -> Any:
    """Return plain data with rounded numbers; laws without keys that have default values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = {"kind": value.kind} if hasattr(value, "kind") else {}
        return kind | {
            entry.name: plain(getattr(value, entry.name))
            for entry in dataclasses.fields(value)
            if entry.name != "kind" and getattr(value, entry.name) != _default(entry)
        }
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _default(entry: dataclasses.Field[Any]) -> Any:
    if entry.default_factory is not dataclasses.MISSING:
        return entry.default_factory()
    return entry.default
