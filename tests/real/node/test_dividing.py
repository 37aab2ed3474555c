"""A script in a run whose workers change has the number of workers that its iteration has.

That is also so in iterations that it computes again, in the place of a lost worker or as a new one.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import outpace
from outpace.real.net.clock import RealClock
from outpace.real.node.script.attach import Attached
from outpace.real.node.script.keeping import Keeping
from outpace.record.checkpoints.tensors import to_bytes
from outpace.record.checkpoints.trees import packed_tree
from outpace.support.data_places import DataPlaces
from outpace.support.place import HERE


@pytest.fixture
def new_process(monkeypatch):
    """Return a function that makes the script of a new process, which knows of three workers."""
    monkeypatch.setattr(HERE, "workers", 3)
    monkeypatch.setattr(HERE, "data", DataPlaces())
    return Script


class Script:
    """A script and its worker, without a run around it.

    Args:
        begins: the first iteration that the servers do not have of this worker.
        kept: the iteration of the state with which the script goes on, if it goes on with one.
        joins: True if this is the state of worker 0.
    """

    def __init__(self, worker: int, begins: int, kept: int | None = None, *, joins: bool = False):
        trainer: Any = SimpleNamespace(
            script=SimpleNamespace(
                optimizer=SimpleNamespace(state={}),
                await_gpus=lambda: None,
                require_as_begun=lambda iteration: None,
            ),
            iteration=begins,
            take_gradient=lambda: None,
        )

        def next_iteration(gradient: None) -> None:
            trainer.iteration += 1

        nothing = lambda *_: None  # noqa: E731
        process: Any = SimpleNamespace(
            worker=worker,
            name=f"worker-{worker}",
            now=0,
            clock=RealClock(),
            first_iteration=begins,
            redivided=None,
            kept=None,
            stopped=None,
            not_computing=nothing,
            spawn=nothing,
            kernel=SimpleNamespace(run=nothing, catch_up=nothing, stop=nothing),
            program=SimpleNamespace(done=False, notify=next_iteration),
        )
        if kept is not None:
            message = SimpleNamespace(done=begins, logs=False, joins=joins)
            process.kept = to_bytes(packed_tree({"iteration": kept})), message
        state: Any = SimpleNamespace(
            is_complete=True,
            restore=lambda tree, joins=False: HERE.data.restore([], nothing, joins=joins),
        )
        work: Any = None
        self.attached = Attached(process, trainer, work)
        self.attached.keeping = Keeping(process, state, lambda: False, reports=False)
        self.first = begins if kept is None else kept

    def seen(self, iterations: int) -> dict[int, tuple[int, bool]]:
        """Compute so many iterations.

        Returns, by iteration, the number of workers, and whether an epoch that begins there is read
        beside the workers that were there before.
        """
        found = {}
        self.attached.start()
        for iteration in range(self.first, self.first + iterations):
            found[iteration] = outpace.world_size(), HERE.data.is_joining
            self.attached.step()
        return found


def test_iterations_that_are_repeated_have_as_many_workers_as_before(new_process):
    script = new_process(worker=0, begins=8, kept=4)
    for first, workers in ((0, 2), (5, 3)):
        script.attached.divide_data(first, workers)
    # Worker 2 has joined at iteration 5: epochs that begin later are divided by 3.
    assert script.seen(7) == {
        4: (2, False),
        5: (2, False),
        6: (3, False),
        7: (3, False),
        8: (3, False),
        9: (3, False),
        10: (3, False),
    }


def test_a_change_that_is_told_while_iterations_are_repeated_holds_from_its_iteration_on(
    new_process,
):
    script = new_process(worker=0, begins=3, kept=1)
    script.attached.divide_data(0, 3)
    script.attached.divide_data(4, 2)  # worker 2 leaves
    assert script.seen(5) == {n: (3 if n < 4 else 2, False) for n in range(1, 6)}


def test_a_worker_that_joins_reads_beside_the_others_as_long_as_these_read_without_it(new_process):
    script = new_process(worker=2, begins=8, kept=6, joins=True)
    for first, workers in ((0, 2), (9, 3)):  # another worker has joined with it, at iteration 9
        script.attached.divide_data(first, workers)
    assert script.seen(6) == {n: (3, n <= 9) for n in range(6, 12)}


def test_a_new_process_of_a_worker_that_has_joined_reads_beside_the_others_until_it_had(
    new_process,
):
    script = new_process(worker=2, begins=8, kept=4, joins=True)
    for first, workers in ((0, 2), (5, 3)):
        script.attached.divide_data(first, workers)
    assert script.seen(6) == {n: (3, n <= 5) for n in range(4, 10)}


def test_a_worker_that_has_left_and_joins_again_reads_beside_the_others(new_process):
    script = new_process(worker=2, begins=12, kept=11, joins=True)
    for first, workers in ((0, 3), (5, 2), (12, 3)):
        script.attached.divide_data(first, workers)
    assert script.seen(3) == {11: (3, True), 12: (3, True), 13: (3, False)}
