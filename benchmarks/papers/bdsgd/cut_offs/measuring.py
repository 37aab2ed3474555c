"""Measures the rules of an experiment on its clusters: runs to fit to, and runs to test on."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from benchmarks.papers.bdsgd.cut_offs.clusters import (
    PAPERS_EVENT,
    SPEEDS,
    Recorded,
    drifting,
    four_nodes,
    random_events,
    switching_nodes,
)
from benchmarks.papers.bdsgd.cut_offs.results import Kept, Row
from benchmarks.papers.bdsgd.cut_offs.truth import Knowing, Law
from benchmarks.released_jobs import read_alibaba, read_bytedance
from torch import Tensor

from outpace.errors import ConfigError
from outpace.predict import models
from outpace.predict.interface import Filter, Model, Rule
from outpace.predict.recorded import Nodes, RunTimes
from outpace.predict.replay import Replay, replay
from outpace.predict.rules.comparing import Hedge
from outpace.predict.rules.making import HEDGED, make_rule
from outpace.predict.rules.settings import LEARNED, CutOffSettings
from outpace.tasks.data.files import DATA

FIT_SEED: Final = 10_000  # runs for learning have seeds from here on
FIT_SHARE: Final = 0.6  # of a recording
LARGE: Final = 512  # workers, above
_SEES_NOTHING: Final = ("all", "fixed", "elfving")  # of cut-offs; Elfving learns before the first


@dataclass(frozen=True, eq=False)
class Cluster:
    """Runs for fitting, and run n for testing. real: True for a recording, which is one run."""

    fit: Callable[[], list[RunTimes]]
    test: Callable[[int], Recorded]
    real: bool = False


@cache
def clusters() -> dict[str, Cluster]:
    """Return the clusters by name. Those that are recordings need the folder OUTPACE_DATA."""
    folder = os.environ.get(DATA, ".")
    found = {"i": Cluster(_four_nodes_fit, partial(four_nodes, 200, events=[PAPERS_EVENT]))}
    for name, speed in SPEEDS.items():
        run = partial(drifting, 200, speed=speed)
        found[f"ii-{name}"] = Cluster(partial(_runs, run, 1), run)
    fit = partial(_runs, partial(switching_nodes, 300), 4)
    found["iii"] = Cluster(fit, partial(switching_nodes, 320))
    alibaba = Path(folder) / "alibaba-pai-minibatch-time" / "job_1_norm.csv"
    bytedance = Path(folder) / "bytedance-straggler" / "trace-SE.npz"
    found["alibaba-1"] = _recording(partial(read_alibaba, alibaba))
    found["bytedance-SE"] = _recording(partial(read_bytedance, bytedance))
    return found


def _runs(run: Callable[[int], Recorded], count: int) -> list[RunTimes]:
    return [run(FIT_SEED + n).times for n in range(count)]


def _four_nodes_fit() -> list[RunTimes]:
    random = np.random.default_rng(FIT_SEED)
    return [
        four_nodes(200, FIT_SEED + n, events=random_events(200, random)).times for n in range(6)
    ]


def _recording(times: Callable[[], RunTimes]) -> Cluster:
    def fit() -> list[RunTimes]:
        first = slice(round(FIT_SHARE * times().iterations))
        return [RunTimes(times().seconds[first], times().censored[first], times().node)]

    def test(_: int) -> Recorded:
        rest = slice(round(FIT_SHARE * times().iterations), None)
        return Recorded(times().seconds[rest], times().node)

    return Cluster(fit, test, real=True)


@dataclass(frozen=True, eq=False)
class Truth:
    """A model that knows the law, in place of a fitted one."""

    law: Callable[[int], Law]
    kind: ClassVar[str] = "pooled"
    needs: ClassVar[int] = 1

    def follow(self, node: Nodes, seed: int) -> Filter:
        return Knowing(self.law, seed)

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def settings(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Settings:
    seed: int
    seeds: int
    warmup: int
    samples: int

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Settings:
        return cls(**{name: data[name] for name in cls.__dataclass_fields__})


@cache
def fitted(cluster: Cluster, kind: str, seed: int) -> Model:
    """Return a model fitted to a cluster."""
    return models.fit(kind, cluster.fit(), seed=seed)


def measure_rules(data: Mapping[str, Any]) -> Kept:
    """Measure every rule of an experiment on every cluster, and print Ω as it is known.

    Raises:
        ConfigError: for a cluster that does not exist.
    """
    known = clusters()
    if unknown := set(data["clusters"]) - set(known):
        raise ConfigError(f"no cluster {', '.join(unknown)}; known: {', '.join(known)}")
    settings = Settings.of(data)
    found: Kept = {}
    for name in data["clusters"]:
        cluster = known[name]
        is_large = len(cluster.test(settings.seed).node) > LARGE
        left_out = data["not_if_large"] if is_large else ()
        same: dict[str, Row] = {}  # whatever is observed
        for observation in data["observations"]:
            rows: dict[str, Row] = {}
            for rule in data["rules"]:
                if rule in left_out or (rule.startswith("true") and cluster.real):
                    continue
                row = same.get(rule)
                if row is None:
                    censored = observation == "censored"
                    runs = measure(cluster, rule, settings, censored=censored)
                    model, _, decision = rule.partition(" ")
                    row = Row.of(runs)
                    print(f"{name}, {observation}, {rule}: {row.omega:.2f} %", flush=True)
                    if model in _SEES_NOTHING or (model == "true" and decision != "hedge"):
                        same[rule] = row
                rows[rule] = row
            found[name, observation] = rows
    return found


def measure(cluster: Cluster, name: str, settings: Settings, *, censored: bool) -> list[Replay]:
    """Replay this rule on every test run, without the warm-up."""
    found = []
    for repeat in range(1 if cluster.real else settings.seeds):
        run = cluster.test(settings.seed + repeat)
        rule = _rule(name, run, cluster, settings, settings.seed + repeat)
        found.append(replay(rule, run.seconds, censored=censored).since(settings.warmup))
    return found


def _rule(name: str, run: Recorded, cluster: Cluster, settings: Settings, seed: int) -> Rule:
    model, _, decision = name.partition(" ")

    def make(
        model: str,
        decision: str | None = None,
        known: Model | None = None,
        warmup: int = settings.warmup,
    ) -> Rule:
        rule: Any = CutOffSettings
        chosen = rule(model, decision, warmup=warmup, samples=settings.samples)
        return make_rule(chosen, node=run.node, fitted=known, seed=seed, say=_not_here)

    if model == "rolling":  # the hedge without a model
        return Hedge([make(name, warmup=0) for name in HEDGED], warmup=settings.warmup)
    if model == "true":
        assert run.law is not None
        return make("pooled", decision, Truth(run.law))
    if model in LEARNED:
        return make(model, decision or None, fitted(cluster, model, settings.seed))
    return make(model, decision or None)


def _not_here(why: str) -> None:
    raise AssertionError(why)
