"""The samples of a task are dealt out to another number of workers from an iteration on."""

from __future__ import annotations

from outpace.tasks.samples import Sampler


def dealt(sampler: Sampler, since: int, until: int, workers: int) -> list[int]:
    return [
        index
        for iteration in range(since, until)
        for worker in range(workers)
        for index in sampler.indices(worker, iteration).tolist()
    ]


def test_each_sample_of_an_epoch_is_dealt_out_once_whatever_the_number_of_workers():
    sampler = Sampler(samples=20, workers=2, batch_size=1, seed=3)
    sampler.divide(3, 4)
    sampler.divide(5, 1)
    first = dealt(sampler, 0, 3, 2) + dealt(sampler, 3, 5, 4) + dealt(sampler, 5, 11, 1)
    assert sorted(first) == list(range(20))  # 6 + 8 + 6


def test_the_iteration_of_the_change_is_the_same_for_the_workers_that_were_there():
    before, after = (Sampler(samples=50, workers=2, batch_size=5, seed=1) for _ in "ab")
    after.divide(7, 3)
    assert dealt(before, 0, 8, 2) == dealt(after, 0, 8, 2)
    assert dealt(before, 8, 9, 2) != dealt(after, 8, 9, 2)


def test_a_process_that_begins_later_learns_of_all_divisions():
    there, joins = (
        Sampler(samples=50, workers=workers, batch_size=1, seed=1) for workers in (2, 3)
    )
    there.divide(7, 3)
    for first, workers in ((0, 2), (7, 3)):
        joins.divide(first, workers)
    assert dealt(there, 0, 12, 2) == dealt(joins, 0, 12, 2)


def test_a_later_division_that_begins_earlier_takes_the_place_of_those_behind_it():
    one, other = (Sampler(samples=50, workers=2, batch_size=1, seed=1) for _ in "ab")
    one.divide(9, 5)
    one.divide(7, 3)
    other.divide(7, 3)
    assert dealt(one, 0, 12, 3) == dealt(other, 0, 12, 3)
