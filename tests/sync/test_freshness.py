"""The window after which steps are begun again, by hand."""

import pytest

from outpace.sync.programs.freshness import Epoch, Window, best_window

# Four workers begin at 0 and 50 ns. Workers 1, 2 and 3 push 10 ns later, worker 0 40 ns later.
BEGINS = [(worker, at) for at in (0, 50) for worker in range(4)]
PUSHES = [(1, 10), (2, 10), (3, 10), (0, 40), (1, 60), (2, 60), (3, 60), (0, 90)]


def test_the_best_window_ends_with_the_pushes_of_others_and_its_rate_is_the_expected_loss():
    """A window is at most half of a step of 50 ns.

    Worker 0 sees three pushes of others after 10 ns, the others two each, in both steps: 18 are
    gained. The others of a worker begin 6 steps in 100 ns, so 10 ns cost 0.6 in each of 8 steps.
    """
    window = best_window(BEGINS, PUSHES, workers=4, since=0, until=100)
    assert window.time_s == pytest.approx(10e-9)
    assert window.rate == pytest.approx(0.6 / 4)


def test_a_later_push_makes_the_window_longer_if_it_gains_more_than_the_delay_costs():
    """Worker 0 pushes 15 ns after its begin: 6 more are gained, and 5 ns more cost 2.4."""
    pushes = [(worker, at - 25 if worker == 0 else at) for worker, at in PUSHES]
    window = best_window(BEGINS, sorted(pushes, key=lambda push: push[1]), 4, 0, 100)
    assert window.time_s == pytest.approx(15e-9)
    assert window.rate == pytest.approx(0.9 / 4)
    # 24 ns after its begin: 6 more are gained, and 14 ns more cost 6.72.
    pushes = [(worker, at - 16 if worker == 0 else at) for worker, at in PUSHES]
    window = best_window(BEGINS, sorted(pushes, key=lambda push: push[1]), 4, 0, 100)
    assert window.time_s == pytest.approx(10e-9)


@pytest.mark.parametrize(
    ("begins", "pushes", "until"),
    [
        # All pushes come 40 ns after a begin, and a window is at most 25 ns.
        (BEGINS, [(worker, at + 40) for at in (0, 50) for worker in range(4)], 100),
        # 20 ns after its first step worker 0 has the push of worker 1: 1 is gained, and
        # 20 ns cost 0.6 * 2 in each of 8 steps.
        (BEGINS, [(1, 20), (0, 40), (2, 40), (3, 40), *((n, 90) for n in range(4))], 100),
        ([(0, 0), (0, 50)], [(0, 10), (0, 60)], 100),  # a worker that is alone
        ([], PUSHES, 100),
        (BEGINS, [], 100),
        ([(0, 0), (1, 0)], [(0, 0), (1, 0)], 0),  # no time has passed
    ],
)
def test_no_window_without_a_gain(begins, pushes, until):
    assert best_window(begins, pushes, 4, 0, until) is None


def test_steps_whose_window_has_not_ended_are_not_judged():
    """The begin at 80 ns would see 3 pushes at once, after the end of the epoch they are unknown.

    Of the begins, the one at 80 + 25 > 100 is left out of gain and loss.
    """
    window = best_window([*BEGINS, (0, 80)], PUSHES, workers=4, since=0, until=100)
    # 9 begins: the others of worker 0 begin 6, those of workers 1 to 3 begin 7.
    assert window.rate == pytest.approx(10 * (2 * 0.06 + 6 * 0.07) / 8 / 4)


def test_an_epoch_is_over_after_its_pushes_of_all_workers_that_take_part():
    epoch = Epoch(2, now=0)
    for number in range(5):
        epoch.pushed(0, number)
    assert not epoch.is_over(3)
    assert epoch.is_over(2)
    without = Epoch(2, now=0)
    without.began(1, 0)
    for number in range(4):
        without.pushed(0, number, gradient=False)
    assert without.is_over(2)
    assert without.window(2, now=10) is None


@pytest.mark.parametrize(
    ("rate", "workers", "enough"), [(0.07, 100, 7), (0.5, 5, 3), (1.0, 4, 4), (0.01, 4, 1)]
)
def test_a_rate_is_of_the_workers_and_at_least_one_push(rate, workers, enough):
    window = Window(1.0, rate)
    assert window.is_enough(enough, workers)
    assert not window.is_enough(enough - 1, workers)
