"""The rules of adaptive strategies, on run times that are given by hand."""

from __future__ import annotations

import pytest

from outpace.sync import Adaptive, AdaptivePeriod, Asp, Bsp, DropStragglers, Scale, Ssp
from outpace.sync.adaptive.adacomm import AdaComm, Averaged
from outpace.sync.adaptive.interface import Family, Observation, Setting
from outpace.sync.adaptive.progress import Progress
from outpace.sync.adaptive.sync_switch import SyncSwitch
from outpace.sync.decision import Reason


def told(rule, *rounds):
    """Tell a rule of iterations, each with the times of all workers; return the orders."""
    orders = []
    for iteration, times in enumerate(rounds):
        for worker, busy_s in enumerate(times):
            order = rule.observe(Observation(float(iteration), worker, iteration, busy_s))
            orders += [] if order is None else [(iteration, order)]
    return orders


def progress(workers, window=5, gain_percent=5.0, noise_scale=1.0, stale=False):
    return Progress(workers, window, gain_percent, noise_scale, stale=stale)


def test_sync_switch_orders_asp_when_the_synchronous_iterations_are_done():
    rule = SyncSwitch(after=3)
    orders = told(rule, *[(1.0, 1.0)] * 6)
    assert [iteration for iteration, _ in orders] == [2]
    assert orders[0][1].to == Setting(Family.BOUND, None)
    assert orders[0][1].reason is Reason.SHARE_DONE
    assert rule.setting == orders[0][1].to


def test_workers_that_are_alike_stay_synchronous():
    rule = progress(4)
    assert told(rule, *[(1.0, 1.0, 1.0, 1.0)] * 30) == []
    assert rule.setting == Setting(Family.QUORUM, 4)


def test_progress_of_a_quorum_is_the_worth_of_its_gradients_over_its_duration():
    rule = progress(4, noise_scale=0.5)  # B is 2 gradients: k of them are worth 2k / (k + 2)
    told(rule, *[(1.0, 2.0, 3.0, 10.0)] * 3)
    costs = {setting.value: found[-1] for setting, found in rule.predicted().items()}
    assert costs == pytest.approx({1: 1 / (2 / 3), 2: 2 / 1.0, 3: 3 / 1.2, 4: 10 / (4 / 3)})


def test_the_noise_scale_is_that_of_the_last_iterations():
    rule = progress(2, window=3, noise_scale=None)
    assert rule.noise == 2  # nothing is measured: N
    noise = signal = 0.0
    for iteration in range(100):
        noise, signal = noise + 6.0, signal + (1.0 if iteration < 50 else 2.0)
        for worker in range(2):
            rule.observe(Observation(float(iteration), worker, iteration, 1.0, noise, signal))
        if iteration == 49:
            assert rule.noise == pytest.approx(6.0)
    assert rule.noise == pytest.approx(3.0, rel=0.02)


@pytest.mark.parametrize(("noise", "signal", "found"), [(1.0, -1.0, 400), (-1.0, 5.0, 1)])
def test_a_noise_scale_that_cannot_be_is_limited(noise, signal, found):
    rule = progress(4, noise_scale=None)
    for iteration in range(5):
        for worker in range(4):
            sums = noise * iteration, signal * iteration
            rule.observe(Observation(float(iteration), worker, iteration, 1.0, *sums))
    assert rule.noise == found


def test_asp_is_worth_the_rates_of_all_workers_less_what_staleness_costs():
    rule = progress(2, noise_scale=1.0, stale=True)
    told(rule, *[(1.0, 3.0)] * 3)
    found = rule.predicted()[Setting(Family.QUORUM, None)]
    # 1 + 1/3 gradients per second, of worth g(2)/2 = 1/2 each, over 1 + 2/4.
    assert [1 / cost for cost in found] == pytest.approx([4 / 3 / 2 / 1.5] * 3)


def test_a_worker_that_stays_slow_is_not_waited_for_until_it_is_fast_again():
    rule = progress(4)
    fast, slow = (1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 5.0)
    (left_out,) = told(rule, *[fast] * 5, *[slow] * 10)
    (waited_for,) = told(rule, *[fast] * 20)
    assert left_out[1].to.value == 3
    assert waited_for[1].to.value == 4
    assert left_out[1].reason is waited_for[1].reason is Reason.MORE_PROGRESS
    assert left_out[1].figures[0] < left_out[1].figures[1]


def test_one_slow_iteration_changes_nothing():
    rule = progress(4)
    fast = (1.0, 1.0, 1.0, 1.0)
    assert told(rule, *[fast] * 5, (1.0, 1.0, 1.0, 50.0), *[fast] * 10) == []


