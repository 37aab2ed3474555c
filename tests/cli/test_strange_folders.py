"""Malicious folders: no command writes elsewhere, waits forever, or ends in a traceback."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.support.checkpoints import index_of, index_text
from tests.support.command import outpace as command

import outpace
from outpace.experiment import recorded_run
from outpace.record import folder as files
from outpace.record.checkpoints import committed, lock
from outpace.record.checkpoints.tensors import write_tensors
from outpace.record.folder import LOG
from outpace.record.status import CheckpointStatus, ProcessStatus, Status
from outpace.report import frame
from outpace.support.yaml_files import write_yaml

CONFIG = {
    "task": {"kind": "quadratic", "eigenvalues": [0.5, 1.0]},
    "workers": 2,
    "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.2},
    "network": {"latency_s": 0.001, "bandwidth_bytes_per_s": 1e6},
    "sync": {"kind": "asp"},
    "optimizer": {"kind": "sgd", "lr": 0.1},
    "evaluate": {"every_updates": 5},
    "stop": {"iterations": 40},
    "checkpoint": {"every_updates": 5},
}
SECRET = "the-secret-of-the-user"
STATUS_OF, REPORT_OF, RESUME = ("status", "{}"), ("report", "{}"), ("simulate", "--resume", "{}")
EXPLAIN, EXPORT = ("explain", "{}", "--no-gains"), ("export", "{}", "--perfetto")
FILES = {  # the commands that read or write each file
    files.CONFIG: [STATUS_OF, REPORT_OF, RESUME],
    files.SUMMARY: [STATUS_OF, REPORT_OF],
    files.METRICS: [REPORT_OF],
    files.TRACE: [REPORT_OF],
    files.MODEL: [RESUME],
    files.REPORT: [REPORT_OF],
    files.EXPLANATION: [EXPLAIN],
    "perfetto.pftrace.gz": [EXPORT],
    LOG: [RESUME],
    lock.LOCK: [STATUS_OF, RESUME],
    "status.json": [STATUS_OF],
    "checkpoints/LAST/index.json": [STATUS_OF, RESUME],
    "checkpoints/LAST/metrics.parquet": [RESUME],
    "checkpoints/LAST/server-0.safetensors": [RESUME],
    "trace/000001.parquet": [RESUME],
}
COMMANDS = [
    STATUS_OF,
    REPORT_OF,
    RESUME,
    EXPLAIN,
    EXPORT,
    ("runtimes", "convert", "{}", "--out", "times.parquet"),
]

STATUS = Status(
    command="simulate",
    process=1,
    host="here",
    since=1e9,
    at=1e9,
    phase="training",
    waits_for="worker-0",
    share=0.5,
    gradients_per_s=3.0,
    processes=[ProcessStatus(name="worker-0", state="training", iteration=3, quiet_s=1.0)],
    checkpoints=CheckpointStatus(number=1, time_s=1.0, written=1e9),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a run that failed after three checkpoints."""
    out = tmp_path_factory.mktemp("made") / "run"

    def control(run):
        def fail():
            raise outpace.RunError("the power is off")

        run.at(2.8, fail)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded_run.RecordedRun, "_report", lambda *_: None)
        patch.setattr(os, "fsync", lambda _: None)
        with pytest.raises(outpace.RunError, match="power"):
            outpace.simulate(CONFIG, out=out, control=control)
    assert committed.committed(out)[-1] >= 3
    return out


@pytest.fixture
def run(made, tmp_path, monkeypatch):
    """Return a copy of the folder, in a folder that also has another folder of the user."""
    monkeypatch.setattr(recorded_run.RecordedRun, "_report", lambda *_: None)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    outside = tmp_path / "outside"
    shutil.copytree(made, outside)
    for name in ("notes.txt", files.REPORT, LOG, lock.LOCK):
        (outside / name).write_text(SECRET)
    here = tmp_path / "here"
    shutil.copytree(made, here / "run")
    monkeypatch.chdir(here)
    return here / "run"


def named(run: Path, name: str) -> str:
    """Return the name, with the name of the last checkpoint inserted."""
    return name.replace("LAST", f"{committed.committed(run)[-1]:06d}")


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if is_file(path)}


def is_file(path: Path) -> bool:
    return stat.S_ISREG(path.lstat().st_mode)


def require_harmless(
    run: Path, capsys, exit_codes: tuple[int, ...] = (0, 2), commands=COMMANDS
) -> list[int]:
    """Require that all commands succeed or print one line, and change only this folder."""
    outside = run.parent.parent / "outside"
    before = content(outside)
    found = []
    for arguments in commands:
        shutil.rmtree("copy", ignore_errors=True)
        shutil.copytree(run, "copy", symlinks=True, copy_function=_copied)
        code = command(*(part.format("copy") for part in arguments))
        said = capsys.readouterr()
        assert code in exit_codes, (arguments, said.err)
        assert "Traceback" not in said.err, arguments
        if code == 2:
            errors = [line for line in said.err.splitlines() if not line.startswith("note: ")]
            assert len(errors) == 1, (arguments, said.err)
        pages = [path.read_text() for path in Path("copy").glob("*.html") if is_file(path)]
        for text in (said.out, said.err, *pages):
            assert SECRET not in text, arguments
            assert not any(letter in text for letter in ESCAPES), arguments
        assert not any("<script>alert" in page for page in pages), arguments
        assert content(outside) == before, arguments
        found.append(code)
    return found


