"""A run whose parameters count its gradients, so a test can see which gradients were applied.

The gradient of worker w in iteration i is 1 at place (w, i). A step of SGD subtracts the sum.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import torch
from tests.support.fluentps import behind_barrier, ssptable
from torch import Tensor

import outpace
from outpace.config.experiment import Experiment
from outpace.config.reading import experiment_from
from outpace.record.trace import Trace, trace_table
from outpace.simulation.composition import simulation_of
from outpace.support.repeatable import one_thread_own_randomness
from outpace.tasks import Evaluation

STRATEGIES: dict[str, dict[str, Any]] = {
    "bsp": {"sync": {"kind": "bsp"}},
    "bsp, on arrival": {"sync": {"kind": "bsp", "apply": "on-arrival"}},
    "ssp": {"sync": {"kind": "ssp", "staleness": 2}},
    "asp": {"sync": {"kind": "asp"}},
    "pssp": {"sync": {"kind": "pssp", "staleness": 1, "block_probability": 0.5}},
    "dsps": {"sync": {"kind": "dsps", "staleness": 1, "extra": 2}},
    "ssptable": {"sync": ssptable(2)},
    "global barrier": {"sync": behind_barrier()},
    "half of the servers": {
        "sync": {"kind": "asp"},
        "pull": {"quorum_percent": 50, "timeout_s": 0.01},
    },
    "skipped pulls": {
        "sync": {"kind": "ssp", "staleness": 1},
        "skip": {"pull": {"probability": 0.4, "in_a_row": 3}},
    },
    "drop-stragglers": {"sync": {"kind": "drop-stragglers", "quorum": 2}},
    "partial-push": {"sync": {"kind": "partial-push", "quorum": 2, "timeout_s": 0.03}},
    "cutoff": {"sync": {"kind": "cutoff", "model": "last-5", "decision": "count", "warmup": 3}},
}
# Each adds 1/N of a gradient up, so their counts are multiplied by N.
PEERS: dict[str, dict[str, Any]] = {
    "ssgd": {"kind": "ssgd"},
    "local-sgd": {"kind": "local-sgd", "every": 4},
    "hpsgd": {"kind": "hpsgd"},
    "hpsgd, delayed": {"kind": "hpsgd", "commit": "delayed"},
    "hpsgd, together": {"kind": "hpsgd", "start_together": True},
    "gossip": {"kind": "gossip"},
    "psgd": {"kind": "psgd"},
}
# Gradients of its own accord.
LOSES = ("drop-stragglers", "partial-push", "cutoff")


class Ledger:
    """Implements `Workload`. copies: number of consecutive parameters of each gradient."""

    has_accuracy, samples, model, layout = False, None, None, ""

    def __init__(self, workers: int, iterations: int, copies: int = 1) -> None:
        self._shape, self._copies = (workers, iterations), copies
        self.size = workers * iterations * copies
        self.layers = (self.size,)
        self._slices = [slice(0, self.size)]

    def cut(self, slices) -> None:
        self._slices = list(slices)

    def initial_parameters(self):
        return [torch.zeros(part.stop - part.start) for part in self._slices]

    def gradient(self, parameters, worker, iteration):
        gradient = torch.zeros(self._shape)
        gradient[worker, iteration] = 1.0
        flat = gradient.flatten().repeat(self._copies)
        return 1.0, [flat[part].clone() for part in self._slices]

    def evaluate(self, parameters, samples=None):
        return Evaluation(train_loss=float(sum(block.sum() for block in parameters)))

    def state_dict(self, parameters):
        return {"w": torch.cat(list(parameters))}


def experiment(
    strategy: str,
    faults: Mapping[str, Any] | None,
    *,
    seed: int = 0,
    **changes: Any,
) -> Experiment:
    chosen = STRATEGIES.get(strategy) or {"sync": PEERS[strategy], "servers": 1}
    data = {
        "task": {"kind": "quadratic", "eigenvalues": [1.0]},  # a Ledger replaces it
        "workers": 3,
        "servers": 2,
        "seed": seed,
        "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.4},
        "network": {"latency_s": 0.002, "bandwidth_bytes_per_s": 1e6},
        "stop": {"iterations": 20},
        "checkpoint": {"every_s": 0.3},
        "optimizer": {"kind": "sgd", "lr": 1.0},
        **chosen,
        **changes,
    }
    if strategy in STRATEGIES:
        sync, summed = data["sync"], {"scale": "sum"}
        if sync["kind"] == "python":
            summed = {"arguments": {**sync["arguments"], **summed}}
        data["sync"] = {**sync, **summed}
    if faults is not None:
        recovery = {"detected_s": 0.01, "worker_s": 0.1, "servers_s": 0.2}
        data["faults"] = {"recovery": recovery, **faults}
    return experiment_from(data, "the test")


class Ran:
    """A run that has ended.

    counts: for each worker and iteration, how often its gradient is in the parameters. With
        `copies`, one for each server, the counts of each.
    """

    def __init__(
        self, given: Experiment, tie_seed: int | None = None, copies: int = 1, **options: Any
    ) -> None:
        assert given.stop.iterations is not None
        shape, sink = (given.workers, given.stop.iterations), trace_table()
        workload = Ledger(*shape, copies)
        with one_thread_own_randomness():
            self.run = simulation_of(given, workload, Trace(sink), tie_seed=tie_seed, **options)
            try:
                self.run.run()
            finally:
                self.run.close()
            state = self.run.state_dict()
        counts = -state["w"].reshape(copies, *shape)
        self.counts: Tensor = counts if copies > 1 else counts[0]
        if given.peers is not None:
            self.counts = (self.counts * given.workers).round(decimals=3)
        self.recovery, self.totals = self.run.events.recovery, self.run.totals
        self.time_s = outpace.support.units.seconds(self.run.kernel.now)
        self.costs = self.run.times(0.0).get("faults", {})
        self.trace: pa.Table = sink.table()
        self.metrics = self.run.metrics.table()

    @property
    def missing(self) -> int:
        return int((self.counts == 0).sum())


def random_faults(seed: int, workers: int, servers: int, until_s: float) -> list[dict[str, Any]]:
    """Return up to 8 failures, as a configuration has them."""
    draw = random.Random(seed)
    found = []
    for _ in range(draw.choice((1, 2, 4, 8))):
        key = draw.choice(("worker", "worker", "server")) if servers else "worker"
        number = draw.randrange(workers if key == "worker" else servers)
        found.append({"at_s": round(draw.uniform(0, until_s), 3), key: number})
    return found
