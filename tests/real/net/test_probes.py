"""The probe before a run: its plan within a budget, and a server that gets too many requests."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from tests.real.net.test_hostile import Cluster

from outpace.real.net.messages import Refused
from outpace.real.net.probes import ROUNDS, SIZES, Probe, ProbeTurn
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
    # Beyond the budget by at most the first two sizes of one server, whose duration cannot be known
    # in advance.
    assert total <= budget + duration_of(SIZES[0]) + duration_of(SIZES[1])


def test_two_sizes_are_sent_even_if_the_first_exchange_was_held_up():
    found, _ = exchanges(ProbeTurn(0, 2, 100 * MS), lambda size: 150 * MS)
    assert found == [(0, SIZES[0]), (0, SIZES[1])]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with contextlib.closing(Cluster(begun=False)) as found:
        yield found


def probe(cluster: Cluster, worker: int, size: int) -> None:
    cluster.honest[worker].send(Probe(0, 0, torch.zeros(size, dtype=torch.uint8)))


def require_answers(cluster: Cluster, worker: int, size: int) -> None:
    got = cluster.honest[worker].got
    before = len(got)
    probe(cluster, worker, size)
    cluster.post.until(lambda: len(got) > before)
    assert isinstance(got[-1], Probe)
    assert got[-1].block.nbytes == size


def require_refused(cluster: Cluster, worker: int) -> None:
    got = cluster.honest[worker].got
    cluster.post.until(lambda: any(isinstance(message, Refused) for message in got))


def test_a_server_answers_probes_of_the_known_sizes_only(cluster):
    for size in SIZES:
        require_answers(cluster, 0, size)
    require_answers(cluster, 1, SIZES[0])
    probe(cluster, 1, SIZES[0] + 1)
    require_refused(cluster, 1)
    require_answers(cluster, 0, SIZES[0])  # the other worker is not disturbed
    assert cluster.server.shard.version == cluster.server.shard.clock == 0


def test_a_server_answers_only_so_many_probes_of_a_worker(cluster):
    for _ in range(sum(ROUNDS)):
        require_answers(cluster, 1, SIZES[0])
    probe(cluster, 1, SIZES[0])
    require_refused(cluster, 1)
    require_answers(cluster, 0, SIZES[0])


def test_a_server_answers_no_probe_once_the_run_has_begun(cluster):
    cluster.begin()
    for worker in (0, 1):
        cluster.honest[worker].send(Pull(worker, 0))
    cluster.post.until(lambda: all(worker.got for worker in cluster.honest))  # it has begun
    probe(cluster, 1, SIZES[0])
    require_refused(cluster, 1)
    assert not any(isinstance(message, Refused) for message in cluster.honest[0].got)
