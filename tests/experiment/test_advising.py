"""Advice on real runs in virtual time: its files, its pairs of runs, and its refusals."""

import json
import shlex

import pytest
from tests.support.recorded_as_real import as_real

import outpace
from outpace.cli import main
from outpace.errors import OutpaceWarning
from outpace.experiment.advising import advise, phases, recording, study
from outpace.experiment.advising.curves import FRESH, SEARCH, Trial
from outpace.experiment.advising.problem import problem_of
from outpace.experiment.advising.study import Study
from outpace.experiment.sources import source_of
from outpace.real.ray import connecting
from outpace.support.targets import Target
from outpace.support.yaml_files import read_yaml

CONFIG = {
    "task": {"kind": "quadratic", "eigenvalues": [1.0, 0.3], "noise": 0.02},
    "workers": 4,
    "servers": 2,
    "compute": {"kind": "constant", "mean_s": 0.1, "factors": [1.0, 1.0, 1.0, 5.0]},
    "network": {"latency_s": 0.001, "bandwidth_bytes_per_s": 1e8},
    "optimizer": {"lr": 0.1},
    "stop": {"virtual_time_s": 20.0},
}
ONLY = ["drop-stragglers"]


@pytest.fixture(scope="module")
def advice(tmp_path_factory):
    out = tmp_path_factory.mktemp("advice") / "my out"
    phases = []
    found = outpace.advise(
        CONFIG,
        out,
        target_loss=0.05,
        seeds=3,
        only=ONLY,
        show=lambda *each: phases.append(each[0]),
    )
    assert list(dict.fromkeys(phases)) == [
        "a run of BSP",
        "search",
        "fresh seeds",
    ]
    return found


def test_the_advice_says_which_strategy_and_how_sure(advice):
    data = json.loads((advice.folder / "advice.json").read_text())
    assert data["strategy"] in ONLY  # one worker is five times slower
    assert data["distinguishable"] is True
    assert 1 < data["speedup_over_bsp"]["low"] <= data["speedup_over_bsp"]["mean"]
    assert data["speedup_over_all_reduce"]["low"] > 1
    assert (data["status"], data["more_s"], data["seeds"]) == ("complete", None, [0, 1, 2])
    names = [each["name"] for each in data["candidates"]]
    assert names[:2] == ["BSP", "all-reduce"]
    for each in data["candidates"]:
        assert set(each["time_to_target_s"]) == {"mean", "low", "high"}
        assert isinstance(each["reached"], bool)
        assert each["sync"]["kind"]
    assert shlex.split(data["command"])[2:] == [str(advice.folder / "recommended.yaml")]
    pair = data["one_run"]["speedup_over_bsp"]
    assert pair["low"] < data["speedup_over_bsp"]["mean"] < pair["high"]
    assert data["time_goes"]["BSP"]["wait"] > 0.4  # three of four workers wait 80 % of the time


def test_the_recommended_configuration_can_be_run_and_keeps_the_promise(advice):
    path = advice.folder / "recommended.yaml"
    assert read_yaml(path) == json.loads(json.dumps(advice.recommendation))
    short = {"virtual_time_s": 5.0}
    runs = [outpace.simulate(path, seed=seed, stop=short).summary for seed in (0, 1, 2)]
    taken = [run["time_to_target_s"] for run in runs]
    (promised,) = [e for e in advice.data["candidates"] if e["name"] == advice.data["name"]]
    assert sum(taken) / 3 == pytest.approx(promised["time_to_target_s"]["mean"])


def test_the_recommended_configuration_stops_at_the_target_of_the_advice():
    task = {"kind": "digits-mlp"}
    config = {**CONFIG, "task": task, "stop": {"iterations": 50, "target_accuracy": 0.9}}
    for target, stop in (
        (Target(accuracy=0.8), {"iterations": 50, "target_accuracy": 0.8}),
        (Target(loss=0.3), {"iterations": 50}),
    ):
        problem = problem_of(source_of(config, None, {}), target)
        assert problem.recommendation("BSP", 0.1, None)["stop"] == stop


