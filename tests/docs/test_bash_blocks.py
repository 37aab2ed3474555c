"""Every command in the blocks of the pages is accepted by the program that it calls.

Commands of outpace run in this process, in order, in a folder that has what the page assumes. A
small run, made once, takes the place of every training and fit. What is left is real: options,
overrides, configurations, files that earlier commands of the page wrote, and reports.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.docs.blocks import Block, cases, name, pages
from tests.support.command import outpace as command
from tests.support.paths import EXAMPLES, ROOT
from tests.support.profiles import gloo
from tests.support.recorded_as_real import as_real

import outpace
from outpace.experiment.advising.problem import problem_of
from outpace.experiment.compared import Comparison, Row
from outpace.experiment.sweeping.space import applied, dimensions_of, first_valid
from outpace.record.folder import read_summary
from outpace.report.advice.result import AdviceResult, CandidateResult
from outpace.report.sweeps.result import Candidate, Objective
from outpace.support.estimates import NOTHING
from outpace.support.targets import Target

EXPERIMENT = """
task: {kind: digits-mlp}
workers: 4
compute: {kind: lognormal, mean_s: 1.0, cv: 0.3}
sync: {kind: bsp}
stop: {iterations: 24}
"""
# Programs that are not ours, and that a page may call as it likes.
OTHERS = {"cd", "export", "pip", "python", "python3", "ray", "srun", "torchrun", "uv"}
# Folders of runs that a page takes as given.
GIVEN = ["runs/demo/BSP/seed-0", "runs/experiment"]


@pytest.fixture(scope="module")
def small_run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("small") / "run"
    config = folder.parent / "experiment.yaml"
    config.write_text(EXPERIMENT)
    outpace.simulate(config, folder, network={"latency_s": 1e-3, "log": True})
    return folder


@pytest.fixture(scope="module")
def real_run(small_run) -> Path:
    """The small run as if it had been real."""
    folder = small_run.with_name("real")
    shutil.copytree(small_run, folder)
    link = {"latency_s": lambda _: 1e-3, "bandwidth": lambda _: 1e8}
    as_real(folder, **link, push_s=0.0, pull_s=0.0)
    return folder


@pytest.fixture
def instead(monkeypatch, tmp_path, small_run, real_run):
    """Put a small run where a run would be, and a file where a fitted model would be."""

    def made(whole):
        def run(experiment, folder, resume=None, **_):
            if resume is None:
                shutil.copytree(whole, folder, dirs_exist_ok=True)
            return SimpleNamespace(summary=read_summary(whole))

        return run

    one = made(small_run)

    def several(variants, folder, *, seeds=1, **_):
        rows = []
        for variant in variants:
            for seed in range(seeds):
                place = folder / variant.name
                result = one(variant.experiment, place / f"seed-{seed}" if seeds > 1 else place)
                rows.append(Row(variant, seed, result.summary, None))
        return Comparison(rows)

    def sweeping(source, over, out, **_):
        space = dimensions_of(over)

        def make(values):
            data = {k: v for k, v in source.data.items() if k not in ("variants", "seeds")}
            return source._replace(data=applied(data, values)).experiment()

        experiment = first_valid(make, space)
        best = Candidate(0, {each.key: each.values[0] for each in space}, "complete", 1.0)
        return outpace.Sweep(
            source.name,
            "complete",
            Objective("time"),
            space,
            "all 1",
            (0,),
            (best,),
            1.0,
            1.0,
            experiment,
            None,
            out,
        )

    def advising(source, folder, *, target_accuracy, target_loss, lr_argument, only, **_):
        target = Target(target_accuracy, target_loss)
        problem = problem_of(source, target, lr_argument, only)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "recommended.yaml").write_text(EXPERIMENT)
        bsp = CandidateResult("BSP", {}, True, NOTHING, None, False, 1, 0)
        return outpace.Advice(
            AdviceResult("", "complete", target, "", 1, "bsp", "BSP", problem.data, (bsp,))
        )

    for target, function in {
        "outpace.experiment.advising.advise.advise": advising,
        "outpace.experiment.sweeping.sweep.sweep": sweeping,
        "outpace.experiment.running.simulate": one,
        "outpace.experiment.running.run": made(real_run),
        "outpace.experiment.comparison.compare": several,
        "outpace.experiment.scaling.scaled": lambda *_, **__: "",
        "outpace.predict.models.fit": lambda *_, **__: None,
        "outpace.predict.models.save": lambda _, path: path.write_text(""),
        "outpace.predict.models.load": lambda _: None,
        "outpace.predict.trials.trials": lambda *_, **__: [],
    }.items():
        monkeypatch.setattr(target, function)
    for given in GIVEN:
        shutil.copytree(real_run, tmp_path / given)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    (tmp_path / "comparison.yaml").write_text(f"{EXPERIMENT}variants: [{{name: BSP}}]\n")
    (tmp_path / "train.py").write_text("import outpace\n")
    (tmp_path / "traces").mkdir()
    for rank in range(2):
        trace = gloo(rank, 80 + 20 * rank, 25, slowest=100)
        trace.write(tmp_path / "traces" / f"rank{rank}.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commands(text: str) -> list[list[str]]:
    """Split a block into commands and their words, without comments and variables before them."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words:
            found.append(words)
    return found


@pytest.mark.parametrize("found", pages("bash"))
def test_every_command_of_outpace_on_a_page_is_accepted(found: list[Block], instead, capsys):
    ours = [
        (name(block), words)
        for block in found
        for words in commands(block.text.replace("$PWD", str(instead)))
        if words[0] == "outpace"
    ]
    if ["outpace", "examples", "examples"] not in [words for _, words in ours]:
        shutil.copytree(EXAMPLES, "examples")  # a copy, for a command might write there
    for place, words in ours:
        assert command(*words[1:]) == 0, f"{place}: {words}\n{capsys.readouterr().err}"


@pytest.mark.parametrize("block", cases("bash"))
def test_every_other_command_is_a_known_program_or_target(block: Block):
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for words in commands(block.text):
        if words[0] == "make":
            assert set(words[1:]) <= set(targets), words
        else:
            assert words[0] in OTHERS | {"outpace"}, words
