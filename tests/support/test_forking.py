"""Processes that are started by forking the fork server."""

import multiprocessing.forkserver
import signal
import sys
from multiprocessing import Pipe

import pytest

from outpace.support.processes import forking

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="cannot fork")


def say(connection):
    connection.send("started whole")


def test_ctrl_c_in_the_middle_of_a_start_comes_after_it(monkeypatch):
    connect = multiprocessing.forkserver.connect_to_new_process

    def interrupted(fds):
        ends = connect(fds)
        signal.raise_signal(signal.SIGINT)  # its arguments have not been sent yet
        return ends

    monkeypatch.setattr(multiprocessing.forkserver, "connect_to_new_process", interrupted)
    ours, theirs = Pipe()
    with pytest.raises(KeyboardInterrupt):
        forking.start("said", say, theirs)
    assert ours.poll(60)
    assert ours.recv() == "started whole"
