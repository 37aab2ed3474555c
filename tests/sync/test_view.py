"""The progress that a policy sees, compared with a count of all workers after any events."""

from __future__ import annotations

import random

import pytest

from outpace.sync.bookkeeping.view import View

WORKERS = 4


@pytest.mark.parametrize("seed", range(30))
def test_counts_and_extremes_are_those_of_the_live_workers(seed):
    chance, view = random.Random(seed), View(0, WORKERS)
    marks, gone, paused = [-1] * WORKERS, set(), set()
    out: set[int] = set()  # paused, and counted out since
    for now in range(1, 60):
        worker = chance.randrange(WORKERS)
        act = chance.choice(["push", "push", "push", "leave", "pause", "rejoin"])
        if act == "push" and worker not in gone | paused:
            marks[worker] += chance.randint(1, 2)
            view.push(worker, marks[worker], now)
            assert view.last_push(worker) == view.step_time(worker) == now
        elif act == "leave" and worker not in gone and len(gone) < WORKERS - 1:
            view.leave(worker)
            gone.add(worker)
            paused.discard(worker)
            out.discard(worker)
        elif act == "pause" and worker not in gone | paused:
            view.pause(worker)
            paused.add(worker)
            out |= {worker} if marks[worker] < view.clock else set()
        elif act == "rejoin" and worker in gone | paused:
            view.rejoin(worker, 0, now)
            if worker in gone:
                marks[worker] = max(marks[worker], view.clock - 1)
            for group in (gone, paused, out):
                group.discard(worker)
        if chance.random() < 0.5 and view.clock <= max(marks):
            left_out = view.advance()
            assert set(left_out) == {n for n in paused - out if marks[n] < view.clock}
            out.update(left_out)
        live = [marks[n] for n in range(WORKERS) if n not in gone | out]
        assert [view.progress(n) for n in range(WORKERS)] == marks
        assert (view.live, view.members) == (len(live), WORKERS - len(gone))
        assert view.fastest == max(marks)
        assert view.reached == view.count(view.clock) == sum(m >= view.clock for m in live)
        if live:
            assert view.slowest == min(live)
        if any(mark < view.clock for mark in live):
            laggard = view.laggard()
            assert view.is_live(laggard)
            assert marks[laggard] < view.clock
