"""The probe before a run: its plan within a budget, and a server that is asked for too much."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from tests.real.net.test_hostile import Post

from outpace.config.reading import experiment_from
from outpace.real.net.messages import Go, Initialize, JoinRun, Plan, Ready, Refused
from outpace.real.net.probes import ROUNDS, SIZES, Probe, ProbeTurn
from outpace.real.node.member import CoordinatorLink
from outpace.real.node.server import Server
from outpace.sync.messages import Pull

MS = 1_000_000


def exchanges(turn, duration_of):
    """The exchanges of a turn, and how long they take together (ns)."""
    found, total = [], 0
    for server, size in turn.exchanges():
        found.append((server, size))
        total += duration_of(size)
        turn.took(duration_of(size))
    return found, total


def test_a_fast_network_is_probed_with_all_sizes_between_all_pairs():
    found, _ = exchanges(ProbeTurn(1, 2, 500 * MS), lambda size: MS)
    per_server = dict(zip(SIZES, ROUNDS, strict=True))
    assert Counter(found) == {(m, n): per_server[n] for m in (0, 1) for n in SIZES}
    assert found[0] == (1, SIZES[0])  # worker 1 begins with server 1


@pytest.mark.parametrize("latency_ms", [0.1, 5, 40])
@pytest.mark.parametrize("bytes_per_s", [1e5, 1e7, 1e9])
@pytest.mark.parametrize("servers", [1, 2, 30])
def test_a_slow_network_takes_no_longer_than_the_budget(latency_ms, bytes_per_s, servers):
    def duration_of(size):
        return round(2 * latency_ms * MS + 2 * size / bytes_per_s * 1e9)

    budget = 250 * MS
    found, total = exchanges(ProbeTurn(0, servers, budget), duration_of)
    assert found[0] == (0, SIZES[0])
    # Beyond the budget by at most the first two sizes of one server, which nothing could foretell.
    assert total <= budget + duration_of(SIZES[0]) + duration_of(SIZES[1])


def test_two_sizes_are_sent_even_if_the_first_exchange_was_held_up():
    found, _ = exchanges(ProbeTurn(0, 2, 100 * MS), lambda size: 150 * MS)
    assert found == [(0, SIZES[0]), (0, SIZES[1])]


class Probed:
    """A server in this process, before the run begins, and two workers."""

    def __init__(self) -> None:
        config = {"workers": 2, "servers": 1, "sync": {"kind": "asp"}, "stop": {"iterations": 9}}
        task = {"kind": "quadratic", "eigenvalues": [1.0] * 4}
        self.post = post = Post("coordinator", ["server-0", "worker-0", "worker-1"])
        link = CoordinatorLink(
            "server-0",
            post.listener.endpoint,
            post.public("coordinator"),
            post.session("server-0"),
        )
        keys = {name: post.public(name) for name in ("worker-0", "worker-1")}
        self.server = Server(link, 0, experiment_from({**config, "task": task}, "the test"), keys)
        self.server.spawn(self.server.serve())
        step = post.step

        def step_both() -> None:
            step()
            self.server.kernel.run(until=self.server.clock.now + MS)

        post.step = step_both
        post.until(lambda: any(isinstance(message, JoinRun) for _, message in post.got))
        endpoint, key = self.server.listener.endpoint, post.public("server-0")
        self.workers = [
            post.call(name, endpoint=endpoint, key=key) for name in ("worker-0", "worker-1")
        ]
        block = torch.zeros(4, dtype=torch.float64)
        post.listener.send("server-0", Plan([endpoint], [key], [4], [0, 4], "float64", ""))
        self.heard(1)
        self.workers[0].send(Initialize("", [], [], block))
        self.heard(2)

    def heard(self, ready: int) -> None:
        self.post.until(lambda: self.post.got.count(("server-0", Ready())) == ready)

    def probe(self, worker: int, number: int, size: int) -> None:
        block = torch.zeros(size, dtype=torch.uint8)
        self.workers[worker].send(Probe(0, number, block))

    def require_answers(self, worker: int, size: int) -> None:
        got = self.workers[worker].got
        before = len(got)
        self.probe(worker, 0, size)
        self.post.until(lambda: len(got) > before)
        assert isinstance(got[-1], Probe)
        assert got[-1].block.nbytes == size

    def require_refused(self, worker: int) -> None:
        got = self.workers[worker].got
        self.post.until(lambda: any(isinstance(message, Refused) for message in got))

    def close(self) -> None:
        self.post.close()
        self.server.close()


@pytest.fixture
def probed():
    found = Probed()
    yield found
    found.close()


def test_a_server_answers_probes_of_the_known_sizes_only(probed):
    for size in SIZES:
        probed.require_answers(0, size)
    probed.require_answers(1, SIZES[0])
    probed.probe(1, 0, SIZES[0] + 1)
    probed.require_refused(1)
    probed.require_answers(0, SIZES[0])  # the other worker is not disturbed
    assert probed.server.shard.version == probed.server.shard.clock == 0


def test_a_server_answers_only_so_many_probes_of_a_worker(probed):
    for _ in range(sum(ROUNDS)):
        probed.require_answers(1, SIZES[0])
    probed.probe(1, 0, SIZES[0])
    probed.require_refused(1)
    probed.require_answers(0, SIZES[0])


def test_a_server_answers_no_probe_once_the_run_has_begun(probed):
    probed.post.listener.send("server-0", Go(0, "another machine"))
    for worker in (0, 1):
        probed.workers[worker].send(Pull(worker, 0))
    probed.post.until(lambda: all(worker.got for worker in probed.workers))  # it has begun
    probed.probe(1, 0, SIZES[0])
    probed.require_refused(1)
    assert not any(isinstance(message, Refused) for message in probed.workers[0].got)
