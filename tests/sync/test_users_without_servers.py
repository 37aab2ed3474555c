"""A user's strategy without servers counts as one without servers, everywhere."""

from __future__ import annotations

import json

import pytest

import outpace
from outpace.config.reading import experiment_from
from outpace.engine.servers import is_exact
from outpace.errors import ConfigError
from outpace.experiment.advising.candidates import OWN, candidates, usable
from outpace.record import folder as files
from outpace.report.explaining.tables import read_tables

MINE = """\
from dataclasses import dataclass
from typing import ClassVar

from outpace.sync import Asp, Gossip, PeerStrategy, Ssgd, iterations


@dataclass(frozen=True)
class Mean(PeerStrategy):
    every: int = 1

    averages_gradients: ClassVar[bool] = True
    can_be_saved: ClassVar[bool] = True

    async def train(self, me):
        model = me.common()
        async for iteration in iterations(me, model):
            reduced = await me.begin_all_reduce(iteration.gradient).result()
            if reduced.members:
                model.commit(reduced.mean, 1, reduced.weight)
            me.may_save(iteration.number + 1)


class Same(Mean):
    lockstep = True


class Pairs(Gossip):
    pass


class Policy(Asp):
    pass


def mean(every):
    return Mean(every)
"""
CONFIG = {
    "task": {"kind": "timing", "parameters": 1000},
    "workers": 4,
    "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.3},
    "stop": {"iterations": 20},
}
WITH_SERVERS = {
    "servers": 2,
    "push_time": {"kind": "constant", "mean_s": 0.001},
    "slicing": "layers",
    "overlap": "backward",
    "forward_share": 0.5,
    "non_finite": "stop",
    "on_server_loss": "stop",
    "checkpoint": {"every_s": 1.0},
    "network": {
        "latency_s": 0.001,
        "delays": [{"message": "push", "probability": 0.1, "seconds": 0.1}],
    },
    "faults": {"schedule": [{"at_s": 0.5, "server": 1}, {"at_s": 1.0, "worker": 1}]},
}


@pytest.fixture
def sync(tmp_path, monkeypatch):
    """Return the key `sync` for a class in a file that is not in the current folder."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    def made(name="Mean", **arguments):
        more = {"arguments": arguments} if arguments else {}
        return {"kind": "python", "target": "mine.py:" + name, **more}

    return made


def cluster(tmp_path, servers):
    """Write a cluster file that was calibrated with this many servers."""
    service = "push_time: {kind: constant, mean_s: 0.01}\n" if servers else ""
    text = f"{service}network: {{latency_s: 0.001}}\ncalibrated: {{workers: 4, servers: {servers}}}"
    (tmp_path / "cluster.yaml").write_text(text)
    return {**CONFIG, "include": "cluster.yaml"}


@pytest.mark.parametrize("name", ["Mean", "mean"])
def test_a_cluster_file_leaves_out_what_is_about_servers(tmp_path, sync, name):
    data = {**cluster(tmp_path, servers=2), "sync": sync(name, every=1)}
    experiment = experiment_from(data, "run.yaml", tmp_path)
    experiment.load_user_code()
    assert experiment.push_time is None
    assert experiment.servers_in_run == 0


def test_a_cluster_file_of_all_reduces_fits_who_sends_no_other_messages(tmp_path, sync):
    data = cluster(tmp_path, servers=0)
    experiment_from({**data, "sync": sync()}, "run.yaml", tmp_path).load_user_code()
    for other in ("Pairs", "Policy"):
        with pytest.raises(ConfigError, match="describes only messages of all-reduces"):
            experiment_from({**data, "sync": sync(other)}, "run.yaml", tmp_path)


def test_advice_takes_it_for_what_it_is(tmp_path, sync):
    found, refused = usable({**CONFIG, "sync": sync()}, "run.yaml", tmp_path)
    own = found[-1]
    assert own.name == OWN
    assert not own.has_servers
    assert not refused.keys() - {"partial push and pull"}
    own.experiment({**CONFIG, **WITH_SERVERS}, "run.yaml").load_user_code()


def test_advice_leaves_out_the_keys_that_a_strategy_without_servers_is_refused_for():
    """Earlier the advice kept `on_server_loss` and `forward_share`, and left out checkpoints."""
    alone = [each for each in candidates(4) if not each.has_servers]
    assert {each.sync["kind"] for each in alone} >= {"ssgd", "gossip", "hpsgd"}
    for each in alone:
        experiment = each.experiment({**CONFIG, **WITH_SERVERS}, "run.yaml")
        assert experiment.checkpoint is not None
        assert [fault.server for fault in experiment.faults.schedule] == [None]


@pytest.mark.parametrize(
    ("name", "lockstep", "exchanges"),
    [("Mean", False, False), ("Same", True, False), ("Pairs", False, True)],
)
def test_the_summary_says_what_it_declares_and_explain_reads_it(
    tmp_path, sync, name, lockstep, exchanges
):
    experiment = experiment_from({**CONFIG, "sync": sync(name)}, "run.yaml", tmp_path)
    assert is_exact(experiment) is lockstep
    outpace.simulate(experiment, tmp_path / name)
    summary = json.loads((tmp_path / name / files.SUMMARY).read_text())
    assert (summary["lockstep"], summary["exchanges"]) == (lockstep, exchanges)
    assert (read_tables(tmp_path / name).rounds is None) is exchanges
