"""The plan of a run, made when all processes have joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.real.collective.group import backend_for
from outpace.real.net.messages import JoinRun, Plan
from outpace.real.net.sparse_log import Log


def make_plan(
    experiment: Experiment,
    workers: Mapping[str, JoinRun],
    servers: Sequence[JoinRun],
    *,
    server_keys: list[str],
    store: str,
    log: Log,
) -> Plan:
    """Return where the servers are and what all workers train.

    Args:
        workers: what each worker said when it joined, by name, worker 0 first.
        store: host and port of the workers' store; empty with servers.

    Raises:
        ConfigError: the workers do not train the same parameters, or there are too few
            parameters for the servers.
    """
    (_, first), *others = workers.items()
    for name, join in others:
        if join.layout != first.layout or join.layers != first.layers:
            raise ConfigError(
                f"{name} trains other parameters than worker-0: "
                f"{_difference(join.layout, first.layout)}"
            )
        if join.digest != first.digest:
            log(f"{name} starts from other values than worker-0, whose values win")
    slices = experiment.slices(first.layers)
    return Plan(
        endpoints=[join.endpoint for join in servers],
        keys=server_keys,
        layers=first.layers,
        bounds=[0, *(part.stop for part in slices)],
        dtype=first.dtype,
        digest=first.digest,
        store=store,
        share=any(join.digest != first.digest for _, join in others),
        backend=backend_for([join.gpu for join in workers.values()]),
    )


def _difference(this: str, that: str) -> str:
    """Show where two layouts begin to differ."""
    place = next((n for n, (a, b) in enumerate(zip(this, that, strict=False)) if a != b), 0)
    low = max(0, place - 60)
    return f"...{this[low : place + 60]!r} where worker-0 has {that[low : place + 60]!r}"
