"""Finds the runs of a comparison that are complete in its folder."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Final

from outpace.cluster.observed import Measured
from outpace.config.experiment import Experiment
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.experiment.trials import Order
from outpace.record import folder as files
from outpace.simulation.measured import remember
from outpace.support.regular_files import require_no_link
from outpace.support.replacing import PARTIAL
from outpace.tasks import GivenTask

# files of one run, a sweep, or advice
_OF_OTHERS: Final = (files.CONFIG, files.JOURNAL, files.ADVICE)


def complete_runs(plan: Mapping[Hashable, Order], out: Path) -> list[Hashable]:
    """Return the keys of the runs that are complete in `out`; remove the folders of all others.

    Raises ConfigError, before anything is removed, if `out` does not exist or a folder belongs to
    another run.
    """
    if any(isinstance(order.experiment.task, GivenTask) for order in plan.values()):
        raise ConfigError(
            "resume: the folders do not say whether a task that was given from Python is the same; "
            "name its file: task={'kind': 'python', 'target': 'file.py:function'}"
        )
    if not out.is_dir() or any((out / name).exists() for name in _OF_OTHERS):
        raise ConfigError(f"{out} is not the folder of a comparison: there is nothing to resume")
    folders = {key: order.folder for key, order in plan.items() if order.folder is not None}
    there = {key: folder for key, folder in folders.items() if _is_there(plan[key], folder, out)}
    complete = [key for key, folder in there.items() if _is_complete(folder)]
    for key in there.keys() - set(complete):
        shutil.rmtree(there[key])
    return complete


def _is_there(order: Order, folder: Path, out: Path) -> bool:
    """True if the run has a folder. Raises ConfigError if the folder belongs to another run."""
    config, variant = folder / files.CONFIG, out / folder.relative_to(out).parts[0]
    for each in (variant, folder):
        require_no_link(each)
    is_of_other = variant != folder and (variant / files.CONFIG).exists()  # with one seed
    if not is_of_other and not folder.exists():
        return False
    if config.is_file():
        found = experiment_from(files.read_config(folder), str(config), out)
        is_of_other |= _as_configured(found, order.experiment) != order.experiment
    else:
        is_of_other |= any(path.suffix != PARTIAL for path in folder.glob("*"))
    if is_of_other:
        raise ConfigError(
            f"{folder} is not of {variant.name} with seed {order.experiment.seed} in this "
            f"comparison: resume with the configuration and the number of seeds that {out} was "
            "made with, or choose another folder"
        )
    return True


def _as_configured(found: Experiment, wanted: Experiment) -> Experiment:
    """Return the experiment of a run's folder without the run times that were measured for it.

    The missing runs then use the same run times.
    """
    compute = wanted.compute
    if compute is None and isinstance(found.compute, Measured):  # file of a script
        remember(found)
        return dataclasses.replace(found, compute=None)
    if isinstance(compute, Measured) and isinstance(found.compute, Measured):
        remember(found)
        return dataclasses.replace(
            found, compute=dataclasses.replace(found.compute, seconds=compute.seconds)
        )
    return found


def _is_complete(folder: Path) -> bool:
    if not (folder / files.SUMMARY).is_file():
        return False  # the run was killed at its beginning
    return files.read_summary(folder).get("status") == "complete"
