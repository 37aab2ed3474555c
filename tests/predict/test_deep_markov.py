"""The deep Markov model: fitting, following a run, files."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from outpace.errors import ConfigError
from outpace.predict import deep_markov
from outpace.predict.deep_markov import DeepMarkov
from outpace.predict.recorded import RunTimes
from outpace.support import repeatable

WORKERS = 8
NAN = math.nan
NODE = np.repeat(np.arange(2), 4)
SMALL = {"lag": 6, "latent": 4, "hidden": 16, "steps": 60}


def fit(histories, **settings):
    """Fit a model as `outpace.predict.models.fit` does, but with networks of any size."""
    with repeatable.one_thread():
        return deep_markov.fit(histories, **settings)


def recorded(iterations=60, seed=0, *, workers=WORKERS, slow=(), noise=0.03):
    """The first half of the workers takes twice as long in the iterations of `slow`."""
    rng = np.random.default_rng(seed)
    seconds = 0.25 * np.exp(rng.normal(0, noise, (iterations, workers)))
    for first, last in slow:
        seconds[first:last, : workers // 2] *= 2
    node = np.repeat(np.arange(2), [workers // 2, workers - workers // 2])
    return RunTimes(seconds, np.zeros(seconds.shape, bool), node)


def cut_after(history, count, since=0):
    """Return a history whose iterations from `since` on end when `count` workers have come."""
    end = np.sort(history.seconds, axis=1)[:, count - 1 : count]
    censored = history.seconds > end
    censored[:since] = False
    return RunTimes(np.where(censored, end, history.seconds), censored, history.node)


def watched(model, history, seed=0):
    follower = model.follow(history.node, seed)
    for seconds, censored in zip(history.seconds, history.censored, strict=True):
        follower.observe(seconds, censored)
    return follower


@pytest.fixture(scope="module")
def small():
    return fit([recorded(slow=[(20, 40)])], seed=1, **SMALL)


@pytest.fixture(scope="module")
def plain():
    """Return a model, the output of its fit, and the generators' states before and after."""
    told, before = [], (repeatable.states(), torch.get_num_threads())
    model = fit([recorded()], progress=told.append, **SMALL)
    return model, told, before, (repeatable.states(), torch.get_num_threads())


@pytest.fixture(scope="module", params=[False, True], ids=["each worker", "sorted"])
def either(request, plain):
    return fit([recorded()], ordered=True, **SMALL) if request.param else plain[0]


@pytest.fixture(scope="module")
def switching():
    """Return a model that was fitted until it knows that the first half slows down together."""
    runs = [recorded(80, seed, slow=[(a, a + 25)]) for seed, a in enumerate((0, 15, 30, 50))]
    return fit(runs, seed=1, **{**SMALL, "steps": 400})


@pytest.mark.slow
def test_it_follows_a_slow_node(switching):
    for slow, expected in (([(10, 30)], 0.5), ([], 0.25)):
        seconds = watched(switching, recorded(20, seed=9, slow=slow)).predict().sample(100)
        assert np.median(seconds[:, :4]) == pytest.approx(expected, rel=0.1)
        assert np.median(seconds[:, 4:]) == pytest.approx(0.25, rel=0.1)


@pytest.mark.slow
def test_it_knows_the_slow_workers_while_they_are_cut_off(switching):
    history = cut_after(recorded(40, seed=9, slow=[(0, 40)]), 4, since=6)
    seconds = watched(switching, history).predict().sample(100)
    assert np.median(seconds[:, :4]) > 0.4
    assert np.median(seconds[:, 4:]) == pytest.approx(0.25, rel=0.1)


def test_sorted_times_of_many_workers_are_predicted_in_order():
    history = recorded(60, workers=600, noise=0.1)
    model = fit([history], lag=6, latent=4, hidden=16, steps=150)
    assert model.settings()["ordered"]
    drawn = np.sort(watched(model, history).predict().sample(100), axis=1).mean(0)
    truth = np.sort(history.seconds, axis=1).mean(0)
    assert drawn == pytest.approx(truth, rel=0.05)


