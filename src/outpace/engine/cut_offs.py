"""The cut-off rule of a run, the same in every runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from outpace.cluster.observed import Recorded
from outpace.cluster.regimes import Regimes
from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.predict.interface import Rule
from outpace.predict.models import Fitting
from outpace.predict.models import load as load_model
from outpace.predict.recorded import Nodes, Seconds
from outpace.predict.rules.making import make_rule
from outpace.predict.rules.settings import CutOffSettings


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

    The keyword arguments are passed to `make_rule`. Raises ConfigError if the rule cannot be made
    or the model file does not match the run.
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


def _nodes(experiment: Experiment, per_node: int | None) -> Nodes:
    """Return the machine of each worker; by default each worker has its own."""
    compute = experiment.compute
    if per_node is None and isinstance(compute, Recorded):
        return compute.nodes(experiment.workers)
    if per_node is None:
        per_node = compute.workers_per_node if isinstance(compute, Regimes) else 1
    return np.arange(experiment.workers) // per_node