def test_an_interrupted_study_prints_and_keeps_the_answer_so_far(tmp_path, capfd, monkeypatch):
    def interrupt(found, budget):
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "PHASES", ((SEARCH, phases.search), (FRESH, interrupt)))
    file, out = tmp_path / "x.yaml", tmp_path / "out"
    optimizer = {"lr": 0.1, "momentum": 0.01}
    own = {"optimizer": optimizer, "target": {"loss": 0.05}, "evaluate": {"every_s": 0.5}}
    file.write_text(json.dumps({**CONFIG, **own}))
    with pytest.raises(SystemExit) as ended:
        main(["advise", str(file), "--out", str(out), "--only", "asp"])
    assert ended.value.code == 130
    data = json.loads((out / "advice.json").read_text())
    assert (data["status"], data["strategy"]) == ("interrupted", "bsp")
    assert data["target"] == {"loss": 0.05}  # the name of the file
    assert data["speedup_over_bsp"] == {"mean": None, "low": None, "high": None}
    assert data["best"].startswith("ASP")  # it does not wait for other workers
    assert data["best_speedup"]["mean"] > 1
    assert data["more_s"] > 0
    assert "interrupted" in (out / "recommended.yaml").read_text()
    said = capfd.readouterr()
    assert f"{data['best']} is ahead" in said.out
    assert "on the search's seeds, which may be chance" in said.out
    assert "4 candidates; one run of BSP takes" in said.err
    assert f"this is the answer so far; it is in {out}" in said.err
    assert "not known" in (out / "report.html").read_text()
    (warning,) = data["warnings"]
    assert warning.startswith("ASP, over staleness and ASP: the optimizer has momentum 0.01, and")
    assert warning.partition(": ")[2] in said.err
    assert f"Warning: {warning}" in (out / "report.html").read_text()
    capfd.readouterr()

    def begin(study):
        raise outpace.RunError("the study has begun")

    monkeypatch.setattr(Study, "run", begin)
    for options, code, message in (
        (["--only", "asp"], 1, "the study has begun"),  # the same study, again
        (["--only", "asp", "--target-loss", "0.04"], 2, "has the advice of another study"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["advise", str(file), "--out", str(out), *options])
        assert ended.value.code == code
        assert message in capfd.readouterr().err
    assert json.loads((out / "advice.json").read_text()) == data


def test_an_interrupt_while_the_page_is_written_leaves_the_answer(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "PHASES", ((SEARCH, phases.search),))
    monkeypatch.setattr(advise, "write_advice_page", interrupt)
    with pytest.raises(advise.Interrupted) as ended:
        outpace.advise(CONFIG, tmp_path / "out", target_loss=0.05, only=["asp"])
    assert ended.value.advice.best.startswith("ASP")
    assert json.loads((tmp_path / "out/advice.json").read_text())["status"] == "complete"


def test_a_target_that_cannot_be_reached_says_what_was_reached(tmp_path):
    stop = {"virtual_time_s": 2.0}
    with pytest.raises(outpace.RunError, match=r"no run reached loss 1e-12 .* the best reached lo"):
        outpace.advise(CONFIG, target_loss=1e-12, stop=stop, only=["asp"])


def test_of_a_script_that_misses_the_target_no_learning_rate_is_named(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import outpace, torch\n"
        "model = torch.nn.Linear(1, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n"
        "model, optimizer = outpace.attach(model, optimizer)\n"
        "for _ in range(3):\n"
        "    optimizer.zero_grad()\n"
        "    model(torch.rand(2, 1)).mean().backward()\n"
        "    optimizer.step()\n"
        "    outpace.log(accuracy=0.5)\n"
    )
    data = {
        "task": {"kind": "script", "path": str(script)},
        "workers": 2,
        "compute": {"kind": "constant", "mean_s": 0.1},
    }
    with pytest.raises(outpace.RunError, match=r"reached accuracy 0.5, ") as caught:
        outpace.advise(data, target_accuracy=0.9, only=["asp"])
    assert "learning rate" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give exactly one target"),
        (["--target-accuracy", "1.5"], "target: accuracy must be at most 1, not 1.5\n"),
        (["--target-accuracy", "0.9"], "the task 'quadratic' has no accuracy"),
        (["--target-loss", "0.05", "--seeds", "1"], "seeds must be from 2"),
        (["--target-loss", "0.05", "--budget=-3m"], "--budget -3m: give a time such as 60s"),
        (["--target-loss", "0.05", "--budget", "x"], "--budget x: give a time such as 60s"),
        (["--target-loss", "0.05", "--budget", "0.01s"], "too small for one run of BSP"),
        (["--target-loss", "0.05", "--only", "sps"], "unknown kind 'sps'. Did you mean"),
        (["--target-loss", "0.05", "--lr-argument", "--lr"], "only a script has arguments"),
        (
            ["--target-loss", "0.05", "workers=1", "compute.factors=[1]", "--only", "gossip"],
            "there is nothing to choose from",
        ),
    ],
)
def test_what_is_refused_in_one_line(tmp_path, capfd, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text(json.dumps(CONFIG))
    with pytest.raises(SystemExit) as ended:
        main(["advise", "x.yaml", *arguments])
    assert ended.value.code in (1, 2)
    error = capfd.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not list((tmp_path / "runs").glob("*"))


def test_a_recording_that_failed_leaves_nothing_and_one_that_succeeded_is_taken_again(
    tmp_path, monkeypatch
):
    ran, out = [], tmp_path / "out"
    source = source_of({key: CONFIG[key] for key in CONFIG if key != "compute"}, None, {})

    def run(experiment, folder):
        ran.append(experiment.stop.iterations)
        folder.mkdir(parents=True)

    def failing(folders):
        raise outpace.ConfigError("too few iterations")

    def write(found, path):
        path.write_text("compute: {kind: constant, mean_s: 0.1}\n")
        path.with_name("cluster.run-times.parquet").touch()

    monkeypatch.setattr(recording, "run", run)
    monkeypatch.setattr(recording, "calibrate", failing)
    with pytest.raises(outpace.ConfigError, match="too few"):
        recording.recorded_cluster(source, out, lambda _: None)
    assert not out.exists()
    monkeypatch.setattr(recording, "calibrate", lambda folders: None)
    monkeypatch.setattr(recording, "write_calibration", write)
    with pytest.warns(OutpaceWarning, match="32 steps"):
        recording.recorded_cluster(source, out, lambda _: None)
    again = recording.recorded_cluster(source, out, lambda _: None)
    assert ran == [32, 32]
    assert recording.recorded_only(out)
    assert again.data["include"] == [str(out / "recorded" / "cluster.yaml")]
    other = source._replace(data={**source.data, "workers": 8})
    with pytest.raises(outpace.ConfigError, match="a recording of another configuration"):
        recording.recorded_cluster(other, out, lambda _: None)


def test_without_a_law_the_cluster_is_calibrated_from_real_steps_first(tmp_path, monkeypatch):
    """Real steps are replaced by simulated ones with a known law."""
    law = {"kind": "lognormal", "mean_s": 0.2, "cv": 0.1}

    def run(experiment, folder):
        assert experiment.compute is None
        service = {"kind": "constant", "mean_s": 1e-4}
        outpace.simulate(
            experiment,
            folder,
            compute=law,
            network={"latency_s": 0.001, "bandwidth_bytes_per_s": 1e8, "log": True},
            push_time=service,
            pull_time=service,
        )
        as_real(
            folder, latency_s=lambda _: 0.001, bandwidth=lambda _: 1e8, push_s=1e-4, pull_s=1e-4
        )

    def begin(study):
        raise outpace.RunError(f"{study._problem.data['include']}")

    monkeypatch.setattr(recording, "run", run)
    monkeypatch.setattr(Study, "run", begin)
    data = {key: CONFIG[key] for key in CONFIG if key not in ("compute", "network")}
    said, out = [], tmp_path / "out"
    with (
        pytest.warns(OutpaceWarning, match="32 steps"),
        pytest.raises(outpace.RunError, match=r"cluster\.yaml"),
    ):
        outpace.advise(data, out, target_loss=0.05, only=["asp"], say=said.append)
    assert said == ["no cluster file: 32 steps of BSP are recorded on real processes"]
    assert read_yaml(out / "recorded" / "cluster.yaml")["compute"]["mean_s"] == pytest.approx(
        0.2, rel=0.05
    )


def test_real_steps_are_recorded_before_the_connection_to_the_cluster_of_on(monkeypatch, tmp_path):
    """Otherwise a launcher `ray` with another address would record on that cluster."""
    order = []

    def record(source, *_):
        order.append("recorded")
        return source._replace(data=source.data | {"compute": CONFIG["compute"]})

    def connect(*_):
        order.append("connected")
        raise outpace.ConfigError("there is no cluster")

    monkeypatch.setattr(advise, "recorded_cluster", record)
    monkeypatch.setattr(connecting, "connected", connect)
    data = {key: CONFIG[key] for key in CONFIG if key != "compute"}
    with pytest.raises(outpace.ConfigError, match="there is no cluster"):
        outpace.advise(data, tmp_path, target_loss=0.05, on="ray")
    assert order == ["recorded", "connected"]
    with pytest.raises(outpace.ConfigError, match="unknown kind 'rya'"):
        outpace.advise(data, tmp_path, target_loss=0.05, on="rya")
    assert order == ["recorded", "connected"]


@pytest.mark.parametrize("given", [["--lr", "0.1"], ["--lr=0.1"]])
def test_the_learning_rate_of_a_script_is_that_of_its_argument(given, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import outpace\n")
    task = {"kind": "script", "path": str(script), "arguments": ["--steps", "5", *given]}
    config = {key: value for key, value in CONFIG.items() if key not in ("optimizer", "stop")}
    source = source_of({**config, "task": task}, None, {})
    problem = problem_of(source, Target(loss=0.5), "--lr", ["asp"])
    assert problem.rate == 0.1
    trial = Trial(SEARCH, "ASP", 0.4, 3, 20.0)
    given_now = ["--lr", "0.4"] if len(given) == 2 else ["--lr=0.4"]
    expected = ["--steps", "5", *given_now]
    assert list(problem.experiment(trial).task.arguments) == expected
    assert problem.recommendation("ASP", 0.4, None)["task"]["arguments"] == expected
    assert problem_of(source, Target(loss=0.5), None, ["asp"]).rate is None
    with pytest.raises(
        outpace.ConfigError, match="do not set it: add it after --, as in -- --rate"
    ):
        problem_of(source, Target(loss=0.5), "--rate")
    wrong = source._replace(data={**source.data, "task": {**task, "arguments": ["--lr", "x"]}})
    with pytest.raises(outpace.ConfigError, match="'x' is not a positive number"):
        problem_of(wrong, Target(loss=0.5), "--lr")


def test_fresh_seeds_draw_the_run_times_within_the_errors_of_the_cluster_file(tmp_path):
    cluster = tmp_path / "cluster.yaml"
    law = "compute: {kind: lognormal, mean_s: 0.1, cv: 0.01}\n"
    data = {key: CONFIG[key] for key in CONFIG if key != "compute"} | {"include": str(cluster)}
    errors = "calibrated: {workers: 4, compute: {errors: {mean_s: 0.05, cv: 0.0}}}\n"
    for said, is_drawn in ((law + errors, True), (law, False)):
        cluster.write_text(said)
        problem = problem_of(source_of(data, None, {}), Target(loss=0.05), only=ONLY)
        for part, drawn in ((SEARCH, False), (FRESH, is_drawn)):
            experiment = problem.experiment(Trial(part, "BSP", 0.1, 0, 20.0))
            assert bool(experiment.compute.errors) is drawn