ESCAPES = ("\x1b", "\x9b", "\x07")
ESCAPING = "\x1b[31m\x9b<script>alert(1)</script>"


def _copied(source: str, target: str) -> str:
    if Path(source).is_fifo():
        os.mkfifo(target)
        return target
    return shutil.copy2(source, target, follow_symlinks=False)


def test_all_commands_work_on_the_folder_as_it_is(run, capsys):
    assert require_harmless(run, capsys, (0,)) == [0] * len(COMMANDS)


@pytest.mark.parametrize("name", FILES)
def test_no_command_reads_or_writes_through_a_link(run, capsys, name):
    outside, commands = run.parent.parent / "outside", FILES[name]
    name = named(run, name)
    (run / name).unlink(missing_ok=True)
    is_there = (outside / name).exists()
    (run / name).symlink_to(outside / (name if is_there else "notes.txt"))
    require_harmless(run, capsys, commands=commands)


@pytest.mark.parametrize("name", ["trace", "checkpoints", "checkpoints/LAST"])
def test_a_folder_that_is_a_link_is_left_alone(run, capsys, name):
    name = named(run, name)
    shutil.rmtree(run / name)
    (run / name).symlink_to(run.parent.parent / "outside" / name)
    require_harmless(run, capsys, commands=[STATUS_OF, REPORT_OF, RESUME])
    assert command("simulate", "--resume", "run") == 2
    assert f"run/{name}: it is a symbolic link" in capsys.readouterr().err


def test_the_names_of_files_that_are_written_cannot_be_guessed(run, capsys):
    for name in FILES:
        link = run / f"{named(run, name)}.part"
        link.symlink_to(run.parent.parent / "outside" / "notes.txt")
    assert require_harmless(run, capsys, (0,)) == [0] * len(COMMANDS)


@pytest.mark.parametrize(
    "name", [files.CONFIG, files.TRACE, files.MODEL, LOG, "checkpoints/LAST/index.json"]
)
def test_no_command_waits_for_a_named_pipe(run, capsys, name):
    path = run / named(run, name)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    require_harmless(run, capsys, commands=FILES[name])


def test_inputs_that_are_no_files_are_refused_in_a_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.yaml")
    os.mkfifo("pipe.py")
    os.mkfifo("pipe.parquet")
    os.mkfifo("pipe.json")
    for name in ("zero.yaml", "zero.parquet", "zero.csv", "zero.npz"):
        os.symlink("/dev/zero", name)
    for arguments in (
        ("simulate", "pipe.yaml"),
        ("simulate", "zero.yaml"),
        ("simulate", "."),
        ("compare", "pipe.yaml"),
        ("run", "pipe.py", "--workers", "2"),
        ("run", "zero.yaml"),
        ("runtimes", "show", "pipe.parquet"),
        ("runtimes", "show", "zero.parquet"),
        ("runtimes", "show", "zero.csv"),
        ("runtimes", "show", "zero.npz"),
        ("calibrate", "pipe.json", "-o", "cluster.yaml"),
        ("report", "pipe.yaml"),
        ("status", "zero.yaml"),
    ):
        assert command(*arguments) == 2, arguments
        said = capsys.readouterr().err
        assert len(said.splitlines()) == 1, said
        assert arguments[1] in said or arguments[2] in said


def of_checkpoint(run: Path, **changes: object) -> None:
    """Change the index of the last checkpoint, with a checksum that is right."""
    folder = run / committed.name_of(committed.committed(run)[-1])
    (folder / committed.INDEX).write_text(index_text({**index_of(folder), **changes}))


@pytest.mark.parametrize("name", ["../outside/trace/000001.parquet", "trace/../../x"])
def test_a_checkpoint_cannot_name_segments_outside_of_its_folder(run, capsys, name):
    number = committed.committed(run)[-1]
    of_checkpoint(run, segments=[name])
    before = pq.read_metadata(run.parent.parent / "outside" / "trace" / "000001.parquet").num_rows
    require_harmless(run, capsys, (0,), [STATUS_OF, RESUME])  # by the checkpoint before
    assert command("simulate", "--resume", "run") == 0
    said = capsys.readouterr().err
    assert f"{number:06d}/index.json is damaged: segments: " in said
    assert f"checkpoints/{number - 1:06d} is used instead" in said
    after = pq.read_metadata(run.parent.parent / "outside" / "trace" / "000001.parquet").num_rows
    assert after == before > 0


