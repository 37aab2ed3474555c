"""Which steps are begun again, and when they end, by hand.

Worker 0 needs 3.3 s for a gradient, workers 1 and 2 need 1 s, which is less than the window.
"""

from __future__ import annotations

import pytest

from outpace.experiment.running import simulate

SLOW = [{"workers": [0], "factor": 3.3}]
MS = 10**6


def outcome(sync, latency_s=0.0, end_s=14.0, **changes):
    return simulate(
        {
            "task": {"kind": "quadratic", "eigenvalues": [1.0, 0.5], "noise": 0.0},
            "workers": 3,
            "servers": 2,
            "compute": {"kind": "constant", "mean_s": 1.0, "slow": SLOW},
            "network": {"latency_s": latency_s},
            "sync": {"kind": "specsync", **sync},
            "optimizer": {"lr": 0.01},
            "stop": {"virtual_time_s": end_s},
            **changes,
        }
    )


def times(result, event, worker=0):
    """Return (iteration, start, computed, end) in ms."""
    return [
        (row["iteration"], *(row[f"{key}_ns"] // MS for key in ("start", "computed", "end")))
        for row in result.trace.to_pylist()
        if row["event"] == event and row["worker"] == worker
    ]


@pytest.mark.parametrize("rate", [1.0, 4 / 3])
def test_a_step_is_begun_again_at_the_end_of_its_window_if_enough_others_have_pushed(rate):
    """In the 2.5 s after 3.3 s, and after 9.1 s, there are two pushes of workers 1 and 2 each."""
    result = outcome({"abort_time_s": 2.5, "abort_rate": rate})
    assert times(result, "resync") == [(1, 3300, 5800, 5800), (2, 9100, 11600, 11600)]
    assert times(result, "iteration") == [(0, 0, 3300, 3300), (1, 5800, 9100, 9100)]
    for worker in (1, 2):  # they push before their windows end
        assert times(result, "resync", worker) == []
        assert times(result, "iteration", worker)[-1] == (13, 13000, 14000, 14000)
    pushes = [row["clock"] for row in result.trace.to_pylist() if row["event"] == "resync"]
    assert pushes == [4, 4]
    summary = result.summary
    assert summary["iterations"] == [2, 14, 14]
    assert summary["gradients_applied"] == 30
    assert summary["resyncs"] == {
        "count": 2,
        "mean_pushes": 4.0,
        "abandoned_s": pytest.approx(5.0 / 3),
        "pulling_s": 0.0,
    }
    assert summary["seconds"]["compute"] == pytest.approx((3.3 * 2 + 14 + 14) / 3)


def test_no_step_is_begun_again_if_too_few_others_have_pushed():
    """In the 2.5 s after 3.3, 6.6 and 9.9 s they push 4, 6 and 6 times; 6.3 would be enough."""
    result = outcome({"abort_time_s": 2.5, "abort_rate": 2.1})
    assert times(result, "resync") == []
    assert times(result, "iteration") == [
        (0, 0, 3300, 3300),
        (1, 3300, 6600, 6600),
        (2, 6600, 9900, 9900),
        (3, 9900, 13200, 13200),
    ]
    assert "resyncs" not in result.summary


def test_its_gradient_is_computed_from_the_parameters_that_it_has_pulled_again():
    """It is read at 5.8 s, and applied at 9.1 s: workers 1 and 2 push at 6, 7, 8 and 9 s."""
    result = outcome({"abort_time_s": 2.5, "abort_rate": 1.0})
    settled = [
        (row["staleness"], row["version"])
        for row in result.trace.to_pylist()
        if row["event"] == "push" and row["worker"] == 0 and row["iteration"] == 1
    ]
    assert settled == [(8, 11), (8, 11)]  # by 5.8 s five pushes each, and its own


def test_with_a_network_the_messages_of_worker_and_scheduler_take_time():
    """0.1 s each: its push arrives at 3.4 s and the answer at 3.5 s, when it begins.

    The scheduler knows at 3.6 s, and its window ends at 6.1 s. The others take 1.2 s for a step, so
    that their pushes are known at 4.7 and 5.9 s. Worker 0 stops at 6.2 s and begins again at 6.4 s.
    """
    result = outcome({"abort_time_s": 2.5, "abort_rate": 1.0}, latency_s=0.1, end_s=10.0)
    assert times(result, "resync") == [(1, 3500, 6200, 6400)]
    assert times(result, "iteration") == [(0, 0, 3300, 3500), (1, 6400, 9700, 9900)]
    assert result.summary["resyncs"]["pulling_s"] == pytest.approx(0.2 / 3)


def test_with_ssp_a_window_begins_when_a_held_pull_is_answered():
    """With s = 1 worker 1 waits, after its iteration 1 at 2 s, until worker 0 has pushed at 3.3 s.

    Worker 0 begins then, too. Until 5.8 s workers 1 and 2 have pushed iteration 2, at 4.3 s.
    """
    sync = {"base": "ssp", "staleness": 1, "buffer": "soft", "abort_time_s": 2.5}
    result = outcome({**sync, "abort_rate": 2 / 3}, end_s=9.5)
    assert times(result, "iteration", 1)[:2] == [(0, 0, 1000, 1000), (1, 1000, 2000, 3300)]
    assert times(result, "resync") == [(1, 3300, 5800, 5800)]
    assert times(result, "iteration")[1] == (1, 5800, 9100, 9100)


def test_chosen_windows_are_those_of_the_last_epoch():
    """Workers 0 and 1 of two begin together every second, and worker 1 pushes after 0.3 s.

    An epoch has two pushes. No window can be chosen but 0.3 s: then worker 0 has what worker 1 has
    pushed.
    """
    slow = [{"workers": [1], "factor": 0.3}]
    compute = {"kind": "constant", "mean_s": 1.0, "slow": slow}
    sync = {"base": "ssp", "staleness": 0, "epoch_pushes": 1}
    result = outcome(sync, workers=2, compute=compute, end_s=3.0)
    assert times(result, "resync") == [(2, 2000, 2300, 2300)]
