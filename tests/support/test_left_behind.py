"""A starter that is killed leaves no socket file, nor do all processes of a run for long."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from outpace.support.processes.stale_sockets import mark, remove_stale_sockets

BOOT = Path("/proc/sys/kernel/random/boot_id")
ENDED = 1 << 22  # no process has this number: Linux gives lower ones only
PROGRAM = """
import time
from outpace.support.processes import forking

process = forking.start("child", time.sleep, 100)
print("started", flush=True)
time.sleep(100)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
def test_a_killed_starter_leaves_no_socket_file(tmp_path: Path):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
    ) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"started\n"
        (made,) = [path for path in tmp_path.rglob("*") if path.is_socket()]
        if BOOT.exists():
            assert [path.read_text() for path in made.parent.glob("outpace-*")] == [
                f"{BOOT.read_text()}{starter.pid}\n"
            ]
        starter.send_signal(signal.SIGKILL)
        starter.stdout.read()  # until no process has it open
    assert not list(tmp_path.glob("pymp-*"))


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_a_socket_file_at_which_no_process_listens_is_removed_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, living, other, lost = (tmp_path / f"pymp-{number}" for number in range(4))
    for folder in (dead, living, other):
        folder.mkdir()
        mark(folder / "listener-a", ENDED)
    lost.mkdir()
    mark(lost / "listener-a", os.getpid())  # this process needs the folder for its next fork server
    for folder in (dead, lost):
        with socket.socket(socket.AF_UNIX) as ended:
            ended.bind(str(folder / "listener-a"))
    (other / "listener-c").write_text("no socket")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(living / "listener-b"))  # it will listen in a moment
        remove_stale_sockets.__wrapped__()
        assert not dead.exists()
        assert (living / "listener-b").exists()
        assert (other / "listener-c").exists()
        assert (lost / "listener-a").exists()


@pytest.mark.skipif(not BOOT.exists(), reason="Linux only")
def test_sockets_of_other_computers_and_of_other_programs_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """On a folder that computers share, no connection to a socket of another one is possible."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    elsewhere, unknown = tmp_path / "pymp-1", tmp_path / "pymp-2"
    for folder in (elsewhere, unknown):
        folder.mkdir()
        with socket.socket(socket.AF_UNIX) as ended:
            ended.bind(str(folder / "listener-a"))
    mark(elsewhere / "listener-a", ENDED)
    (written,) = (path for path in elsewhere.iterdir() if not path.is_socket())
    ours = written.read_text()
    # That of the other computer.
    written.write_text(f"0d1f6c1e-0000-4000-8000-0123456789ab\n{ENDED}\n")
    remove_stale_sockets.__wrapped__()
    assert (elsewhere / "listener-a").exists()
    assert (unknown / "listener-a").exists()
    written.write_text(ours)
    remove_stale_sockets.__wrapped__()
    assert not elsewhere.exists()
