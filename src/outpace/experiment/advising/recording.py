"""Records a few real steps of a script or a task, and calibrates the cluster from them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from outpace.config.cluster_files import with_cluster
from outpace.experiment.calibrating import calibrate
from outpace.experiment.calibrating.words import shown
from outpace.experiment.calibrating.writing import write_calibration
from outpace.experiment.running import run
from outpace.experiment.sources import Source
from outpace.support.notices import warn

STEPS: Final = 25  # a calibration needs 20, and leaves the first ones out if they differ
CLUSTER: Final = "cluster.yaml"
_RECORDED: Final = "recorded"


def recorded_cluster(source: Source, folder: Path | None, say: Callable[[str], None]) -> Source:
    """Return the configuration with a cluster file, from STEPS real iterations of BSP.

    The run and the file are kept in `folder`; without one they are removed when Python ends.

    Raises:
        ConfigError, RunError: if the run or the calibration fails.
    """
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="outpace-advice-"))
    data = {
        key: value
        for key, value in source.data.items()
        if key not in ("sync", "sync_changes", "conditions", "pull", "skip", "variants", "seeds")
    }
    data |= {"sync": {"kind": "bsp"}, "stop": {"iterations": STEPS}}
    say(f"no cluster file: {STEPS} steps of BSP are recorded on real processes")
    experiment = source._replace(data=data).experiment()
    out = folder / _RECORDED
    if not out.exists():
        run(experiment, out)
    found = calibrate([out])
    path = folder / CLUSTER
    write_calibration(found, shown(found), path, path.with_suffix(".html"))
    warn(f"the cluster was calibrated on {STEPS} steps, which is little: {path}")
    return source._replace(data=with_cluster(source.data, path))
