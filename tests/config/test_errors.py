"""The errors of all sections of a configuration are in one message."""

from __future__ import annotations

import pytest
from tests.support.paths import SCRIPTS

from outpace.cluster.laws import Constant
from outpace.config.experiment import Experiment
from outpace.config.goals import Stop
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.support.yaml_files import parse_yaml, with_overrides, write_yaml
from outpace.sync import Bsp
from outpace.tasks import PythonTask, Timing

BASE = """\
task: {kind: timing}
workers: 4
compute: {kind: lognormal, mean_s: 0.1, cv: 0.1}
network: {latency_s: 0.001}
sync: {kind: ssp, staleness: 3}
stop: {iterations: 20}
"""


def problems(*overrides: str) -> set[str]:
    """Return the lines of the refusal, without the name of the source."""
    with pytest.raises(ConfigError) as error:
        experiment_from(with_overrides(parse_yaml(BASE, "base"), overrides), "x.yaml")
    lines = str(error.value).split("\n")
    assert all(line.startswith("x.yaml: ") for line in lines)
    assert len(set(lines)) == len(lines)
    return {line.removeprefix("x.yaml: ") for line in lines}


def test_ranges_of_the_whole_configuration_and_of_its_sections():
    assert problems("workers=0", "batch_size=0", "forward_share=1") >= {
        "workers must be at least 1, not 0",
        "batch_size must be at least 1, not 0",
    }
    assert problems("sync.staleness=-1", "compute.mean_s=0", "compute.cv=-1") == {
        "sync.staleness must be at least 0, not -1",
        "compute.mean_s must be above 0, not 0",
        "compute.cv must be at least 0, not -1",
    }


def test_keys_kinds_types_ranges_and_what_is_missing():
    assert problems(
        "servrs=2",
        "servers=2.5",
        "sync.kind=spp",
        "network.log=3",
        "compute.kind=constant",
        "pull={quorum_percent: 0}",
    ) == {
        "servrs: unknown key. Did you mean 'servers'?",
        "servers must be a whole number, not 2.5",
        "sync.kind: unknown kind 'spp'. Did you mean 'ssp'?",
        "network.log must be true or false, not 3",
        "compute.mean_s is missing",
        "pull.quorum_percent must be above 0, not 0",
    }


def test_a_mistyped_key_that_is_required_is_one_problem():
    assert problems("compute={kind: constant, mean: 1}") == {
        "compute.mean: unknown key. Did you mean 'mean_s'?"
    }


def test_a_key_of_a_section_at_the_wrong_place_is_named_with_its_section():
    assert problems("lr=1", "mean_s=2") == {
        "lr: unknown key. Did you mean 'optimizer.lr'?",
        "mean_s: unknown key. Did you mean 'compute.mean_s'?",
    }
    (problem,) = problems("latency=1")  # no section has it
    assert problem.startswith("latency: unknown key. Known: ")


def test_entries_of_lists_and_mappings_are_named():
    slow = "compute.slow=[{workers: [0], factor: -1, from_s: -1}, {workers: [a], factor: 2}]"
    assert problems(slow, "network.nodes={worker-0: {latency_s: -2}, worker-1: 3}") == {
        "compute.slow[0].factor must be above 0, not -1",
        "compute.slow[0].from_s must be at least 0, not -1",
        "compute.slow[1].workers[0] must be a whole number, not 'a'",
        "network.nodes.worker-0.latency_s must be at least 0, not -2",
        "network.nodes.worker-1 must be a mapping, not 3",
    }


@pytest.mark.parametrize("key", ["push_time", "pull_time"])
def test_the_time_of_a_server_is_a_law_without_anything_about_workers(key):
    assert problems(f"{key}={{kind: constant, mean_s: -1}}") == {
        f"{key}.mean_s must be above 0, not -1"
    }
    assert problems(f"{key}={{kind: exponential, mean_s: 1, worker_cv: 0.1}}") == {
        f"{key}.worker_cv: only the law of run times, compute, can have it"
    }
    assert problems(f"{key}={{kind: exponential, mean_s: 1, factors: [1, 2, 1]}}", "servers=2") == {
        f"{key}.factors must be one for each of the 2 servers, not 3"
    }
    (unknown,) = problems(f"{key}={{kind: measured}}")
    assert unknown.startswith(f"{key}.kind: unknown kind 'measured'.")


def test_failures_of_a_script_are_refused_by_one_line_that_says_what_to_simulate():
    script = f"task={{kind: script, path: {SCRIPTS / 'plain.py'}}}"
    (line,) = problems(script, "stop={}", "faults={workers: {mtbf_s: 60}}")
    assert line.startswith("faults: failures of scripts are not simulated")
    assert "outpace calibrate RUN -o cluster.yaml" in line
    assert "task: {kind: timing" in line


