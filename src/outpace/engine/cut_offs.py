"""The cut-off rule of a run, the same in every runtime."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from outpace.cluster.observed import Recorded
from outpace.cluster.regimes import Regimes
from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.predict.interface import Rule
from outpace.predict.models import Fitting
from outpace.predict.models import load as load_model
from outpace.predict.recorded.table import Nodes, Seconds
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

    The keyword arguments are those of `make_rule`. Raises ConfigError if the rule cannot be
    made or the model file does not match the run.
    """
    make = partial(
        make_rule,
        settings,
        node=_nodes(experiment, settings.workers_per_node),
        seed=experiment.seed,
        fitting=fitting,
        truth=truth,
        say=say,
        note=note,
        clock=clock,
    )
    if settings.file is None:
        return make()
    fitted = load_model(Path(settings.file))
    try:
        return make(fitted=fitted)
    except ConfigError as error:
        raise ConfigError(f"{settings.file}: {error}") from error


def _nodes(experiment: Experiment, per_node: int | None) -> Nodes:
    """Return the machine of each worker; by default each has its own."""
    compute = experiment.compute
    if per_node is None and isinstance(compute, Recorded):
        recorded = compute.nodes(experiment.workers)
        if recorded is not None:
            return recorded
    if per_node is None:
        per_node = compute.workers_per_node if isinstance(compute, Regimes) else 1
    return np.arange(experiment.workers) // per_node
