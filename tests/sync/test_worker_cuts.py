"""Checkpoints of workers without servers: when a state is taken, and how long it is requested."""

from __future__ import annotations

from outpace.sync.checkpoint.cuts import WorkerCuts


class Asked:
    """One worker, and the results of its requests."""

    def __init__(self):
        self.saved, self.missed = [], []
        self.cuts = WorkerCuts(self.saved.append, lambda *missed: self.missed.append(missed))


def test_a_worker_is_saved_when_it_has_the_results_that_were_asked_for():
    asked = Asked()
    asked.cuts.ask(1, 2)
    asked.cuts.pass_by(1)
    assert asked.saved == []
    asked.cuts.pass_by(2)
    asked.cuts.pass_by(3)
    assert (asked.saved, asked.missed) == ([1], [])


def test_a_worker_that_has_gone_on_with_these_results_has_missed_them():
    asked = Asked()
    asked.cuts.pass_by(4)
    asked.cuts.ask(1, 4)  # it has joined the next all-reduce in the meantime
    asked.cuts.ask(2, 3)
    assert (asked.saved, asked.missed) == ([], [(1, 4), (2, 4)])
    asked.cuts.ask(3, 6)
    asked.cuts.pass_by(7)
    assert asked.missed[2:] == [(3, 7)]


def test_before_its_first_iteration_a_worker_is_saved_at_once():
    asked = Asked()
    asked.cuts.ask(1, 0)
    assert asked.saved == [1]
    asked.cuts.pass_by(0)  # HPSGD: it has accumulated a gradient, and no result
    asked.cuts.ask(2, 0)
    assert asked.missed == [(2, 0)]
    asked.cuts.ask(3, None)
    assert asked.saved == [1, 3]


def test_a_request_that_is_given_up_is_forgotten():
    asked = Asked()
    asked.cuts.ask(1, 2)
    asked.cuts.give_up(1)
    asked.cuts.give_up(1)
    asked.cuts.pass_by(2)
    assert (asked.saved, asked.missed) == ([], [])


def test_a_script_with_servers_is_saved_at_the_iteration_asked_for_or_the_first_one_after_it():
    saved, missed = [], []
    cuts = WorkerCuts(saved.append, lambda *which: missed.append(which), or_later=True)
    cuts.ask(1, 0)
    assert saved == []  # it begins no iteration
    cuts.pass_over(4)  # by the previous process
    assert missed == [(1, 4)]
    cuts.ask(2, 5)
    cuts.pass_by(5)
    assert saved == [2]
    cuts.ask(3, 6)
    cuts.pass_by(8)
    cuts.ask(4, 8)
    assert (saved, missed) == ([2, 3], [(1, 4), (4, 8)])
