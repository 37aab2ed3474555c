"""Writes a cluster file, the recorded run times that it may need, and the page about it."""

from __future__ import annotations

from pathlib import Path

from outpace.errors import ConfigError
from outpace.experiment.calibrating.calibration import Calibration
from outpace.experiment.calibrating.words import all_reduce_rows, compute_rows, law_rows
from outpace.predict.recorded import write
from outpace.record.folder import write_text
from outpace.report.calibration import Shown, write_calibration_page
from outpace.support.version import __version__
from outpace.support.yaml_files import write_yaml

_HEAD = """\
# Cluster file, written by outpace calibrate {version}.
# In a configuration: include: {name}; on the command line: --cluster {name}
"""


def write_calibration(found: Calibration, path: Path, page: Path) -> None:
    """Write the cluster file, last, so that it is there only if all else is.

    Recorded run times, if they are to be replayed, are written beside it, and named relative to it.

    Raises:
        ConfigError: if a file cannot be written.
    """
    run_times = path.with_name(f"{path.stem}.run-times.parquet")
    data = found.data(run_times.name)
    if found.compute.law is None:
        write(found.recorded(), run_times)
    shown = Shown(
        " and ".join(run.folder.name for run in found.runs),
        law_rows(found),
        compute_rows(found),
        found.notes,
        found.compute,
        found.recorded().seconds,
        found.network,
        found.service_times,
        all_reduce_rows(found),
        found.all_reduces,
    )
    write_calibration_page(shown, page)
    text = _HEAD.format(version=__version__, name=path.name) + write_yaml(data)
    try:
        write_text(path, text)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error
