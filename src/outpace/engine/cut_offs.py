"""The cut-off rule of a run, the same in every runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from outpace.cluster.observed import Recorded
from outpace.cluster.regimes import Regimes
from outpace.config.experiment import Experiment
from outpace.engine.resuming import ResumePoint
from outpace.errors import ConfigError
from outpace.predict.interface import Rule
from outpace.predict.models import Fitting
from outpace.predict.models import load as load_model
from outpace.predict.recorded import Nodes, Seconds
from outpace.predict.rules.making import make_rule
from outpace.predict.rules.settings import CutOffSettings
from outpace.predict.rules.wrappers import History
from outpace.record.checkpoints import Part, write_tensors

_FILE: Final = "rule.safetensors"


def cut_off_rule(
    experiment: Experiment,
    settings: CutOffSettings,
    *,
    say: Callable[[str], None],
    note: Callable[[str], None] = lambda _: None,
    fitting: Fitting | None = None,
    truth: Callable[[], Seconds] | None = None,
    clock: Callable[[], float] = lambda: 0.0,
) -> Rule:
    """Return the rule that decides how long to wait in each iteration.

    The keyword arguments are those of `make_rule`. Raises ConfigError if the rule cannot be
    made or the model file does not match the run.
    """
    fitted = None if settings.file is None else load_model(Path(settings.file))
    try:
        return make_rule(
            settings,
            node=_nodes(experiment, settings.workers_per_node),
            seed=experiment.seed,
            fitted=fitted,
            fitting=fitting,
            truth=truth,
            say=say,
            note=note,
            clock=clock,
        )
    except ConfigError as error:
        if settings.file is None:
            raise
        raise ConfigError(f"{settings.file}: {error}") from error


def with_history(rule: Rule, resume: ResumePoint | None) -> History:
    """Return a rule that keeps what it observes, and has observed what a checkpoint has of it.

    What was observed with another number of workers is left out. Raises ConfigError if the
    checkpoint cannot be read.
    """
    history = History(rule)
    if resume is not None:
        try:
            observed = resume.checkpoint.tensors(_FILE)
        except OSError as error:
            raise ConfigError(f"{resume.path}: {error}") from error
        if observed and resume.checkpoint.index.workers == len(resume.first):
            history.resume(observed)
    return history


def saved_history(history: History | None, folder: Path, iterations: int) -> tuple[Part, ...]:
    """Write what a rule has observed as a part of a checkpoint; () if there is no rule.

    iterations: that the checkpoint has. Raises OSError.
    """
    if history is None:
        return ()
    return (write_tensors(folder / _FILE, history.tensors(iterations)),)


def _nodes(experiment: Experiment, per_node: int | None) -> Nodes:
    """Return the machine of each worker; by default each has its own."""
    compute = experiment.compute
    if per_node is None and isinstance(compute, Recorded):
        return compute.nodes(experiment.workers)
    if per_node is None:
        per_node = compute.workers_per_node if isinstance(compute, Regimes) else 1
    return np.arange(experiment.workers) // per_node
