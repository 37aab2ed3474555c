"""The rules of adaptive strategies, on run times that are given by hand."""

from __future__ import annotations

import json
import random

import msgspec
import pytest

from outpace.blocks.sums import TreeSum
from outpace.support.units import nanoseconds
from outpace.sync import (
    Adaptive,
    AdaptivePeriod,
    Asp,
    Bsp,
    DropStragglers,
    PartialPush,
    Scale,
    Ssp,
)
from outpace.sync.adaptive.adacomm import AdaComm, Averaged, SavedPeriod
from outpace.sync.adaptive.interface import Family, Observation, Setting
from outpace.sync.adaptive.progress import Progress
from outpace.sync.adaptive.sync_switch import SyncSwitch
from outpace.sync.decision import Reason
from outpace.sync.peers.context import Reduced, finite_loss


def observed(iteration, worker, busy_s, noise=0.0, signal=0.0, beside_s=0.0):
    """Return an observation. beside_s: part of the time in which the worker does not compute."""
    return Observation(
        float(iteration), worker, iteration, busy_s, busy_s - beside_s, noise, signal
    )


def told(rule, *rounds, beside_s=0.0):
    """Tell a rule of iterations, each with the times of all workers; return the orders."""
    orders = []
    for iteration, times in enumerate(rounds):
        for worker, busy_s in enumerate(times):
            order = rule.observe(observed(iteration, worker, busy_s, beside_s=beside_s))
            orders += [] if order is None else [(iteration, order)]
    return orders


def progress(workers, window=5, gain_percent=5.0, noise_scale=1.0, stale=False, stops_late=False):
    return Progress(workers, window, gain_percent, noise_scale, stale=stale, stops_late=stops_late)


def test_sync_switch_orders_asp_when_the_synchronous_iterations_are_done():
    rule = SyncSwitch(after=3)
    orders = told(rule, *[(1.0, 1.0)] * 6)
    assert [iteration for iteration, _ in orders] == [2]
    assert orders[0][1].to == Setting(Family.BOUND, None)
    assert orders[0][1].reason is Reason.SHARE_DONE
    assert rule.setting == orders[0][1].to


def quorum(value, grace_s=0.0):
    return Setting(Family.QUORUM, value, nanoseconds(grace_s))


def after_guard(orders):
    """Check that the first order is a grace, after one iteration; return the others."""
    (iteration, guard), *others = orders
    assert (iteration, guard.reason) == (0, Reason.SLOW_NOT_AWAITED)
    assert guard.to.grace > 0
    return others


def test_workers_that_are_alike_are_all_waited_for_but_not_long_for_one_that_becomes_slow():
    rule = progress(4)
    ((iteration, order),) = told(rule, *[(1.0, 1.0, 1.0, 1.0)] * 30)
    assert (iteration, order.reason) == (0, Reason.SLOW_NOT_AWAITED)
    assert order.to == rule.setting == quorum(4, grace_s=0.1)  # a tenth of what the first takes
    assert order.figures == (2, 2)  # B is 4: 4·4 / (4 + 4) in a second, before and after


def test_a_grace_that_is_worth_less_than_waiting_for_all_is_not_ordered():
    # A grace of 1 s at most ends the iteration after 2 s, with three gradients of which none is
    # redundant: 3 / 2 in a second. All four take 2.2 s: 4 / 2.2.
    times = (1.0, 2.0, 2.0, 2.2)
    assert told(progress(4, noise_scale=100.0), *[times] * 20) == []


def test_a_grace_of_a_much_longer_iteration_is_replaced():
    rule = progress(4)
    first, second = told(rule, (30.0,) * 4, *[(1.0,) * 4] * 20)
    assert (first[0], first[1].to) == (0, quorum(4, grace_s=3.0))
    assert (second[1].to, second[1].reason) == (quorum(4, grace_s=0.1), Reason.SLOW_NOT_AWAITED)
    assert second[0] <= 3  # as soon as most of the iterations that the rule looks at are short


