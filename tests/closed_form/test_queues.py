"""Throughput with service times of servers, against queueing theory."""

from __future__ import annotations

import math

import pytest

from outpace.experiment.running import simulate

WITHIN = 4.0  # standard errors


def simulated(**changes):
    return simulate(
        {
            "seed": 3,
            "task": {"kind": "timing", "parameters": 100},
            "workers": 4,
            "compute": {"kind": "constant", "mean_s": 1.0},
            "sync": {"kind": "asp"},
            **changes,
        }
    )


def rows(result, event):
    return [row for row in result.trace.to_pylist() if row["event"] == event]


def throughput(workers: int, think_s: float, serve_s: float) -> float:
    """Throughput of a closed network: a delay and a FIFO queue, by exact mean-value analysis.

    Reiser and Lavenberg, JACM 27(2), 1980: a customer that arrives finds
    the queue of a network with one customer less.
    """
    queue = rate = 0.0
    for customers in range(1, workers + 1):
        response_s = serve_s * (1 + queue)
        rate = customers / (think_s + response_s)
        queue = rate * response_s
    return rate


@pytest.mark.parametrize("key", ["push_time", "pull_time"])
@pytest.mark.parametrize("workers", [1, 4, 16])
def test_throughput_is_that_of_mean_value_analysis(workers, key):
    think_s, serve_s, until_s = 1.0, 0.2, 4000.0
    result = simulated(
        workers=workers,
        compute={"kind": "exponential", "mean_s": think_s},
        stop={"virtual_time_s": until_s},
        **{key: {"kind": "exponential", "mean_s": serve_s}},
    )
    finished = sum(row["end_ns"] <= until_s * 1e9 for row in rows(result, "iteration"))
    expected = throughput(workers, think_s, serve_s)
    # The variance of the count is at most that of a Poisson process of this rate.
    error = math.sqrt(expected * until_s) / until_s
    assert finished / until_s == pytest.approx(expected, abs=WITHIN * error)


@pytest.mark.parametrize(
    ("size_bytes", "push_s", "pull_s", "update_s"),
    [(200, 0.12, 0.05, 0.2), (800, 0.06, 0.015, 0.05), (400, 0.1, 0.03, 0.1)],
)
def test_service_times_grow_with_the_size_of_a_server(size_bytes, push_s, pull_s, update_s):
    # The server has 400 bytes. Compared with times for 200 bytes, messages take 200 · 0.1 ms
    # longer. An update would be 200 · 1 ms longer, but then less than 0 without any bytes: it
    # doubles. Compared with times for 800 bytes, a push takes 400 · 0.1 ms less, and the time of a
    # pull halves.
    result = simulated(
        workers=1,
        push_time={"kind": "constant", "mean_s": 0.1},
        pull_time={"kind": "constant", "mean_s": 0.03},
        update_time={"kind": "constant", "mean_s": 0.1},
        service_size={
            "size_bytes": size_bytes, "message_s_per_byte": 1e-4, "update_s_per_byte": 1e-3
        },
        stop={"iterations": 10},
    )  # fmt: skip
    expected = 10 * (1 + push_s + pull_s + update_s)
    assert result.summary["virtual_time_s"] == pytest.approx(expected)


def test_an_update_comes_before_its_answers_and_a_pull_that_is_judged_costs_its_time_once():
    # All arrive at 1 s. Four pushes of 0.1 s, three pulls judged in 0.01 s between them, and the
    # update, 0.2 s: 1.63 s. Three answers of 0.05 s: 1.78 s. The last pull is judged and answered.
    result = simulated(
        sync={"kind": "bsp"},
        push_time={"kind": "constant", "mean_s": 0.1},
        update_time={"kind": "constant", "mean_s": 0.2},
        judge_time={"kind": "constant", "mean_s": 0.01},
        pull_time={"kind": "constant", "mean_s": 0.05},
        stop={"iterations": 1},
    )
    ends = sorted(row["end_ns"] / 1e9 for row in rows(result, "iteration"))
    assert ends == pytest.approx([1.68, 1.73, 1.78, 1.84])


def test_pushes_and_pulls_wait_for_each_other_in_the_order_of_arrival():
    # Four workers at once: push (0.1 s) and pull (0.05 s) of each worker follow those of the
    # previous one.
    result = simulated(
        push_time={"kind": "constant", "mean_s": 0.1},
        pull_time={"kind": "constant", "mean_s": 0.05},
        stop={"iterations": 1},
    )
    ends = sorted(row["end_ns"] for row in rows(result, "iteration"))
    assert ends == [round((1 + 0.15 * place) * 1e9) for place in range(1, 5)]
