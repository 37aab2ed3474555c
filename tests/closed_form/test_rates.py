"""Rates and staleness against closed forms, over a window of virtual time.

Every tolerance is a multiple of a standard error, stated where it is used; the windows
are long enough for it to be a few percent.
"""

from __future__ import annotations

import math

import pytest

from outpace import Simulator, Worker
from outpace.experiment.running import simulate

WITHIN = 4.0  # standard errors


def run(sync, *, workers, compute, until_s, seed=1, servers=1, network=None):
    return simulate(
        {
            "seed": seed,
            "task": {"kind": "timing", "parameters": 100},
            "workers": workers,
            "servers": servers,
            "compute": compute,
            "network": network,
            "sync": sync,
            "stop": {"virtual_time_s": until_s},
        }
    ).summary


@pytest.mark.parametrize("workers", [1, 2, 8, 32])
@pytest.mark.parametrize("servers", [1, 3])
def test_bsp_with_exponential_run_times_takes_the_harmonic_number(workers, servers):
    mean_s, until_s = 0.5, 1000.0
    summary = run(
        {"kind": "bsp"},
        workers=workers,
        servers=servers,
        compute={"kind": "exponential", "mean_s": mean_s},
        until_s=until_s,
    )
    # An iteration lasts as long as the largest of N exponentials: mean H_N/μ, variance
    # the sum of 1/(kμ)². Renewal theory: so many iterations in the window.
    expected = mean_s * sum(1 / k for k in range(1, workers + 1))
    deviation = mean_s * math.sqrt(sum(1 / k**2 for k in range(1, workers + 1)))
    iterations = summary["gradients_applied"] / workers
    error = deviation / math.sqrt(iterations)
    assert until_s / iterations == pytest.approx(expected, abs=WITHIN * error + until_s / 1e6)
    assert summary["staleness"]["max"] == 0


@pytest.mark.parametrize("staleness", [0, 1, 3, 10])
def test_soft_ssp_with_two_exponential_workers_matches_its_markov_chain(staleness):
    rate, until_s = 2.0, 2000.0
    summary = run(
        {"kind": "ssp", "staleness": staleness, "buffer": "soft"},
        workers=2,
        compute={"kind": "exponential", "mean_s": 1 / rate},
        until_s=until_s,
    )
    # The lead walks on −(s+1) .. s+1, uniformly; at both ends one of the two waits.
    expected = 2 * rate * (2 * staleness + 2) / (2 * staleness + 3)
    # The count's variance is at most that of a Poisson process of the same rate.
    error = math.sqrt(expected / until_s)
    assert summary["gradients_applied"] / until_s == pytest.approx(expected, abs=WITHIN * error)


@pytest.mark.parametrize("workers", [1, 4, 16])
@pytest.mark.parametrize(
    "compute",
    [
        {"kind": "exponential", "mean_s": 1.0},
        {"kind": "lognormal", "mean_s": 1.0, "cv": 0.3},
        {"kind": "normal", "mean_s": 1.0, "cv": 0.1, "worker_cv": 0.3},
    ],
    ids=lambda law: law["kind"],
)
def test_asp_is_on_average_as_stale_as_it_has_other_workers(workers, compute):
    summary = run({"kind": "asp"}, workers=workers, compute=compute, until_s=1000.0)
    # Each update of another worker lies in exactly one of my read-to-push windows. So
    # the mean is N−1 but for the windows open at the end: at most N−1 windows of at most
    # max staleness updates.
    edge = workers * summary["staleness"]["max"] / summary["gradients_applied"]
    assert summary["staleness"]["mean"] == pytest.approx(workers - 1, abs=edge)


def test_bsp_over_a_serialised_network_takes_what_its_transfers_add_up_to():
    workers, latency_s, bandwidth, size = 6, 0.01, 1e5, 400
    summary = run(
        {"kind": "bsp"},
        workers=workers,
        compute={"kind": "constant", "mean_s": 1.0},
        network={"latency_s": latency_s, "bandwidth_bytes_per_s": bandwidth},
        until_s=100.0,
    )
    # N pushes one after another into the server, N replies one after another out of it;
    # the first answered starts a transfer earlier than the last, and so it stays: the
    # pushes queue in the order of the replies. What adds up is one worker's round trip
    # plus N−1 transfers.
    transfer_s = size / bandwidth
    round_s = 1.0 + 2 * latency_s + (workers + 1) * transfer_s
    expected = math.floor(100.0 / round_s) * workers
    assert summary["gradients_applied"] == pytest.approx(expected, abs=workers)


TRANSFER_S = 0.1  # of a server's part of a gradient, and of the parameters


