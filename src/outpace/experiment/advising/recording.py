"""Records a few real steps of a script or a task, and calibrates the cluster from them."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from outpace.config.cluster_files import with_cluster
from outpace.errors import ConfigError
from outpace.experiment.calibrating import calibrate, write_calibration
from outpace.experiment.running import run
from outpace.experiment.sources import Source
from outpace.record.folder import write_json
from outpace.report.frame import LIBRARY, write_library
from outpace.support.notices import warn
from outpace.support.regular_files import read_text

STEPS: Final = 32  # a calibration needs 20, and leaves the first ones out if they differ
CLUSTER: Final = "cluster.yaml"
_RECORDED: Final = "recorded"
_FILE: Final = "recording.json"  # what was recorded: the configuration
_OF_CLUSTER: Final = "cluster.*"  # the file, its page, and the run times that it replays


def recorded_cluster(source: Source, folder: Path, say: Callable[[str], None]) -> Source:
    """Return the configuration with a cluster file, from STEPS real iterations of BSP.

    The run and the file are kept in `folder`. If it has a recording of the same configuration, that
    is taken. What was written is removed if the run or the calibration fails.

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
    asked = json.loads(json.dumps(data, default=str, sort_keys=True))
    path = folder / CLUSTER
    if (folder / _FILE).is_file() and path.is_file():
        if _read(folder / _FILE) != asked:
            raise ConfigError(
                f"{folder} has a recording of another configuration: choose another --out"
            )
        say(f"no cluster file: the one that was recorded before is taken, {path}")
        return source._replace(data=with_cluster(source.data, path))
    say(f"no cluster file: {STEPS} steps of BSP are recorded on real processes")
    out = folder / _RECORDED
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_library(folder)  # for the pages of the run and the cluster, and that of the advice
        run(experiment, out)
        write_calibration(calibrate([out]), path, path.with_suffix(".html"))
        write_json(folder / _FILE, asked)
    except BaseException:
        _remove(folder)
        raise
    warn(f"the cluster was calibrated on {STEPS} steps, which is little: {path}")
    return source._replace(data=with_cluster(source.data, path))


def recorded_only(folder: Path) -> bool:
    """Return True if the folder has a complete recording and nothing else."""
    if not (folder / _FILE).is_file():
        return False
    others = set(folder.iterdir()) - {folder / name for name in (_FILE, _RECORDED, LIBRARY)}
    return others <= set(folder.glob(_OF_CLUSTER))


def _read(path: Path) -> Any:
    with contextlib.suppress(OSError, ValueError):
        return json.loads(read_text(path))
    return None


def _remove(folder: Path) -> None:
    """Remove an incomplete recording, and the folder if nothing else is in it."""
    shutil.rmtree(folder / _RECORDED, ignore_errors=True)
    for path in (folder / _FILE, folder / LIBRARY, *folder.glob(_OF_CLUSTER)):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()