def test_a_model_of_sorted_times_does_not_depend_on_the_numbering_of_workers(plain):
    history = recorded(slow=[(20, 40)])
    model = fit([history], ordered=True, **SMALL)
    renumbered = RunTimes(history.seconds[:, ::-1], history.censored, history.node)
    one, other = (watched(model, each).predict().sample(10) for each in (history, renumbered))
    assert np.array_equal(one, other)
    assert not plain[0].settings()["ordered"]


def test_the_run_times_after_a_cut_off_do_not_matter_for_the_prediction(small):
    one, other = recorded(10), recorded(10)
    other.seconds[:, 3] *= 3
    cut = np.zeros((10, WORKERS), bool)
    cut[:, 3] = True
    draws = []
    for history in (one, other):
        seconds = np.where(cut, 0.2, history.seconds)
        draws.append(watched(small, RunTimes(seconds, cut, NODE)).predict().sample(50))
    assert np.array_equal(*draws)


def test_it_can_be_observed_cut_off_and_not_there_from_the_beginning(either):
    follower = either.follow(NODE, 0)
    for seconds in recorded(either.needs).seconds:
        seconds[0] = NAN
        follower.observe(seconds, np.arange(WORKERS) == 1)
    assert np.isfinite(follower.predict().sample(100)).all()


def test_the_users_generators_dtype_and_threads_are_left_as_they_were(plain):
    model, _, before, after = plain
    expected = model.tensors()
    assert after == before
    torch.set_default_dtype(torch.float64)
    try:
        double = fit([recorded()], **SMALL).tensors()
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(expected[name], double[name]) for name in expected)


def test_its_parts_make_it_again_bit_for_bit(small):
    tensors = {name: tensor.clone() for name, tensor in small.tensors().items()}
    again = DeepMarkov.from_parts(tensors, small.settings())
    assert again.settings() == small.settings()
    assert again.needs == small.needs
    history = cut_after(recorded(20), 6, since=6)
    one, other = (watched(model, history).predict().sample(50) for model in (small, again))
    assert np.array_equal(one, other)


def test_a_fit_to_censored_times_knows_that_they_were_longer():
    # A quarter of the workers always takes twice as long, and is cut off in two of five.
    history = recorded(80)
    history.seconds[:, :2] *= 2
    cut = cut_after(history, 6)
    cut.censored[np.arange(80) % 5 > 1] = False
    seconds = np.where(cut.censored, cut.seconds, history.seconds)
    model = fit([RunTimes(seconds, cut.censored, NODE)], **{**SMALL, "steps": 300})
    drawn = watched(model, recorded(6)).predict().sample(1000)
    assert np.median(drawn[:, :2]) > 0.4


def test_times_without_any_spread_are_learned_from():
    history = recorded(noise=0.0)
    drawn = watched(fit([history], **SMALL), history).predict().sample(10)
    assert drawn == pytest.approx(0.25, rel=0.01)


def test_too_few_iterations_say_how_many_are_needed():
    with pytest.raises(ConfigError, match=r"has 9 iterations.* at least 10: record a longer"):
        fit([recorded(9)], **SMALL)
    with pytest.raises(ConfigError, match="run 1 has 9 iterations"):
        fit([recorded(), recorded(9)], **SMALL)
    fit([recorded(10)], **SMALL)


@pytest.mark.parametrize("wrong", [NAN, 0.0, -0.5, math.inf])
def test_what_is_no_time_is_named_by_worker_and_iteration(wrong):
    history = recorded()
    history.seconds[17, 3] = wrong
    with pytest.raises(ConfigError, match=r"run 1: worker 3, iteration 17: .* not a run time"):
        fit([recorded(), history], **SMALL)


def test_runs_of_different_numbers_of_workers_are_refused():
    with pytest.raises(ConfigError, match=r"run 1: it has 6 workers, and run 0 has 8.*pooled"):
        fit([recorded(), recorded(workers=6)], **SMALL)


def test_another_number_of_workers_needs_another_fit(either):
    with pytest.raises(ConfigError, match=r"fitted to 8 workers, and the run has 5: fit.*pooled"):
        either.follow(np.zeros(5, np.int64), 0)
