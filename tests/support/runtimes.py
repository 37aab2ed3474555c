"""The configuration that the contract suites of the runtimes share, and both runtimes."""

from __future__ import annotations

import pytest

from outpace.experiment.running import run, simulate

RUNTIMES = {"virtual time": simulate, "real processes": run}


SYNCS = {
    "bsp": {"kind": "bsp"},
    "asp": {"kind": "asp"},
    "ssp": {"kind": "ssp", "staleness": 2},
    "ssp-soft": {"kind": "ssp", "staleness": 2, "buffer": "soft"},
    "ssp-on-advance": {"kind": "ssp", "staleness": 2, "apply": "on-advance"},
    "pssp": {"kind": "pssp", "staleness": 1, "block_probability": 0.5, "coin": "server"},
    "dsps": {"kind": "dsps", "staleness": 1, "extra": 2, "buffer": "soft"},
    "drop-stragglers": {"kind": "drop-stragglers", "quorum": 3},
    "partial-push": {"kind": "partial-push", "quorum": 3, "timeout_s": 0.01},
    "psp-sampling": {"kind": "psp-sampling", "sample": 2, "staleness": 1},
}


# No pull of iteration i is answered unless i < V + bound; only for policies with a hard bound.
BOUNDS = {
    "bsp": 0,
    "ssp": 2,
    "ssp-soft": 2,
    "ssp-on-advance": 2,
    "dsps": 3,
    "drop-stragglers": 0,
    "partial-push": 0,
}


WORKERS, SERVERS, ITERATIONS = 5, 3, 10


every_runtime = pytest.mark.parametrize("run", RUNTIMES.values(), ids=RUNTIMES)


def runs(syncs, for_real):
    """Return the decorator for these strategies in virtual time, and some of them for real.

    Real servers judge with the same shards, so one strategy of each kind is enough for them.
    """
    cases = [
        pytest.param(run, sync, id=f"{sync}-{name}")
        for name, run in RUNTIMES.items()
        for sync in syncs
        if run is simulate or sync in for_real
    ]
    return pytest.mark.parametrize(("run", "sync"), cases)


def config(sync: str, **changes):
    return {
        "seed": 7,
        "task": {"kind": "digits-mlp"},
        "workers": WORKERS,
        "servers": SERVERS,
        "compute": {"kind": "lognormal", "mean_s": 0.05, "cv": 0.5, "worker_cv": 0.2},
        "network": {"latency_s": 0.002, "bandwidth_bytes_per_s": 1e6},
        "sync": SYNCS[sync],
        "batch_size": 8,
        "evaluate": {"every_updates": 10},
        "stop": {"iterations": ITERATIONS},
        **changes,
    }


def rows(result, event):
    return [row for row in result.trace.to_pylist() if row["event"] == event]
