"""Scripts with DistributedDataParallel do the same under Outpace as with Gloo."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.support.gloo import run_with_gloo
from tests.support.paths import SCRIPTS

from outpace.errors import ConfigError
from outpace.experiment.running import run, simulate

pytestmark = pytest.mark.slow
SCRIPT = SCRIPTS / "ddp_cases.py"
RUNTIMES = {"real": run, "virtual": simulate}
CASES = [
    "averages",
    "bucket_view",
    "closure",
    "compiled",
    "compressed",
    "differentiable",
    "evaluates",
    "frozen",
    "join",
    "lbfgs",
    "passes",
    "scaler",
    "static_graph",
    "two_models",
    "two_optimizers",
    "unused",
    "unusual",
    "zero",
]


def configuration(*cases: str, **changes: Any) -> dict[str, Any]:
    task = {"kind": "script", "path": str(SCRIPT), "arguments": list(cases)}
    law = {"kind": "constant", "mean_s": 0.01}
    return {"task": task, "workers": 2, "sync": {"kind": "ssgd"}, "compute": law, **changes}


def of_worker_0(output: str) -> list[str]:
    """Return the lines of worker 0 in the output of a run, without its name."""
    start = "worker-0 | "
    return [line.removeprefix(start) for line in output.splitlines() if line.startswith(start)]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_with_ssgd_every_case_is_bitwise_that_of_gloo(runtime, tmp_path, capfd):
    """The real run uses a user's class that derives from SSGD, with the same results."""
    run_with_gloo(SCRIPT, CASES, 2, output=tmp_path / "output.txt")
    (tmp_path / "mine.py").write_text("from outpace.sync import Ssgd\n\nclass Mine(Ssgd): pass\n")
    sync = {"kind": "python", "target": f"{tmp_path}/mine.py:Mine"}
    changes = {"sync": sync} if runtime == "real" else {}
    result = RUNTIMES[runtime](configuration(*CASES, **changes))
    expected = (tmp_path / "output.txt").read_text().splitlines()
    assert [line for line in expected if line.startswith("case ")] == [f"case {c}" for c in CASES]
    assert of_worker_0(capfd.readouterr().out) == expected
    assert result.summary["status"] == "complete"
    assert result.summary["warnings"] == []


NOT_IN_DDP = "the script trains a model that is not in DistributedDataParallel"
WRONG = {
    "no_group": (ConfigError, r"or torch.distributed.init_process_group, so there is nothing to"),
    "never_trains": (
        ConfigError,
        r"but trained no model in DistributedDataParallel by an optimizer",
    ),
    "wrong_size": (ConfigError, r"init_process_group at ddp_cases.py:\d+ has world_size=3, but th"),
    "attaches": (ConfigError, r"this script calls outpace.attach and torch.distributed.init_proce"),
    "own_update": (ConfigError, r"DistributedDataParallel is trained without an optimizer, and"),
    "by_hand": (ConfigError, rf"ddp_cases.py:\d+: {NOT_IN_DDP}"),
    "sharded": (ConfigError, rf"ddp_cases.py:\d+: {NOT_IN_DDP}"),
    "tensor_parallel": (ConfigError, rf"ddp_cases.py:\d+: {NOT_IN_DDP}"),
    "subgroup": (ConfigError, r"new_group at ddp_cases.py:\d+ has the ranks \[0\] of 2 processes"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_supported_is_refused_in_a_line(case):
    kind, words = WRONG[case]
    with pytest.raises(kind, match=words) as caught:
        simulate(configuration(case))
    assert "\n" not in str(caught.value)


def test_parts_of_torch_that_are_not_supported_are_refused_where_they_are_used(capfd):
    simulate(configuration("unsupported"))
    found = [line for line in of_worker_0(capfd.readouterr().out) if "Error" in line]
    assert [" ".join(line.split()[1:2]) for line in found] == [
        "init_rpc",
        "split_group",
        "send",
        "recv",
        "new_group",
        "new_group",
    ]
    for line in found:
        assert re.match(r"ConfigError: \w+ at ddp_cases.py:\d+", line)
        assert "supported are DistributedDataParallel and coll" in line or "all processes" in line


BSP = {"kind": "bsp"}


@pytest.mark.parametrize(
    ("runtime", "case", "steps"),
    [
        ("virtual", "join", [4, 5]),
        ("virtual", "closure", [6, 6]),
        ("virtual", "unused", [6, 6]),
        ("real", "closure", [6, 6]),
    ],
)
def test_with_other_strategies_join_closures_and_unused_parameters_need_nothing(
    runtime, case, steps, capfd
):
    """The first forward pass in a closure of a step, as in PyTorch Lightning, begins the run."""
    result = RUNTIMES[runtime](configuration(case, sync=BSP))
    assert result.summary["iterations"] == steps
    *_, last = of_worker_0(capfd.readouterr().out)
    assert last.startswith("digest")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("by_hand", rf"ddp_cases.py:\d+: {NOT_IN_DDP}"),
        ("two_models", r"trains two models with DistributedDataParallel, but sync.kind=bsp exch"),
        ("two_optimizers", r"has 2 optimizers \(SGD, SGD\), but sync.kind=bsp needs one that has"),
        ("own_update", r"the model in DistributedDataParallel is trained without an optimizer"),
        ("comm_hook", r"a communication hook at ddp_cases.py:\d+: with sync.kind=bsp Distribute"),
    ],
)
def test_what_only_ssgd_can_do_is_refused_with_other_strategies(case, words):
    with pytest.raises(ConfigError, match=words):
        simulate(configuration(case, sync=BSP))


QUORUM = {"kind": "drop-stragglers", "quorum": 1}
CUT_OFF = {"kind": "cutoff", "model": "fixed", "share": 0.5}
# In the time of worker 1's first step, worker 0 takes three and waits in the script's all-reduce.
ONE_SLOW = {"kind": "constant", "mean_s": 0.03, "factors": [1, 8]}


@pytest.mark.parametrize(
    ("runtime", "sync"),
    [("virtual", QUORUM), ("virtual", CUT_OFF), ("real", CUT_OFF)],
    ids=["virtual-quorum", "virtual-cutoff", "real-cutoff"],
)
def test_workers_wait_in_collectives_of_the_script_where_late_workers_skip_iterations(
    runtime, sync
):
    result = RUNTIMES[runtime](configuration("evaluates", sync=sync, compute=ONE_SLOW))
    assert result.summary["iterations"] == [6, 6]
    waits = [row for row in result.trace.to_pylist() if row["event"] == "collective"]
    # Before each of the two all-reduces, worker 1 takes at least two more steps of 240 ms alone.
    long = [row for row in waits if row["end_ns"] - row["start_ns"] > 200e6]
    assert {row["worker"] for row in long} == {0}
    assert len(long) == result.summary["collectives"]["count"] == 2


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_worker_at_the_last_iteration_ends_the_wait_for_it(runtime, capfd):
    changes = {"sync": QUORUM, "compute": ONE_SLOW, "stop": {"iterations": 4}}
    result = RUNTIMES[runtime](configuration("evaluates", **changes))
    assert result.summary["status"] == "complete"
    # Worker 0 waits after iteration 2. The second step of worker 1 is iteration 3, the last; on a
    # busy computer it may be the third.
    assert result.summary["iterations"] in ([3, 2], [3, 3])
    printed = capfd.readouterr()
    assert (printed.out + printed.err).count("stop.iterations is reached") == 2