def test_progress_of_a_quorum_is_the_worth_of_its_gradients_over_its_duration():
    rule = progress(4, noise_scale=0.5)  # B is 2 gradients: k of them are worth 2k / (k + 2)
    told(rule, *[(1.0, 2.0, 3.0, 10.0)] * 3)
    costs = {setting: found[-1] for setting, found in rule.predicted().items()}
    assert costs[quorum(1)] == pytest.approx(1 / (2 / 3))
    assert costs[quorum(4)] == pytest.approx(10 / (4 / 3))
    # The grace begins when a quarter, one worker, has pushed, after 1 s.
    assert costs[quorum(2, grace_s=1.0)] == pytest.approx(2 / 1.0)
    assert costs[quorum(3, grace_s=1.0)] == pytest.approx(2 / 1.0)
    assert costs[quorum(3, grace_s=0.5)] == pytest.approx(1.5 / (2 / 3))


def test_a_worker_that_is_late_begins_in_the_middle_of_an_iteration_and_is_late_again():
    rule = progress(4, noise_scale=1.0)  # B is 4 gradients
    told(rule, (1.0, 1.0, 1.0, 1.0), *[(1.0, 1.0, 1.0, 1.5), (1.0, 1.0, 1.0, 1.0)] * 2)
    found = rule.predicted()[quorum(4, grace_s=0.1)]
    # Iterations take 1.1 s. With 1.5 s the worker is 0.4 s late. With 1 s it would be in time, but
    # is late by 0.3 s again, then by 0.7 s, 0.6 s and 0.5 s, with which the rows begin anew.
    assert found == pytest.approx([1.1 / (4 * 3 / 7)] * 5)


def test_a_worker_that_was_late_catches_up_by_the_grace():
    rule = progress(4, noise_scale=1.0)
    told(rule, *[(1.0, 1.0, 1.0, 1.0)] * 2, (1.0, 1.0, 1.0, 1.3), *[(1.0, 1.0, 1.0, 1.0)] * 2)
    found = rule.predicted()[quorum(4, grace_s=0.2)]
    # The third iteration ends after 1.2 s, 0.1 s before the worker is done, which is in time again.
    three, four = 1.2 / (4 * 3 / 7), 1.0 / 2
    assert found == pytest.approx([four, four, three, 1.1 / 2, four])


def test_a_worker_that_stops_begins_with_the_next_iteration():
    rule = progress(4, noise_scale=1.0, stops_late=True)
    told(rule, (1.0, 1.0, 1.0, 1.0), *[(1.0, 1.0, 1.0, 1.5), (1.0, 1.0, 1.0, 1.0)] * 2)
    found = rule.predicted()[quorum(4, grace_s=0.1)]
    # The iterations in which it would take 1.5 s end after 1.1 s. It is in time in the others.
    three, four = 1.1 / (4 * 3 / 7), 1.0 / 2
    assert found == pytest.approx([four, three, four, three, four])


def test_a_gradient_that_is_on_its_way_makes_its_worker_late_again():
    rule = progress(4, noise_scale=1.0, stops_late=True)
    slow = [(1.0, 1.0, 1.0, 1.0)] * 2 + [(1.0, 1.0, 1.0, 1.3)] + [(1.0, 1.0, 1.0, 1.0)] * 2
    told(rule, *slow, beside_s=0.4)
    found = rule.predicted()[quorum(4, grace_s=0.2)]
    # After 1.2 s it has computed for 0.9 s, and does not stop: as one that never stops.
    three, four = 1.2 / (4 * 3 / 7), 1.0 / 2
    assert found == pytest.approx([four, four, three, 1.1 / 2, four])


