"""The runs of a comparison, and which of them are in its folder already."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from outpace.cluster.observed import Measured
from outpace.config.experiment import Experiment
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.experiment.compared import Row, Variant
from outpace.experiment.tracking import Tracking
from outpace.record import folder as files
from outpace.simulation.measured import remember
from outpace.support.regular_files import require_no_link
from outpace.tasks import GivenTask

MakeTracker: TypeAlias = Callable[[str, int], Any]  # of a variant's name and a seed


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A run of a comparison; `folder` is unused if the comparison is kept in memory.

    name: of the run in trackers.
    """

    variant: Variant
    experiment: Experiment
    folder: Path
    name: str

    def tracking(self, tracker: MakeTracker | None) -> Tracking:
        """Return the tracking of this run. Raises ConfigError if `tracker` returns no tracker."""
        made = None if tracker is None else tracker(self.variant.name, self.experiment.seed)
        return dataclasses.replace(Tracking.of(made, self.folder), name=self.name)

    @property
    def fits_a_model(self) -> bool:
        cut_off = self.experiment.cut_off
        return cut_off is not None and cut_off.fitted_in_run

    def row(self, error: str | None) -> Row:
        if error is not None and not (self.folder / files.SUMMARY).is_file():
            summary = failed(error)  # the run could not begin
        else:
            summary = files.read_summary(self.folder)
        return Row(self.variant, self.experiment.seed, summary, error, folder=self.folder)

    def in_words(self, error: str | None) -> str:
        """Return a line about the run, which has ended."""
        summary = self.row(error).summary
        times = [f"{t:.4g} s of virtual time" for t in [summary.get("virtual_time_s")] if t]
        return f"{self.name}: {', '.join([str(summary.get('status')), *times])}"


def runs_of(variants: Sequence[Variant], seeds: int, out: Path | None) -> Iterator[Run]:
    """Yield the runs of all variants; out: None if the comparison is kept in memory."""
    for variant in variants:
        for later in range(seeds):
            seed = variant.experiment.seed + later
            experiment = dataclasses.replace(variant.experiment, seed=seed)
            name = f"{variant.name}/seed-{seed}" if seeds > 1 else variant.name
            yield Run(variant, experiment, (out or Path()) / name, name)


def failed(error: str) -> dict[str, Any]:
    """Return the summary of a run that could not begin."""
    return {"status": "failed", "error": error}


def prepared(runs: Sequence[Run], out: Path) -> dict[Run, str | None]:
    """Return the runs that are complete in `out`; remove the folders of all others.

    Raises ConfigError, before anything is removed, if `out` does not exist or a folder is not
    that of its run.
    """
    if any(isinstance(run.experiment.task, GivenTask) for run in runs):
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
    there = [run for run in runs if _is_there(run, out)]
    ended: dict[Run, str | None] = {run: None for run in there if _is_complete(run.folder)}
    for run in there:
        if run not in ended:
            shutil.rmtree(run.folder)
    return ended


def _is_there(run: Run, out: Path) -> bool:
    """True if the run has a folder. Raises ConfigError if the folder is not that of this run."""
    config, variant = run.folder / files.CONFIG, out / run.variant.name
    for each in (variant, run.folder):
        require_no_link(each)
    if variant != run.folder and (variant / files.CONFIG).exists():
        raise ConfigError(
            f"{variant} is the run of a comparison with one seed, and with several seeds it would "
            f"be in {run.folder}: move it there, or choose another folder"
        )
    if not os.path.lexists(run.folder):
        return False
    if config.is_file():
        found = experiment_from(files.read_config(run.folder), str(config), out)
        if _as_configured(found, run.experiment) == run.experiment:
            return True
        raise ConfigError(
            f"{config} differs from the configuration of {run.variant.name} with seed "
            f"{run.experiment.seed}: resume with the configuration that {out} was made with, "
            "or choose another folder"
        )
    if not run.folder.is_dir() or any(path.suffix != ".part" for path in run.folder.iterdir()):
        raise ConfigError(
            f"{run.folder} is not the folder of a run, it has no {files.CONFIG}: resume with the "
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
