"""`outpace doctor`: its findings, and the ones that make Outpace unusable."""

from __future__ import annotations

import json
import platform
import socket

import torch
from tests.support.command import outpace as command


def test_the_findings_are_a_table_and_json(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command("doctor", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["python"], found["torch"]) == (platform.python_version(), torch.__version__)
    assert (found["loopback"], found["folder"], found["problems"]) == ("works", "works", [])
    assert command("doctor") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == [name for name in found if name != "problems"]
    assert list(tmp_path.iterdir()) == []


def test_what_makes_outpace_unusable_is_said_with_what_to_do(capsys, tmp_path, monkeypatch):
    def refused(*_, **__):
        raise PermissionError("no ports")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket, "create_server", refused)
    monkeypatch.setattr("outpace.cli.doctor._NEEDED", ("torch", "no_such_module"))
    assert command("doctor") == 1
    module, ports = capsys.readouterr().err.splitlines()
    assert module.startswith("error: no_such_module cannot be imported")
    assert module.endswith("pip install --force-reinstall no_such_module")
    assert ports == "error: no ports: allow programs to listen on 127.0.0.1"
