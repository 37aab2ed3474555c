"""Writes a cluster file, the recorded run times that it may need, and the page about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from outpace.cluster.calibration.run_times import RunTimeFit
from outpace.errors import ConfigError
from outpace.predict.recorded import write
from outpace.predict.recorded.table import RunTimes
from outpace.record.folder import write_text
from outpace.report.calibration import Shown, write_calibration_page
from outpace.support.version import __version__
from outpace.support.yaml_files import write_yaml

_HEAD = """\
# Cluster file, written by outpace calibrate {version}.
# In a configuration: include: {name}; on the command line: --cluster {name}
"""


class Found(Protocol):
    """A calibration, of runs or of traces."""

    @property
    def compute(self) -> RunTimeFit: ...

    def recorded(self) -> RunTimes:
        """Return the recorded run times, to be replayed."""
        ...

    def data(self, run_times: str) -> dict[str, Any]:
        """Return the content of the cluster file. run_times: the file of recorded run times."""
        ...


def write_calibration(found: Found, shown: Shown, path: Path, page: Path) -> None:
    """Write the cluster file, last, so that it is there only if all else is.

    Recorded run times, if they are to be replayed, are written beside it, and named relative to it.

    Raises:
        ConfigError: if a file cannot be written.
    """
    run_times = path.with_name(f"{path.stem}.run-times.parquet")
    data = found.data(run_times.name)
    if found.compute.law is None:
        write(found.recorded(), run_times)
    write_calibration_page(shown, page)
    text = _HEAD.format(version=__version__, name=path.name) + write_yaml(data)
    try:
        write_text(path, text)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error
