"""Comparisons over several seeds: folders, comparison.json, resuming, common run times."""

from __future__ import annotations

import json
import math
import multiprocessing
import re
import shutil
import statistics
from pathlib import Path

import pytest
from tests.support.command import outpace as command
from tests.support.command import refused

from outpace.cluster.faults import RandomFaults
from outpace.errors import ConfigError, OutpaceWarning
from outpace.experiment.compared import compared
from outpace.experiment.comparison import compare, variants_from
from outpace.support.estimates import NOTHING

# w from 1 by gradient w: the loss w^2 / 2 falls with every iteration, whatever the run times.
BASE = {
    "task": {"kind": "quadratic", "eigenvalues": [1.0]},
    "workers": 2,
    "compute": {"kind": "exponential", "mean_s": 1.0},
    "sync": {"kind": "bsp"},
    "optimizer": {"lr": 0.5},
    "evaluate": {"every_updates": 1},
    "target": {"loss": 0.01},
    "stop": {"iterations": 12},
}
VARIANTS = [
    {"name": "BSP"},
    {"name": "half as slow", "compute": {"kind": "exponential", "mean_s": 0.5}},
    {"name": "too short", "stop": {"iterations": 1}},
]

MEASURED = {"compute": {"kind": "measured", "samples": 3}}


def variants(*entries, **changes):
    return variants_from({**BASE, **changes, "variants": list(entries)}, "the test", Path())


def digests(rows):
    return [(row.summary["trace_digest"], row.summary["parameters_digest"]) for row in rows]


def test_every_variant_meets_the_same_run_times_seed_by_seed(tmp_path):
    rows = compare(variants(*VARIANTS), tmp_path / "out", seeds=3)
    assert [(row.variant.name, row.seed) for row in rows] == [
        (entry["name"], seed) for entry in VARIANTS for seed in range(3)
    ]
    bsp, half, short = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert bsp["name"] == "BSP"
    assert (bsp["seeds"], bsp["failed"], bsp["missed"], bsp["distinguishable"]) == (3, 0, 0, None)
    # The law draws the same numbers for both variants, so with half the mean every run takes
    # half the time (rounded to ns), and the interval of the paired ratio is a point.
    assert half["ratio_to_first"] == pytest.approx({"mean": 0.5, "low": 0.5, "high": 0.5}, rel=1e-6)
    assert half["distinguishable"] is True
    # A further run lies within the mean and 2.92 · √(1 + 1/3) deviations (Student's t, 2, 95 %).
    times = [row.summary["virtual_time_s"] for row in rows[:3]]
    reach = 2.91999 * math.sqrt(4 / 3) * statistics.stdev(times)
    assert bsp["run_s"]["mean"] == pytest.approx(statistics.fmean(times))
    assert bsp["run_s"]["high"] - bsp["run_s"]["mean"] == pytest.approx(reach, rel=1e-5)
    spread = bsp["time_to_target_s"]
    assert spread["low"] < spread["mean"] < spread["high"], "seeds draw different run times"
    assert short["missed"] == 3
    assert short["time_to_target_s"]["high"] is None
    assert short["ratio_to_first"]["high"] is None
    for entry in VARIANTS:
        for seed in range(3):
            folder = tmp_path / "out" / entry["name"] / f"seed-{seed}"
            assert json.loads((folder / "summary.json").read_text())["status"] == "complete"


FAULTS = {
    "workers": {"mtbf_s": 20.0},
    "servers": {"mtbf_s": 40.0},
    "schedule": [{"at_s": 3.0, "server": 0}, {"at_s": 4.0, "worker": 1}],
}


def test_failures_of_servers_are_for_the_variants_that_have_servers():
    entries = [{"name": "BSP"}, *({"name": kind, "sync": {"kind": kind}} for kind in PEERS)]
    with pytest.warns(OutpaceWarning, match=r"for the variants without servers \(ssgd, hpsgd\)$"):
        bsp, *others = variants(*entries, faults=FAULTS)
    assert bsp.experiment.faults.servers == RandomFaults(40.0)
    assert [fault.server for fault in bsp.experiment.faults.schedule] == [0, None]
    for variant in others:
        assert variant.experiment.faults.workers == bsp.experiment.faults.workers
        assert variant.experiment.faults.servers is None
        assert [fault.worker for fault in variant.experiment.faults.schedule] == [1]


PEERS = ("ssgd", "hpsgd")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (
            [{"name": kind, "sync": {"kind": kind}} for kind in PEERS],
            "the test: faults has failures of servers, and no variant has servers",
        ),
        (  # the configuration names its variants itself
            [{"name": "BSP"}, {"name": "ring", "sync": {"kind": "ssgd"}, "faults": FAULTS}],
            r"variants\[1\] .ring.: faults.servers: the strategy has no servers",
        ),
    ],
)
def test_failures_of_servers_that_are_for_no_variant_are_an_error(entries, message):
    with pytest.raises(ConfigError, match=message):
        variants(*entries, faults=FAULTS)