def test_a_setting_that_is_hardly_ahead_is_not_ordered():
    slow = (1.0, 1.0, 1.0, 1.25)
    # Quorum 3 is worth 12/7 a second, quorum 4 2/1.25 = 1.6: 7 % less.
    assert told(progress(4, gain_percent=8.0), *[slow] * 20) == []
    assert len(told(progress(4, gain_percent=6.0), *[slow] * 20)) == 1


def test_a_switch_is_kept_for_a_window():
    rule = progress(3, window=4)
    changing = [(1.0, 1.0, 9.0)] * 4 + [(1.0, 1.0, 1.0)] * 20
    first, second = (iteration for iteration, _ in told(rule, *changing))
    assert second - first >= 4


def test_nothing_is_ordered_before_each_worker_has_three_iterations():
    rule = progress(2)
    assert told(rule, *[(1.0, 9.0)] * 2) == []
    assert [iteration for iteration, _ in told(rule, (1.0, 9.0))] == [0]


def test_adacomm_shortens_the_period_with_the_root_of_the_loss():
    rule = AdaComm(every=10, interval_s=60.0, factor=0.5)
    assert rule.observe(Averaged(1.0, 4.0)) is None  # the loss at the start
    assert rule.observe(Averaged(59.0, 1.0)) is None  # the interval is not over
    order = rule.observe(Averaged(61.0, 1.0))
    assert (order.to.value, order.reason) == (5, Reason.LOSS_FELL)  # 10 times the root of 1/4
    assert rule.observe(Averaged(119.0, 0.04)) is None
    assert rule.observe(Averaged(120.0, 0.04)).to.value == 1
    assert rule.observe(Averaged(200.0, 0.01)) is None  # no shorter period


def test_adacomm_multiplies_the_period_by_its_factor_where_the_loss_does_not_fall():
    rule = AdaComm(every=8, interval_s=10.0, factor=0.5)
    orders = [rule.observe(Averaged(float(time), 2.0)) for time in range(0, 60, 10)]
    assert [order and order.to.value for order in orders] == [None, 4, 2, 1, None, None]
    assert {order.reason for order in orders if order} == {Reason.LOSS_STAYS}


def test_adacomm_decides_nothing_without_losses():
    rule = AdaComm(every=8, interval_s=1.0, factor=0.5)
    assert [rule.observe(Averaged(float(time), None)) for time in range(5)] == [None] * 5


@pytest.mark.parametrize(
    ("setting", "policy"),
    [
        (Setting(Family.BOUND, 0), Bsp(scale=Scale.SUM, wire="bf16")),
        (Setting(Family.BOUND, 3), Ssp(3, scale=Scale.SUM, wire="bf16")),
        (Setting(Family.BOUND, None), Asp(scale=Scale.SUM, wire="bf16")),
        (Setting(Family.QUORUM, 3), DropStragglers(3, scale=Scale.SUM, wire="bf16")),
        (Setting(Family.QUORUM, None), Asp(scale=Scale.SUM, wire="bf16")),
    ],
)
def test_a_setting_keeps_scale_and_precision(setting, policy):
    assert Adaptive(scale=Scale.SUM, wire="bf16").at(setting) == policy


def test_a_share_is_of_the_iterations_of_the_training():
    assert told(Adaptive(rule="sync-switch", share=0.1).rule_for(1, 30), *[(1.0,)] * 9)[0][0] == 2
    assert told(Adaptive(rule="sync-switch").rule_for(1, 30), *[(1.0,)] * 9)[0][0] == 7


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"rule": "best"}, "rule"),
        ({"after": 3}, "after"),
        ({"rule": "sync-switch", "window": 9}, "window"),
        ({"rule": "sync-switch", "share": 0.5, "after": 3}, "share, after"),
        ({"rule": "sync-switch", "share": 1.0}, "share"),
        ({"rule": "sync-switch", "after": 0}, "after"),
        ({"window": 2}, "window"),
        ({"gain_percent": -1.0}, "gain_percent"),
        ({"noise_scale": 0.0}, "noise_scale"),
    ],
)
def test_options_out_of_range_or_of_another_rule_are_refused(options, named):
    with pytest.raises(ValueError, match=f"^{named}"):
        Adaptive(**options)


@pytest.mark.parametrize("options", [{"every": 0}, {"interval_s": 0.0}, {"factor": 1.0}])
def test_periods_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match=f"^{next(iter(options))}"):
        AdaptivePeriod(**{"every": 4, **options})