def test_the_noise_scale_is_that_of_the_last_iterations():
    rule = progress(2, window=3, noise_scale=None)
    assert rule.noise == 2  # nothing is measured: N
    noise = signal = 0.0
    for iteration in range(100):
        noise, signal = noise + 6.0, signal + (1.0 if iteration < 50 else 2.0)
        for worker in range(2):
            rule.observe(observed(iteration, worker, 1.0, noise, signal))
        if iteration == 49:
            assert rule.noise == pytest.approx(6.0)
    assert rule.noise == pytest.approx(3.0, rel=0.02)


@pytest.mark.parametrize(("noise", "signal", "found"), [(1.0, -1.0, 400), (-1.0, 5.0, 1)])
def test_a_noise_scale_that_cannot_be_is_limited(noise, signal, found):
    rule = progress(4, noise_scale=None)
    for iteration in range(5):
        for worker in range(4):
            sums = noise * iteration, signal * iteration
            rule.observe(observed(iteration, worker, 1.0, *sums))
    assert rule.noise == found


def test_asp_is_worth_its_steps_in_a_second_along_gradients_over_their_staleness():
    rule = progress(2, noise_scale=1.0, stale=True)  # B is 2 gradients
    told(rule, *[(1.0, 3.0)] * 3)
    found = rule.predicted()[Setting(Family.QUORUM, None)]
    # 4/3 updates a second, so gradients are 4/3 and 4 updates old: 1 · 3/4 + 1/3 · 1/4 = 5/6 steps.
    # Their squared weights are 1 · 9/16 + 1/3 · 1/16 = 7/12 a second, 7/10 for a step: as noisy as
    # 10/7 gradients, which are worth 2 · 10/7 / (10/7 + 2) = 5/6.
    assert [1 / cost for cost in found] == pytest.approx([25 / 36] * 3)


def test_asp_of_workers_that_are_alike_is_worth_what_bsp_is():
    rule = progress(4, stale=True)
    told(rule, *[(2.0, 2.0, 2.0, 2.0)] * 5)
    found = rule.predicted()
    assert found[Setting(Family.QUORUM, None)] == pytest.approx(found[Setting(Family.QUORUM, 4)])


def test_with_stale_the_rule_begins_with_asp_and_stays_while_workers_are_alike():
    rule = progress(4, stale=True)
    assert told(rule, *[(1.0, 1.1, 1.0, 0.9)] * 30) == []
    assert rule.setting == Setting(Family.QUORUM, None)


def test_asp_gives_way_to_a_quorum_where_few_gradients_are_enough_and_comes_back():
    rule = progress(4, noise_scale=0.25, stale=True)  # B is 1 gradient
    # ASP: 0.85 steps a second along 2.6 gradients are worth 0.615; a quorum of 2: 1 / (1 + 1/2).
    (out,) = told(rule, *[(1.0, 1.0, 4.0, 4.0)] * 5)
    assert out[1].to == quorum(2, grace_s=0.1)
    assert out[1].figures == pytest.approx((0.615, 2 / 3), abs=5e-4)
    (back,) = told(rule, *[(1.0, 1.0, 1.0, 1.0)] * 20)
    assert back[1].to == quorum(4, grace_s=0.1)


def test_a_worker_that_stays_slow_is_not_waited_for_until_it_is_fast_again():
    rule = progress(4)
    fast, slow = (1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 5.0)
    (left_out,) = after_guard(told(rule, *[fast] * 5, *[slow] * 10))
    (waited_for,) = told(rule, *[fast] * 20)
    assert left_out[1].to.value == 3
    assert waited_for[1].to.value == 4
    assert left_out[1].reason is waited_for[1].reason is Reason.MORE_PROGRESS
    assert left_out[1].figures[0] < left_out[1].figures[1]


def test_one_slow_iteration_changes_nothing():
    rule = progress(4)
    fast, slow = (1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.5)
    assert after_guard(told(rule, *[fast] * 5, slow, *[fast] * 10)) == []


