"""Which runs of a comparison are complete in its folder."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Hashable, Mapping
from pathlib import Path

from outpace.cluster.observed import Measured
from outpace.config.experiment import Experiment
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.experiment.trials import Order
from outpace.record import folder as files
from outpace.simulation.measured import remember
from outpace.support.regular_files import require_no_link
from outpace.tasks import GivenTask


def complete_runs(plan: Mapping[Hashable, Order], out: Path) -> list[Hashable]:
    """Return the keys of the runs that are complete in `out`; remove the folders of all others.

    Raises ConfigError, before anything is removed, if `out` does not exist or a folder is not
    that of its run.
    """
    if any(isinstance(order.experiment.task, GivenTask) for order in plan.values()):
        raise ConfigError(
            "resume: the folders do not say whether a task that was given from Python is the same; "
            "name its file: task={'kind': 'python', 'target': 'file.py:function'}"
        )
    if not out.is_dir():
        raise ConfigError(f"{out} is not a folder: there is nothing to resume")
    for file, of in (
        (files.CONFIG, "one run"),
        (files.JOURNAL, "a sweep"),
        (files.ADVICE, "advice"),
    ):
        if (out / file).exists():
            raise ConfigError(
                f"{out} is the folder of {of}, not of a comparison: choose another one"
            )
    there = {
        key: order.folder
        for key, order in plan.items()
        if order.folder is not None and _is_there(order, order.folder, out)
    }
    complete = [key for key, folder in there.items() if _is_complete(folder)]
    for key, folder in there.items():
        if key not in complete:
            shutil.rmtree(folder)
    return complete


def _is_there(order: Order, folder: Path, out: Path) -> bool:
    """True if the run has a folder. Raises ConfigError if the folder is not that of this run."""
    config, variant = folder / files.CONFIG, out / folder.relative_to(out).parts[0]
    for each in (variant, folder):
        require_no_link(each)
    if variant != folder and (variant / files.CONFIG).exists():
        raise ConfigError(
            f"{variant} is the run of a comparison with one seed, and with several seeds it would "
            f"be in {folder}: move it there, or choose another folder"
        )
    if not os.path.lexists(folder):
        return False
    if config.is_file():
        found = experiment_from(files.read_config(folder), str(config), out)
        if _as_configured(found, order.experiment) == order.experiment:
            return True
        raise ConfigError(
            f"{config} differs from the configuration of {variant.name} with seed "
            f"{order.experiment.seed}: resume with the configuration that {out} was made with, "
            "or choose another folder"
        )
    if not folder.is_dir() or any(path.suffix != ".part" for path in folder.iterdir()):
        raise ConfigError(
            f"{folder} is not the folder of a run, it has no {files.CONFIG}: resume with the "
            "number of seeds and the variants that the comparison was made with, or choose "
            "another folder"
        )
    return True


def _as_configured(found: Experiment, wanted: Experiment) -> Experiment:
    """Return the experiment of a run's folder without the run times that were measured for it.

    The runs that are still to be made then use the same run times.
    """
    compute = wanted.compute
    if compute is None and isinstance(found.compute, Measured):  # of a script
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
        return False  # the run was killed at its begin
    return files.read_summary(folder).get("status") == "complete"