def over_slow_links(sync, compute_s, factors, servers, until_s, latency_s=0.0):
    """Return the ends of workers' iterations, in s, without those after the end of the run."""
    parameters = 100 * servers
    result = simulate(
        {
            "task": {"kind": "timing", "parameters": parameters},
            "workers": len(factors),
            "servers": servers,
            "compute": {
                "kind": "constant",
                "mean_s": compute_s,
                "slow": [{"workers": [n], "factor": factor} for n, factor in enumerate(factors)],
            },
            "network": {
                "latency_s": latency_s,
                "bandwidth_bytes_per_s": 4 * parameters / servers / TRANSFER_S,
            },
            "sync": {"kind": sync},
            "stop": {"virtual_time_s": until_s},
        }
    )
    rows = (row for row in result.trace.to_pylist() if row["event"] == "iteration")
    ends = ((row["worker"], round(row["end_ns"] / 1e9, 6)) for row in rows)
    return sorted(end for end in ends if end[1] < until_s)


@pytest.mark.parametrize(
    ("compute_s", "latency_s", "rate"),
    [
        # A worker alone takes 1.2 s for computation, push and reply: four never meet for long.
        (1.0, 0.0, 4 / 1.2),
        (1.0, 0.1, 4 / 1.4),
        (0.25, 0.0, 4 / 0.45),  # 0.4 s of the server's port in each 0.45 s
        (0.1, 0.0, 10.0),  # the port is always busy
    ],
)
def test_asp_over_slow_links_is_limited_by_its_round_trip_or_by_the_servers_port(
    compute_s, latency_s, rate
):
    until_s = 50.0
    ends = over_slow_links("asp", compute_s, [1.0] * 4, 1, until_s, latency_s)
    # The first round is longer, since all begin at once; the last ones are not finished.
    assert len(ends) / until_s == pytest.approx(rate, abs=8 / until_s)


class _PaperWorker(Worker):
    def __init__(self, compute_s, servers):
        self.compute_s, self.servers, self.ends = compute_s, servers, []

    async def run(self):
        while True:
            await self.sleep(self.compute_s)
            for server in range(self.servers):
                self.send(f"server-{server}", self.name, delay=TRANSFER_S)
            for _ in range(self.servers):
                await self.recv()
            self.ends.append(round(self.now, 6))


class _PaperServer(Worker):
    def __init__(self, awaits):
        self.awaits = awaits

    async def run(self):
        workers = []
        while True:
            workers.append(await self.recv())
            if len(workers) == self.awaits:
                for worker in workers:
                    self.send(worker, delay=TRANSFER_S)
                workers = []


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("sync", ["asp", "bsp"])
@pytest.mark.parametrize("compute_s", [0.1, 0.4])
def test_iterations_end_as_in_the_papers_simulator_where_no_worker_pulls(sync, servers, compute_s):
    """Zhang et al.: a server answers a gradient with parameters, and nothing else is sent."""
    until_s, factors = 50.0, [1.0, 1.317, 1.731, 2.113]
    simulator = Simulator()
    workers = [
        simulator.add_worker(f"worker-{n}", _PaperWorker, compute_s * factor, servers)
        for n, factor in enumerate(factors)
    ]
    for server in range(servers):
        awaits = 1 if sync == "asp" else len(factors)
        simulator.add_worker(f"server-{server}", _PaperServer, awaits)
    simulator.start(until_s)
    expected = [(n, end) for n, worker in enumerate(workers) for end in worker.ends]
    ends = over_slow_links(sync, compute_s, factors, servers, until_s)
    assert ends == sorted(end for end in expected if end[1] < until_s)


@pytest.mark.parametrize(("workers", "servers", "probability"), [(16, 16, 0.005), (1, 4, 0.1)])
def test_bsp_pays_for_a_late_reply_whenever_one_of_all_is_late(workers, servers, probability):
    # An iteration takes 1 s, and 4 s more if any of the N·M replies is late.
    chance = 1 - (1 - probability) ** (workers * servers)
    iterations = 400
    summary = simulate(
        {
            "task": {"kind": "timing", "parameters": 100},
            "workers": workers,
            "servers": servers,
            "compute": {"kind": "constant", "mean_s": 1.0},
            "network": {
                "delays": [{"message": "reply", "probability": probability, "seconds": 4.0}]
            },
            "sync": {"kind": "bsp"},
            "stop": {"iterations": iterations},
        }
    ).summary
    error = 4 * math.sqrt(chance * (1 - chance) / iterations)
    mean = summary["virtual_time_s"] / iterations
    assert mean == pytest.approx(1 + 4 * chance, abs=WITHIN * error)