def test_a_setting_that_is_hardly_ahead_is_not_ordered():
    slow = (1.0, 1.0, 1.0, 1.25)
    # Quorum 3 is worth 12/7 a second, quorum 4 2/1.25 = 1.6: 7 % less.
    assert after_guard(told(progress(4, gain_percent=8.0), *[slow] * 20)) == []
    ((_, order),) = after_guard(told(progress(4, gain_percent=6.0), *[slow] * 20))
    assert order.figures == pytest.approx((1.6, 12 / 7))


def test_a_switch_is_kept_for_a_window():
    rule = progress(3, window=4)
    changing = [(1.0, 1.0, 9.0)] * 4 + [(1.0, 1.0, 1.0)] * 20
    first, second = (iteration for iteration, _ in after_guard(told(rule, *changing)))
    assert second - first >= 4


def test_no_worker_is_left_out_before_each_has_three_iterations():
    rule = progress(2)
    assert after_guard(told(rule, *[(1.0, 9.0)] * 2)) == []
    ((iteration, order),) = told(rule, (1.0, 9.0))
    assert (iteration, order.to) == (0, quorum(1))


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
        (
            Setting(Family.QUORUM, 7, nanoseconds(0.25)),
            PartialPush(3, timeout_s=0.25, enough=7, scale=Scale.SUM, wire="bf16"),
        ),
        (Setting(Family.QUORUM, None), Asp(scale=Scale.SUM, wire="bf16")),
    ],
)
def test_a_setting_keeps_scale_and_precision(setting, policy):
    assert Adaptive(scale=Scale.SUM, wire="bf16").at(setting, workers=9) == policy


def test_late_workers_stop_in_each_setting_if_they_can_unless_the_user_says_otherwise():
    def late(of, **settled):
        policy = of.settled(is_proportional=True, **settled)
        return [
            policy.at(Setting(Family.QUORUM, 3, grace), 9).late for grace in (0, nanoseconds(1.0))
        ]

    assert late(Adaptive(), can_stop=True) == ["stop", "stop"]
    assert late(Adaptive(), can_stop=False) == ["finish", "finish"]
    assert late(Adaptive(late="finish"), can_stop=True) == ["finish", "finish"]


def test_gradients_of_asp_count_over_their_staleness_if_those_of_a_quorum_are_averaged():
    asp = Setting(Family.QUORUM, None)
    assert Adaptive(stale=True).at(asp, 4) == Asp(scale=Scale.STALENESS)
    assert Adaptive(rule="sync-switch").at(Setting(Family.BOUND, None), 4) == Asp()


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
        ({"late": "sometimes"}, "late"),
        ({"rule": "sync-switch", "late": "stop"}, "late"),
    ],
)
def test_options_out_of_range_or_of_another_rule_are_refused(options, named):
    with pytest.raises(ValueError, match=f"^{named}"):
        Adaptive(**options)


@pytest.mark.parametrize("options", [{"every": 0}, {"interval_s": 0.0}, {"factor": 1.0}])
def test_periods_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match=f"^{next(iter(options))}"):
        AdaptivePeriod(**{"every": 4, **options})


def copied(rule, made):
    """Return the rule `made` with the state of another one, as a checkpoint has it."""
    state = json.loads(json.dumps(rule.state()))
    made.restore(state, range(4))
    return made


@pytest.mark.parametrize(
    "make",
    [
        lambda: progress(4, window=3, gain_percent=0.0, noise_scale=None, stale=True),
        lambda: progress(4, window=4),
        lambda: SyncSwitch(after=25),
    ],
    ids=["measured noise", "given noise", "sync-switch"],
)
def test_a_rule_that_is_restored_orders_what_the_one_that_was_saved_orders(make):
    draw, rule, again = random.Random(5), make(), make()
    noise = signal = 0.0
    count = 0
    for iteration in range(60):
        slow = (2, 3) if iteration % 20 > 9 else ()
        for worker in range(4):
            noise, signal = noise + draw.random(), signal + draw.random()
            busy_s = draw.uniform(0.99, 1.01) * (5.0 if worker in slow else 1.0)
            seen = observed(iteration, worker, busy_s, noise, signal)
            order = rule.observe(seen)
            assert again.observe(seen) == order
            count += order is not None
            again = copied(again, make())
            assert again.setting == rule.setting
    assert count