def test_without_a_target_variants_are_told_apart_by_accuracy(tmp_path):
    same = {"task": {"kind": "digits-mlp"}, "compute": {"kind": "constant", "mean_s": 1.0}}
    chosen = variants(
        {"name": "short", "stop": {"iterations": 1}},
        {"name": "again", "stop": {"iterations": 1}},
        {"name": "long", "stop": {"iterations": 60}},
        **same,
        target=None,
        evaluate={},
        optimizer={"lr": 0.1},
    )
    with pytest.warns(OutpaceWarning, match="the variants short and again are the same: "):
        short, again, long = compared(compare(chosen, seeds=3))
    assert short.time_to_target_s == NOTHING
    assert again.distinguishable is False
    assert long.distinguishable is True
    assert long.accuracy.low > short.accuracy.high
    assert long.accuracy.high <= 1.0


def test_times_to_different_accuracies_are_not_compared():
    chosen = variants(
        {"name": "half", "stop": {"iterations": 40, "target_accuracy": 0.5}},
        {"name": "low", "stop": {"iterations": 40, "target_accuracy": 0.1}},
        task={"kind": "digits-mlp"},
        target=None,
    )
    _, low = compared(compare(chosen, seeds=2))
    assert low.time_to_target_s.mean > 0
    assert low.ratio_to_first == NOTHING
    assert low.distinguishable is None


def test_what_a_user_warns_of_beside_is_said_once_with_its_place(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import warnings\n"
        "from outpace.sync import Asp\n"
        "class Mine(Asp):\n"
        "    def may_answer(self, pull, view):\n"
        "        warnings.warn('look here')\n"
        "        return Asp.may_answer(self, pull, view)\n"
    )
    mine = {"kind": "python", "target": f"{tmp_path / 'mine.py'}:Mine"}
    with pytest.warns(OutpaceWarning) as warned:
        compare(variants({"name": "A", "sync": mine}), tmp_path / "out", seeds=2, processes=2)
    (said,) = warned
    assert re.fullmatch("A: .*mine.py:5: UserWarning: look here", str(said.message))


def test_a_comparison_is_resumed_where_it_stopped(tmp_path):
    chosen, out = variants(*VARIANTS[:2]), tmp_path / "out"
    first = compare(chosen, out, seeds=2)
    kept = (out / "BSP" / "seed-0" / "summary.json").stat().st_mtime_ns
    partial = out / "BSP" / "seed-1" / "summary.json"
    partial.write_text(json.dumps({"status": "partial", "error": "the run was killed"}))
    for file in (out / "half as slow" / "seed-1").iterdir():
        file.unlink()
    rows = compare(chosen, out, seeds=2, resume=True)
    assert digests(rows) == digests(first)
    assert (out / "BSP" / "seed-0" / "summary.json").stat().st_mtime_ns == kept
    with pytest.raises(ConfigError, match="is not of BSP with seed 0 in this comparison"):
        compare(variants(*VARIANTS[:2], batch_size=7), out, seeds=2, resume=True)
    with pytest.raises(ConfigError, match="is not an empty folder"):
        compare(chosen, out, seeds=2)
    with pytest.raises(ConfigError, match="there is nothing to resume"):
        compare(chosen, tmp_path / "nowhere", seeds=2, resume=True)
    with pytest.raises(ConfigError, match="is not the folder of a comparison"):
        compare(chosen, out / "BSP" / "seed-0", seeds=2, resume=True)


def test_an_interrupted_comparison_leaves_whole_folders_that_say_so_and_is_resumed(tmp_path):
    # The long run is interrupted when the short one has ended, and not earlier.
    chosen = variants({"name": "short"}, {"name": "long", "stop": {"iterations": 300_000}})
    out = tmp_path / "out"

    def bar(share):
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(chosen, out, processes=2, progress=bar)
    assert multiprocessing.active_children() == []
    names = {path.name for path in (out / "short").iterdir()}
    assert {path.name for path in (out / "long").iterdir()} == names
    summary = json.loads((out / "long" / "summary.json").read_text())
    assert (summary["status"], summary["error"]) == ("partial", "interrupted")
    assert sum(summary["iterations"]) > 0, "the work until then is in the folder"
    (short,) = json.loads((out / "comparison.json").read_text())
    assert (short["name"], short["seeds"], short["missed"]) == ("short", 1, 0)