def test_what_is_wrong_in_each_entry_of_a_schedule_is_said_at_once():
    schedule = "[{at: 1, worker: 9}, {at_s: -1, worker: 0}, {at_s: 1, worker: one}, {at_s: 1}]"
    assert problems(f"faults.schedule={schedule}") == {
        "faults.schedule[0].at: unknown key. Did you mean 'at_s'?",
        "faults.schedule[1].at_s must be at least 0, not -1",
        "faults.schedule[2].worker must be a whole number, not 'one'",
        "faults.schedule[3]: needs exactly one of worker and server",
    }
    schedule = "[{at_s: 1, worker: 9}, {at_s: 1, server: 2}]"
    assert problems(f"faults.schedule={schedule}") == {
        "faults.schedule[0].worker must be from 0 to 3, not 9",
        "faults.schedule[1].server must be from 0 to 0, not 2",
    }


def test_contradictions_are_named_together():
    slow = "compute.slow=[{workers: [7, 8], factor: 2}]"
    found = problems("stop={target_accuracy: 0.5}", slow, "network.nodes={w: {}}")
    assert {
        "stop.target_accuracy: the task 'timing' has no accuracy",
        "compute.slow.workers must be from 0 to 3, not 7",
        "compute.slow.workers must be from 0 to 3, not 8",
    } < found
    assert len(found) == 5


@pytest.mark.parametrize(
    ("overrides", "only"),
    [
        (["stop={iterations: many}"], "stop.iterations must be a whole number, not 'many'"),
        (["stop={target_accuracy: 0.5}", "task={kind: timng}", "evaluate={every_s: x}"], None),
        (["workers=0", "compute.slow=[{workers: [0], factor: 2}]"], "workers must be"),
        (["workers=many", "network.nodes={worker-9: {}}"], "workers must be a whole"),
    ],
)
def test_nothing_is_said_of_what_follows_from_an_error(overrides, only):
    found = problems(*overrides)
    assert len(found) == (1 if only else 2)
    assert not only or found.pop().startswith(only)


def test_values_from_python_are_refused_at_the_first_error():
    law = Constant(mean_s=1.0)
    with pytest.raises(ValueError, match="workers must be at least 1"):
        Experiment(task=Timing(), workers=0, compute=law, sync=Bsp(), stop=Stop(1))
    with pytest.raises(ValueError, match=r"target must be 'file\.py:function'"):
        PythonTask("nothing")


@pytest.mark.parametrize("text", ["4_000", "1_0.5", "_1"])
def test_underscores_make_text(text):
    assert parse_yaml(f"a: {text}\nb: [{text}]", "x") == {"a": text, "b": [text]}
    assert with_overrides({}, [f"a={text}"]) == {"a": text}
    assert parse_yaml(write_yaml({"a": text}), "x") == {"a": text}
    assert problems(f"workers={text}") == {f"workers must be a whole number, not {text!r}"}


def test_numbers_are_numbers():
    text = "[4000, 1e7, -3, .5, 0x1f, .inf, true, null, no, '4_000']"
    found = [4000, 1e7, -3, 0.5, 31, float("inf"), True, None, "no", "4_000"]
    assert parse_yaml(text, "x") == found


def test_a_path_that_cannot_be_one_is_refused():
    data = {**parse_yaml(BASE, "base"), "compute": {"kind": "trace", "path": "a\0b.csv"}}
    with pytest.raises(ConfigError, match="invalid path"):
        experiment_from(data, "x.yaml")


@pytest.mark.parametrize(
    "overrides",
    [
        ("servers=2", "sync=[{kind: ssp, staleness: 3, wire: bf16}, {kind: asp}]"),
        ("sync.wire=bf16", "sync_changes=[{at_s: 1, sync: {kind: asp}}]"),
    ],
)
def test_servers_that_would_use_two_precisions_are_refused(overrides):
    assert problems(*overrides) == {
        "sync.wire: workers send to all servers in one precision during the whole run: write the "
        "same wire in every policy, also in sync_changes"
    }


def test_nodes_of_one_machine_cannot_have_different_links():
    assert problems(
        "servers=1",
        "network.machines={a: [worker-0, worker-1, server-0]}",
        "network.nodes={'worker-*': {latency_s: 1}, server-0: {latency_s: 2}}",
        "network.pairs=[{between: [worker-0, server-0], latency_s: 1}]",
    ) == {
        "network.pairs: worker-0 and server-0 are one machine (network.machines)",
        "network.nodes: worker-0 and worker-1 and server-0 are one machine "
        "(network.machines), so latency_s cannot be 1.0 and 1.0 and 2.0",
    }