def with_setting(workers, value, grace=0):
    """Return the state of a rule with this quorum, in which worker w has taken w + 1 s, twice."""
    rule = progress(workers)
    told(rule, *[tuple(float(1 + n) for n in range(workers))] * 2)
    return {**rule.state(), "value": value, "grace": grace}


@pytest.mark.parametrize("grace", [0, 7])
@pytest.mark.parametrize(
    ("value", "workers", "expected"),
    [(4, 5, 5), (4, 3, 3), (3, 5, 3), (3, 2, 2), (3, 3, 3), (None, 3, None)],
)
def test_a_quorum_of_all_stays_one_of_all_and_no_other_is_more_than_there_are(
    value, workers, expected, grace
):
    rule = progress(workers)
    places = [n if n < 4 else None for n in range(workers)]
    rule.restore(with_setting(4, value, grace), places)
    assert rule.setting == Setting(Family.QUORUM, expected, 0 if value is None else grace)


def test_a_checkpoint_from_before_there_were_graces_is_restored():
    state = with_setting(4, 3)
    del state["grace"]
    rule = progress(4)
    rule.restore(state, range(4))
    assert rule.setting == quorum(3)


def test_a_checkpoint_from_before_late_workers_stopped_is_restored():
    state = with_setting(4, 3)
    state["times"] = [[busy_s for busy_s, _ in times] for times in state["times"]]
    rule, known = progress(4, stops_late=True), progress(4, stops_late=True)
    rule.restore(state, range(4))
    known.restore(with_setting(4, 3), range(4))
    assert rule.predicted() == known.predicted()


def test_a_quorum_of_a_quarter_has_no_grace_which_would_begin_with_it():
    rule = progress(1)
    rule.restore(with_setting(4, 3, grace=7), [0])
    assert rule.setting == Setting(Family.QUORUM, 1)


def test_the_times_of_workers_that_have_left_are_forgotten_and_new_ones_are_observed_first():
    rule = progress(3, noise_scale=1.0)
    rule.restore(with_setting(4, 4), [0, 2, None])  # worker 2 has number 1 now
    assert told(rule, (1.0, 3.0, 9.0)) == []
    costs = rule.predicted()
    assert costs[quorum(1)] == pytest.approx([1 * 4 / 3])  # one row: the new worker has no more
    assert costs[quorum(3)] == pytest.approx([9 * 6 / 9])
    ((iteration, order),) = after_guard(told(rule, *[(1.0, 3.0, 9.0)] * 3))
    assert (iteration, order.to) == (2, quorum(1))  # it had three before


def test_adacomm_that_is_restored_decides_as_the_one_that_was_saved():
    draw, rule, again = random.Random(1), AdaComm(64, 1.0, 0.7), AdaComm(64, 1.0, 0.7)
    orders = 0
    for step in range(60):
        seen = Averaged(0.35 * step, draw.uniform(0.5, 1.0) * 0.97**step)
        order = rule.observe(seen)
        assert again.observe(seen) == order
        orders += order is not None
        saved = json.loads(json.dumps(msgspec.to_builtins(again.state(orders))))
        again = AdaComm(64, 1.0, 0.7)
        again.restore(msgspec.convert(saved, SavedPeriod))
    assert orders > 3


def test_the_mean_loss_of_the_workers_keeps_its_sign_and_precision():
    losses = [-3.0000000000000004, 2.5e-12, None, -1e9]
    found = Reduced(TreeSum(4), 4, [finite_loss(loss) for loss in losses]).loss
    assert found == (-3.0000000000000004 + 2.5e-12 - 1e9) / 3
    assert finite_loss(float("nan")) is None
    assert Reduced(TreeSum(4), 4, [None]).loss is None