def test_a_process_that_is_killed_fails_its_own_run_only(tmp_path):
    chosen = variants({"name": "killed", "stop": {"iterations": 300_000}}, {"name": "BSP"})

    def bar(share):
        if 0.5 < share < 1:  # BSP has ended
            for process in multiprocessing.active_children():
                if process.name == "run-0":
                    process.kill()

    killed, bsp = compare(chosen, tmp_path / "out", processes=2, progress=bar)
    assert killed.error == (
        "the process of the run was killed by SIGKILL; compare again with --resume"
    )
    assert killed.summary["status"] == "partial"
    assert bsp.error is None
    first, _ = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert first["failed"] == 1
    (again,) = compare(variants({"name": "BSP"}), tmp_path / "again")
    assert again.summary["trace_digest"] == bsp.summary["trace_digest"]


def test_resuming_removes_nothing_that_is_not_an_unfinished_run(tmp_path):
    chosen, out = variants({"name": "BSP"}), tmp_path / "out"
    (out / "BSP").mkdir(parents=True)
    (out / "BSP" / "thesis.tex").write_text("precious")
    with pytest.raises(ConfigError, match="BSP is not of BSP with seed 0 in this comparison"):
        compare(chosen, out, resume=True)
    assert (out / "BSP" / "thesis.tex").read_text() == "precious"


def test_one_seed_and_several_seeds_are_not_mixed_by_resuming(tmp_path):
    chosen = variants({"name": "BSP"})
    compare(chosen, tmp_path / "one")
    with pytest.raises(ConfigError, match="BSP/seed-0 is not of BSP with seed 0"):
        compare(chosen, tmp_path / "one", seeds=2, resume=True)
    compare(chosen, tmp_path / "two", seeds=2)
    with pytest.raises(ConfigError, match="and the number of seeds that"):
        compare(chosen, tmp_path / "two", resume=True)
    assert len(compare(chosen, tmp_path / "two", seeds=3, resume=True)) == 3


def test_a_comparison_with_measured_run_times_is_resumed_with_the_same_ones(tmp_path):
    chosen = variants({"name": "BSP"}, {"name": "ASP", "sync": {"kind": "asp"}}, **MEASURED)
    out = tmp_path / "out"
    bsp, _ = compare(chosen, out)
    shutil.rmtree(out / "ASP")
    config = (out / "BSP" / "config.yaml").read_text()
    measured = re.search("seconds: .*?]", config, re.DOTALL)[0]
    replaced = "seconds: [0.25, 0.25, 0.25]"
    (out / "BSP" / "config.yaml").write_text(config.replace(measured, replaced))
    resumed = compare(chosen, out, resume=True)
    assert digests(resumed[:1]) == digests([bsp])
    assert "0.25" in (out / "ASP" / "config.yaml").read_text()


def test_seeds_beyond_the_largest_are_refused_before_anything_is_run(tmp_path):
    chosen = variants({"name": "BSP"}, seed=2**63 - 2)
    with pytest.raises(ConfigError, match="leaves no room for 3 seeds below"):
        compare(chosen, tmp_path / "out", seeds=3)
    for seeds in (0, 2.5, True):
        with pytest.raises(ConfigError, match="seeds must be from 1 to 1000, not"):
            compare(chosen, tmp_path / "out", seeds=seeds)
    assert not (tmp_path / "out").exists()
    assert len(compare(chosen, seeds=2)) == 2


CONFIG = """
task: {kind: quadratic, eigenvalues: [1.0]}
workers: 2
compute: {kind: exponential, mean_s: 1.0}
sync: {kind: bsp}
optimizer: {lr: 0.5}
evaluate: {every_updates: 1}
stop: {iterations: 12}
variants:
  - {name: BSP}
  - {name: half as slow, compute: {mean_s: 0.5}}
"""


def test_the_command_takes_seeds_and_a_target(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG)
    start = ("compare", "config.yaml", "--seeds", "2", "--target-loss", "0.01", "--out", "out")
    assert command(*start) == 0
    printed = capsys.readouterr().out
    assert "0.50 [0.50, 0.50]" in printed
    assert command(*start, "--resume") == 0
    assert capsys.readouterr().out == printed
    assert "is not an empty folder" in refused(capsys, *start)
    assert "--resume needs --out" in refused(capsys, "compare", "config.yaml", "--resume")
    both = refused(capsys, *start, "--target-accuracy", "0.9")
    assert "target: needs exactly one of accuracy and loss" in both
    lazy = ("compare", "config.yaml", "sync={kind: dsps, staleness: 1, buffer: lazy}")
    assert command(*lazy, "--seeds", "2") == 0
    assert capsys.readouterr().err.count("warning: BSP: sync.buffer: lazy holds a pull") == 1
    Path("config.yaml").write_text(CONFIG.partition("variants:")[0] + "seeds: 2")
    for other in ("simulate", "run"):
        assert "seeds: only outpace compare runs several" in refused(capsys, other, "config.yaml")
