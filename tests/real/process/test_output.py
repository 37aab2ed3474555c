"""The output of processes is printed completely, line by line, with their names."""

from __future__ import annotations

import io
import os
import sys

import pytest
from tests.support.paths import SCRIPTS

from outpace.engine.output import Output, print_line
from outpace.experiment.running import run
from outpace.real.net.clock import RealClock
from outpace.record import folder as files

TALKS = SCRIPTS / "talks.py"
ENDLESS = """\
import torch, outpace
model = torch.nn.Linear(1, 1)
model, optimizer = outpace.attach(model, torch.optim.SGD(model.parameters(), lr=0.0))
while True:
    model(torch.full((1, 1), 1.0 + outpace.rank())).sum().backward()
    optimizer.step()
    print("step")
"""


class Spoken:
    """An Output whose child is this process."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str, bool]] = []
        self.clock = RealClock()
        self.output = Output(self.clock, "worker-3", lambda *what: self.said.append(what))
        self.out, self.err = self.output.for_process

    def write(self, data: bytes, *, error: bool = False) -> None:
        end = self.err if error else self.out
        os.write(end.fileno(), data)

    def lines(self, *, error: bool = False) -> list[str]:
        assert {name for name, _, _ in self.said} <= {"worker-3"}
        return [line for _, line, was_error in self.said if was_error is error]

    def close(self) -> None:
        self.output.started()
        self.output.close()


def test_lines_come_whole_whatever_they_are_written_in():
    spoken = Spoken()
    for byte in "one\nzwei, ä\n\nfour".encode():
        spoken.write(bytes([byte]))
        spoken.clock(spoken.clock.now)
    assert spoken.lines() == ["one", "zwei, ä", ""]
    spoken.close()
    assert spoken.lines() == ["one", "zwei, ä", "", "four"]


@pytest.mark.parametrize(
    ("written", "line"),
    [
        (b"\r 10 %\r 20 %\r100 %\n", "100 %"),  # a progress bar
        (b"from elsewhere\r\n", "from elsewhere"),
        (b"\xff\xfe\n", "\ufffd\ufffd"),
        (b"\x1b[31mred\x1b[0m\n", "\x1b[31mred\x1b[0m"),
    ],
)
def test_what_is_no_plain_line_becomes_one(written, line):
    spoken = Spoken()
    spoken.write(written)
    spoken.close()
    assert spoken.lines() == [line]


def test_what_never_ends_its_line_is_not_kept_for_ever():
    spoken = Spoken()
    for _ in range(40):
        spoken.write(b"x" * 50_000)
        spoken.output.take()
    assert 1_000_000 < sum(map(len, spoken.lines())) < 2_000_000
    spoken.close()
    assert sum(map(len, spoken.lines())) == 2_000_000


@pytest.mark.parametrize("error", [False, True])
def test_letters_that_the_terminal_lacks_are_replaced(monkeypatch, error):
    raw = io.BytesIO()
    name = "stderr" if error else "stdout"
    monkeypatch.setattr(sys, name, io.TextIOWrapper(raw, encoding="ascii"))
    print_line("worker-1", "loss → 0.5", error)
    assert raw.getvalue() == b"worker-1 | loss ? 0.5\n"


@pytest.mark.slow
def test_what_scripts_print_has_their_name(capsys):
    workers = 2
    run(
        {
            "task": {"kind": "script", "path": str(TALKS)},
            "workers": workers,
            "sync": {"kind": "bsp"},
        }
    )
    out, err = capsys.readouterr()
    for worker in range(workers):
        tag = f"worker-{worker} | "
        mine = [line.removeprefix(tag) for line in out.splitlines() if line.startswith(tag)]
        long = [f"{worker} {line:06d} {'x' * 90}" for line in range(5000)]
        steps = [f"step {step}" for step in range(3)]
        assert mine == ["before", *steps, *long, "no end \ufffd of line"]
        assert f"{tag}3 of 3" in err.splitlines()


@pytest.mark.slow
def test_a_run_whose_output_nothing_reads_any_more_ends_quietly(tmp_path, warm):
    """This happens after `| head -1`; otherwise the script would continue forever."""
    (tmp_path / "endless.py").write_text(ENDLESS)
    reader, writer = os.pipe()
    options = ("--workers", "2", "--out", "run", "sync.kind=ssgd")
    process = warm.outpace("run", "endless.py", *options, cwd=tmp_path, stdout=writer)
    os.close(writer)
    with os.fdopen(reader) as output:
        assert "| step" in output.readline()
    _, error = process.communicate()
    assert process.returncode == 141
    (notice,) = error.splitlines()
    assert notice.startswith("without checkpoint the loss of a worker ends the run")
    summary = files.read_summary(tmp_path / "run")
    assert summary["status"] == "partial"
    assert files.read_table(tmp_path / "run" / "trace.parquet").column_names
