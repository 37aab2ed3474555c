"""The pooled model: fitting, files, following a run, any number and order of workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outpace.errors import ConfigError
from outpace.predict.models import fit as fit_model
from outpace.predict.pooled import Pooled
from outpace.predict.pooled.law import log_likelihood
from outpace.predict.recorded import RunTimes, read, write

fit: Callable[..., Any] = partial(fit_model, "pooled")


@pytest.fixture(scope="module")
def model() -> Pooled:
    """Return a model fitted to one run with nodes that are sometimes slow, and one without."""
    return fit([_history(24, 0), _history(24, 1, slow=False)])


def test_a_second_fit_gives_the_same_bits_and_changes_no_global_state(
    model: Pooled, tmp_path: Path
) -> None:
    """Fitted to iterations that ended when the last worker had come, read back from a file."""
    files = []
    for full in (_history(24, 0), _history(24, 1, slow=False)):
        end = full.seconds.max(axis=1, keepdims=True)
        cut = RunTimes(np.minimum(full.seconds, end), full.seconds > end, full.node)
        files.append(tmp_path / f"times-{len(files)}.parquet")
        write(cut, files[-1])
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    shares: list[float] = []
    again = fit([read(file) for file in files], progress=shares.append).tensors()
    assert all(torch.equal(again[name], value) for name, value in model.tensors().items())
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_refit_goes_on_from_the_earlier_model_and_predicts_better(model: Pooled) -> None:
    """Compares the likelihood of 60 iterations after 60 others, of which the model knew 24."""
    history = _history(120, 0)
    refitted = fit([_part(history, 60)], earlier=model)
    assert _likelihood(refitted, history, 60) > _likelihood(model, history, 60) + 0.05


@pytest.mark.parametrize("workers", [1, 5, 30])
def test_it_serves_another_number_of_workers(model: Pooled, workers: int) -> None:
    times = 0.1 * np.exp(np.random.default_rng(4).normal(0.0, 0.03, (8, workers)))
    draws = _followed(
        model, RunTimes(times, np.zeros(times.shape, bool), np.arange(workers) // 4), 2000
    )
    assert draws.shape == (2000, workers)
    assert np.median(draws) == pytest.approx(0.1, rel=0.25)


def test_a_worker_never_seen_is_predicted_from_the_pool(model: Pooled) -> None:
    """A worker is predicted like its node, an unseen node like other nodes (up to 3 times slow)."""
    history = _history(30, 5, slow=False)
    history.seconds[:, [4, 9, 10, 11]] = np.nan  # one of a node, and a whole node
    typical = np.median(_followed(model, history, 2000), axis=0)
    assert typical[:9] == pytest.approx(0.25, rel=0.15)
    assert ((typical[9:] > 0.22) & (typical[9:] < 0.8)).all()


def test_a_node_that_is_slow_is_expected_to_stay_so(model: Pooled) -> None:
    history = _history(30, 6, slow=False)
    history.seconds[20:, :3] *= 2.0
    draws = np.median(_followed(model, history, 500), axis=0)
    assert draws[:3].mean() / draws[3:].mean() == pytest.approx(2.0, rel=0.15)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows": 19}, "has 19 iterations, too few"),
        ({"unknown": True}, "no worker has two consecutive run times that are known"),
        ({"censored": True}, "record a run that waits for all"),
    ],
)
def test_what_there_is_nothing_to_learn_from_is_refused(
    changes: Mapping[str, Any], words: str
) -> None:
    whole = _history(20, 0)
    seconds = np.where(changes.get("unknown", False), np.nan, whole.seconds)
    censored = np.full(seconds.shape, changes.get("censored", False))
    rows = changes.get("rows", 20)
    with pytest.raises(ConfigError, match=words):
        fit([RunTimes(seconds[:rows], censored[:rows], whole.node)])
    with pytest.raises(ConfigError, match="record a run first"):
        fit([])


def _history(
    iterations: int, seed: int, slow: bool = True, nodes: int = 4, per: int = 3
) -> RunTimes:
    """A few workers to each node; every node slows down now and then."""
    generator = np.random.default_rng(seed)
    node = np.repeat(np.arange(nodes), per)
    state, factor = np.zeros(nodes, bool), np.ones(nodes)
    rows = []
    for _ in range(iterations):
        turns = generator.random(nodes) < 0.1
        factor = np.where(turns & ~state, generator.uniform(1.5, 3.0, nodes), factor)
        state ^= turns
        level = np.where(state & slow, factor, 1.0)[node]
        rows.append(0.25 * level * np.exp(generator.normal(0.0, 0.03, len(node))))
    seconds = np.stack(rows)
    return RunTimes(seconds, np.zeros(seconds.shape, bool), node)


def _part(history: RunTimes, iterations: int) -> RunTimes:
    return RunTimes(history.seconds[:iterations], history.censored[:iterations], history.node)


def _likelihood(model: Pooled, history: RunTimes, first: int) -> float:
    """Return the mean log likelihood of a worker's log time, from this iteration on."""
    follower = model.follow(history.node, 0)
    found = []
    for number, (seconds, censored) in enumerate(
        zip(history.seconds, history.censored, strict=True)
    ):
        if number >= first:
            forecast = follower.predict()
            times = torch.from_numpy(np.log(seconds) - forecast.reference).float()
            away = forecast.layout.spread(times)
            none = torch.zeros_like(away, dtype=torch.bool)
            found.append(float(log_likelihood(forecast.law, away, none, ~none)))
        follower.observe(seconds, censored)
    return float(np.mean(found)) / history.workers


def _followed(model: Pooled, history: RunTimes, count: int = 20) -> np.ndarray:
    follower = model.follow(history.node, 0)
    for seconds, censored in zip(history.seconds, history.censored, strict=True):
        follower.observe(seconds, censored)
    return follower.predict().sample(count)
