"""Records a few real steps of a script or a task, and calibrates the cluster from them."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from outpace.config.cluster_files import with_cluster
from outpace.errors import ConfigError
from outpace.experiment.calibrating import calibrate, write_calibration
from outpace.experiment.running import run
from outpace.experiment.sources import Source
from outpace.record.folder import write_text
from outpace.report.frame import LIBRARY, write_library
from outpace.support.notices import warn
from outpace.support.regular_files import read_text

STEPS: Final = 32  # a calibration needs 20 steps, and leaves out the first ones if they differ
RECORDED: Final = "recorded"  # the folder of the run and of the cluster file
_CLUSTER: Final = "cluster.yaml"
_FILE: Final = "configuration.json"  # file about the recording; it is written last


def recorded_cluster(source: Source, folder: Path, say: Callable[[str], None]) -> Source:
    """Return the configuration with a cluster file, from STEPS real iterations of BSP.

    The run and the file are stored in `folder`. If the folder already has a recording of the same
    configuration, this is used. If the run or the calibration fails, the new files are removed.

    Raises:
        ConfigError, RunError: if the run or the calibration fails, or the folder has a recording of
            another configuration.
    """
    data = {
        key: value
        for key, value in source.data.items()
        if key not in ("sync", "sync_changes", "conditions", "pull", "skip", "variants", "seeds")
    }
    data |= {"sync": {"kind": "bsp"}, "stop": {"iterations": STEPS}}
    experiment = source._replace(data=data).experiment()
    asked = json.dumps(data, default=str, sort_keys=True)
    out = folder / RECORDED
    path = out / _CLUSTER
    if (out / _FILE).is_file():
        if read_text(out / _FILE) != asked:
            raise ConfigError(
                f"{folder} has a recording of another configuration: choose another --out"
            )
        say(f"no cluster file: the cluster file that was recorded before is used, {path}")
        return source._replace(data=with_cluster(source.data, path))
    say(f"no cluster file: {STEPS} steps of BSP are recorded on real processes")
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_library(folder)  # for the pages of the run and of the advice
        run(experiment, out / "run")
        write_calibration(calibrate([out / "run"]), path)
        write_text(out / _FILE, asked)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        (folder / LIBRARY).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise
    warn(f"the cluster was calibrated on {STEPS} steps, which is little: {path}")
    return source._replace(data=with_cluster(source.data, path))


def recorded_only(folder: Path) -> bool:
    """Return True if the folder has a complete recording and nothing else."""
    is_complete = (folder / RECORDED / _FILE).is_file()
    return is_complete and {each.name for each in folder.iterdir()} <= {RECORDED, LIBRARY}
