"""`outpace scale`: requests another number of servers from a running run."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from tests.real.test_scaling import config
from tests.support.command import refused

from outpace import ConfigError, RunError, run
from outpace.experiment.scaling import scaled
from outpace.record.checkpoints import RunLock
from outpace.record.folder import LOG
from outpace.record.requests import ScaleRequest, taken


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{}/missing", "--servers", "2"], "no real run is running there"),
        (["{}", "--servers", "2"], "no real run is running there"),
        (["{}"], "--servers"),
        (["{}", "--servers", "0"], "greater than or equal to 1"),
    ],
)
def test_the_command_says_what_is_wrong(tmp_path, capsys, arguments, words):
    given = [each.format(tmp_path) for each in arguments]
    assert words in refused(capsys, "scale", *given)


def test_a_run_that_goes_on_has_the_numbers_that_were_asked_for(tmp_path):
    folder, said = tmp_path / "run", []

    def ask() -> None:
        for numbers in ({"servers": 2, "workers": 3}, {"servers": 2}, {"servers": 2000}):
            try:
                said.append(scaled(folder, limit_s=60.0, **numbers))
            except (ConfigError, RunError) as error:
                said.append(str(error))

    thread = threading.Thread(target=ask)
    given = config(stop={"iterations": 200})
    result = run(given, folder, control=lambda _: thread.is_alive() or thread.start())
    thread.join(60)
    assert len(said) == 3
    assert said[0].startswith(f"{folder}: the run continues with 3 workers and 2 servers, after ")
    assert said[1] == f"{folder}: the run has 2 servers already"
    assert said[2] == f"{folder}: servers: must be from 1 to 1000, not 2000"
    assert len(result.summary["iterations"]) == 3
    assert not list(folder.glob("scale-*"))


def test_a_request_that_is_not_answered_has_a_limit_and_leaves_nothing(tmp_path):
    (tmp_path / LOG).touch()
    with RunLock(tmp_path), pytest.raises(RunError, match=r"within 0\.05 s: .* is withdrawn"):
        scaled(tmp_path, servers=2, limit_s=0.05)
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOG, "run.lock"]


def test_each_request_is_taken_once_and_a_command_that_waits_no_more_says_so(tmp_path):
    (tmp_path / LOG).touch()
    found = []

    def holds(run: Path) -> str:
        found.extend(taken(run))
        return "pid"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("outpace.experiment.scaling.holder", holds)
        with pytest.raises(RunError, match=r"within 0\.05 s: the run still does it"):
            scaled(tmp_path, servers=2, limit_s=0.05)
    ((_, request),) = found
    assert request == ScaleRequest(servers=2)
    assert [path.name for path in tmp_path.iterdir()] == [LOG]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"servers": "x"}', b'{"more": 1}', b"x" * 5000])
def test_a_request_that_cannot_be_read_is_taken_and_refused(tmp_path, content):
    (tmp_path / "scale-0.json").write_bytes(content)
    assert list(taken(tmp_path)) == [("scale-0.json", None)]
    assert not list(tmp_path.iterdir())


def test_a_link_or_a_pipe_is_no_request(tmp_path):
    (tmp_path / "secret").write_text('{"servers": 2}')
    (tmp_path / "scale-0.json").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "scale-1.json")
    assert not list(taken(tmp_path))
    assert (tmp_path / "secret").exists()