def test_the_run_of_a_comparison_is_no_link(run, capsys):
    Path("several").mkdir()
    (Path("several") / "asp").symlink_to(run)
    assert command("report", "several") == 2
    assert "several/asp: it is a symbolic link" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["clock", "watermarks"])
def test_a_checkpoint_with_progress_that_cannot_be_is_passed_over(run, capsys, key):
    number = committed.committed(run)[-1]
    (shard,) = index_of(run / committed.name_of(number))["shards"]
    of_checkpoint(run, shards=[{**shard, key: 10**15 if key == "clock" else [10**15, 3]}])
    assert command("simulate", "--resume", "run") == 0  # and does not count to 10**15
    said = capsys.readouterr().err
    assert f"{number:06d}/index.json is damaged: watermarks of server-0.safetensors" in said
    assert f"checkpoints/{number - 1:06d} is used instead" in said


def test_a_checkpoint_of_another_model_is_passed_over(run, capsys):
    number = committed.committed(run)[-1]
    folder = run / committed.name_of(number)
    part = write_tensors(folder / "server-0.safetensors", {"parameters": torch.zeros(1)})
    others = index_of(folder)["parts"][1:]
    of_checkpoint(run, parts=[msgspec.to_builtins(part), *others])
    assert command("simulate", "--resume", "run") == 0
    assert "of another model: it has 1 parameters, and index.json says 2" in capsys.readouterr().err


def test_a_trace_of_too_many_rows_is_not_read_and_the_report_says_so(run, capsys, monkeypatch):
    monkeypatch.setattr(files, "MOST_ROWS", 100)
    assert command("report", "run") == 0
    words = "trace.parquet: it has 170 rows, and files with up to 100 rows are read"
    assert words in capsys.readouterr().err
    assert command("explain", "run", "--no-gains") == 2
    assert words in capsys.readouterr().err


def text_in_place(column):
    return pa.array([ESCAPING] * len(column))


def null(column):
    return pa.nulls(len(column), column.type)


def all_are(number):
    return lambda column: pa.array([number] * len(column), pa.int64())


@pytest.mark.parametrize(
    ("name", "column", "odd", "words"),
    [
        (files.TRACE, "held_ns", text_in_place, "held_ns has string in place of integers"),
        (files.TRACE, "shard", null, ""),
        (files.TRACE, "start_ns", null, "an iteration in it has no start"),
        (files.TRACE, "start_ns", all_are(2**62), "an iteration in it ends before it begins"),
        (files.TRACE, "worker", all_are(-1), "names a worker or an iteration"),
        (files.METRICS, "accuracy", text_in_place, None),
    ],
)
def test_odd_values_in_tables_are_shown_or_named_in_a_line(
    run, capsys, monkeypatch, name, column, odd, words
):
    monkeypatch.setattr(frame, "_packed_plotly", lambda: "")
    table = pq.read_table(run / name, partitioning=None)
    place = table.schema.get_field_index(column)
    changed = table.set_column(place, column, odd(table[column]))
    files.write_table(run / name, changed)
    assert require_harmless(run, capsys, commands=[REPORT_OF]) == [0]
    if words is not None:
        assert command("explain", "run", "--no-gains") == (2 if words else 0)
        said = capsys.readouterr().err
        assert words in said
        assert f"run/{name}: " in said or not words


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        (files.SUMMARY, "status", ESCAPING),
        (files.SUMMARY, "virtual_time_s", float("nan")),
        (files.SUMMARY, "iterations", [None, "x", 1e308]),
        (files.SUMMARY, "staleness", {"x": {"x": None}}),
        (files.SUMMARY, "error", 10**400),
        (files.CONFIG, "task", {"kind": ESCAPING}),
        (files.CONFIG, "workers", 1e308),
        (files.CONFIG, "sync", [[[[1]]]]),
        ("status.json", "host", ESCAPING),
        ("status.json", "at", float("inf")),
        ("status.json", "processes", [None]),
        ("index.json", "time", -1),
        ("index.json", "shards", {}),
    ],
)
def test_odd_values_are_shown_or_named_in_a_line(run, capsys, monkeypatch, name, key, value):
    monkeypatch.setattr(frame, "_packed_plotly", lambda: "")  # 5 MB in each page
    summary = files.read_summary(run)
    if name == files.SUMMARY:
        (run / name).write_text(json.dumps({**summary, key: value}))
    elif name == files.CONFIG:
        (run / name).write_text(write_yaml({**files.read_config(run), key: value}))
    elif name == "index.json":
        of_checkpoint(run, **{key: value})
    else:  # of a run that was killed
        files.write_summary(run, {**summary, "status": "partial", "error": files.KILLED})
        (run / name).write_text(json.dumps({**msgspec.to_builtins(STATUS), key: value}))
    require_harmless(run, capsys, commands=[STATUS_OF, REPORT_OF, EXPLAIN])
