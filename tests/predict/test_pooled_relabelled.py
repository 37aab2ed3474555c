"""The numbers of workers and the names of nodes change no decision of a pooled model by a bit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.predict.interface import Rule, Wait
from outpace.predict.models import fit
from outpace.predict.pooled import Pooled, training
from outpace.predict.pooled.layout import NodeLayout, ordered
from outpace.predict.pooled.network import PooledNetwork
from outpace.predict.recorded import RunTimes
from outpace.predict.recorded.table import Mask, Nodes, Seconds
from outpace.predict.replay import replay
from outpace.predict.rules.making import make_rule
from outpace.predict.rules.settings import CutOffSettings


def untrained(seed: int = 0) -> Pooled:
    """Weights are as they are drawn, three times as large: enough for laws that differ."""
    torch.manual_seed(seed)
    network = PooledNetwork(0.05, 0.3, 0.1)
    return Pooled.from_parts(
        {name: 3.0 * value for name, value in network.state_dict().items()},
        Pooled(network).settings(),
    )


@dataclass
class Noting(Rule):
    """Notes every answer of a rule."""

    rule: Rule
    answers: list[Wait] = field(default_factory=list)

    def begin(self) -> Wait:
        self.answers.append(self.rule.begin())
        return self.answers[-1]

    def review(self, arrived: Seconds, elapsed_s: float) -> Wait:
        self.answers.append(self.rule.review(arrived, elapsed_s))
        return self.answers[-1]

    def observe(self, seconds: Seconds, censored: Mask, ended_s: float) -> None:
        self.rule.observe(seconds, censored, ended_s)


def answers(model: Pooled, times: RunTimes) -> list[Wait]:
    chosen = CutOffSettings("pooled", "replan", samples=20, warmup=1)
    rule = Noting(make_rule(chosen, node=times.node, fitted=model, say=pytest.fail))
    replay(rule, times.seconds)
    return rule.answers


def relabelled(times: RunTimes, order: Nodes, names: Nodes) -> RunTimes:
    """Give worker n the number that n has in `order`, and node m the name names[m]."""
    return RunTimes(times.seconds[:, order], times.censored[:, order], names[times.node[order]])


@st.composite
def clusters(draw: st.DrawFn) -> tuple[RunTimes, RunTimes]:
    """A run, and the same with other numbers and names; with equal times and with absences."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    node = np.repeat(np.arange(len(sizes)), sizes)
    shape = 4, len(node)
    level = np.where(random.random((4, len(sizes))) < 0.2, 2.0, 1.0)[:, node]
    seconds = level * np.exp(0.05 * random.normal(size=shape))
    if draw(st.booleans()):  # workers that cannot be told apart, at first or for good
        seconds = np.ceil(8.0 * seconds) / 8.0
    seconds[random.random(shape) < draw(st.sampled_from((0.0, 0.2)))] = np.nan
    seconds[:, 0] = np.where(np.isnan(seconds).all(axis=1), 1.0, seconds[:, 0])
    times = RunTimes(seconds, np.zeros(shape, bool), node)
    return times, relabelled(
        times, random.permutation(len(node)), 10 * random.permutation(len(sizes))
    )


@settings(max_examples=15)
@given(pair=clusters())
def test_other_numbers_of_workers_and_names_of_nodes_give_the_same_answers(
    pair: tuple[RunTimes, RunTimes],
) -> None:
    model = untrained()
    one, other = (answers(model, times) for times in pair)
    assert one == other


def test_a_history_in_another_order_makes_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_ROUNDS", 1)
    random = np.random.default_rng(3)
    node = np.array([0, 0, 1, 1, 2])
    seconds = np.exp(0.1 * random.normal(size=(24, 5)))
    seconds[0] = 1.0
    times = RunTimes(seconds, seconds > 1.2, node)
    other = relabelled(times, np.array([3, 1, 4, 2, 0]), np.array([5, 2, 9]))
    one, same = (fit("pooled", [each]).tensors() for each in (times, other))
    assert all(torch.equal(one[name], value) for name, value in same.items())


def test_a_layout_follows_the_times_and_keeps_nodes_together() -> None:
    """Node 7 has the larger size, node 2 the faster worker; worker 3 is the fastest of node 7."""
    node = np.array([4, 7, 2, 7, 7])
    layout = NodeLayout.of(node).refined(
        np.array([2.0, 3.0, 1.0, 1.5, np.nan]), np.array([False, True, False, False, False])
    )
    assert (layout.nodes, layout.width) == (3, 3)
    assert layout.workers.tolist() == [3, 1, 4, 2, 0]
    assert layout.place.tolist() == [6, 1, 3, 0, 2]
    table = ordered(RunTimes(np.array([[2.0, 3.0, 1.0, 1.5, 4.0]]), np.zeros((1, 5), bool), node))
    assert table.seconds.tolist() == [[1.5, 3.0, 4.0, 1.0, 2.0]]
    assert table.node.tolist() == [0, 0, 0, 1, 2]


def test_workers_are_told_apart_by_the_first_time_that_differs() -> None:
    layout = NodeLayout.of(np.array([0, 0, 1, 1]))
    none = np.zeros(4, bool)
    layout = layout.refined(np.array([1.0, 1.0, 1.0, 1.0]), none)
    assert layout.place.tolist() == [0, 1, 2, 3]
    layout = layout.refined(np.array([2.0, 1.0, 1.0, 1.0]), none)
    # Node 1 has 1, 1 and comes before node 0 with 1, 2.
    assert layout.place.tolist() == [3, 2, 0, 1]
    layout = layout.refined(np.array([1.0, 5.0, 3.0, 2.0]), none)
    assert layout.place.tolist() == [3, 2, 1, 0]
