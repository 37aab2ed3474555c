"""Copies of a template: processes that have its modules at once."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from outpace.support.processes import template
from outpace.support.processes.template import copied

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a template needs Linux")

_TARGETS = "tests.support.copies"


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Callable[..., Connection]]:
    key, made = secrets.token_hex(8), []

    def new(target: str = "says_who_it_is") -> Connection:
        made.append(copied(key, ["wave", "no_module_of_this_name"], f"{_TARGETS}:{target}"))
        return made[-1]

    new.key = key  # type: ignore[attr-defined]
    yield new
    for each in made:
        each.close()


def gone(pid: int) -> bool:
    """True when a process has ended, if need be after some time."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":  # it waits for whoever started it
            return True
        time.sleep(0.01)
    return False


def test_copies_that_are_asked_for_at_once_are_of_one_template(copy):
    with ThreadPoolExecutor(4) as pool:
        who = [each.recv() for each in pool.map(lambda _: copy(), range(4))]
    assert len({pid for pid, *_ in who}) == 4
    assert len({parent for _, parent, *_ in who}) == 1


def test_a_copy_has_the_modules_of_the_template_and_the_place_of_who_asks(
    copy, tmp_path, monkeypatch
):
    copy().recv()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUR_OWN", "yes")
    *_, folder, variable, modules = copy().recv()
    assert (folder, variable, modules) == (str(tmp_path), "yes", ["wave"])


def test_a_template_ends_with_its_last_copy_and_the_next_copy_is_of_a_new_one(copy):
    one, two = copy(), copy()
    (first, template_pid, *_), (second, *_) = one.recv(), two.recv()
    one.close()
    assert gone(first)
    assert not Path(f"/proc/{second}/stat").read_text().rpartition(")")[2].startswith(" Z")
    two.close()
    assert gone(second)
    assert gone(template_pid)
    _, parent, *_ = copy().recv()
    assert parent != template_pid


def test_a_copy_that_fails_closes_its_connection_and_the_template_goes_on(copy):
    stays = copy()
    _, parent, *_ = stays.recv()
    with pytest.raises(EOFError):
        copy("fails").recv()
    assert copy().recv()[1] == parent


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be another user")
def test_another_user_gets_no_copy(copy):
    stays = copy()
    stays.recv()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        os.seteuid(65534)
        try:
            asked.connect(template._address(copy.key))
        finally:
            os.seteuid(0)
        asked.settimeout(20)
        assert asked.recv(1) == b""  # no process, which would wait for what it is to do


def test_an_address_that_another_user_has_is_refused(monkeypatch):
    key = secrets.token_hex(8)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(template._address(key))
        other.listen()
        ours = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: ours + 1)
        with pytest.raises(RuntimeError, match=f"user {ours} of this machine has the address"):
            copied(key, [], f"{_TARGETS}:says_who_it_is")
