"""The command as a process: its version, and Ctrl-C while it is still importing."""

from __future__ import annotations

import importlib.metadata
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import outpace


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], check=False, capture_output=True, text=True, timeout=60
    )


def test_the_version_is_printed():
    ended = run("-m", "outpace", "--version")
    assert ended.returncode == 0
    assert ended.stdout == f"outpace {importlib.metadata.version('outpace')}\n"
    assert ended.stdout == f"outpace {outpace.__version__}\n"


def test_the_installed_command_is_the_guarded_one():
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="outpace")
    assert command.value == "outpace.__main__:main"


# Imports `outpace.__main__` as the command does, then gets a Ctrl-C on the import of a module.
INTERRUPTED = """
import os, signal, sys
import outpace.__main__

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(1000):
                    pass
            except {swallowed}:
                pass

sys.meta_path.insert(0, Finder())
sys.argv[1:] = ["explain", "nothing-there"]
outpace.__main__.main()
"""


@pytest.mark.parametrize(
    ("module", "swallowed"),
    [
        ("outpace.cli", "ZeroDivisionError"),
        ("typer", "ZeroDivisionError"),
        ("typer", "BaseException"),
        ("torch", "BaseException"),
    ],
)
def test_ctrl_c_on_an_import_ends_it_quietly(module, swallowed):
    ended = run("-c", INTERRUPTED.format(module=module, swallowed=swallowed))
    assert ended.returncode == 130
    assert ended.stderr == ""


# Runs a command in a new Python; the last line names the modules from this list that it imported.
IMPORTS = """
import sys
from pathlib import Path
from outpace.__main__ import main

sys.argv[1:] = {arguments!r}
try:
    main()
finally:
    print(*(name for name in ("torch", "pyarrow", "numpy", "rich") if name in sys.modules))
"""


def imported(*arguments: object) -> tuple[int, list[str]]:
    """Return the exit code of a command, and which of the modules above it has imported."""
    ended = run("-c", IMPORTS.format(arguments=[str(each) for each in arguments]))
    return ended.returncode, ended.stdout.splitlines()[-1].split()


def test_a_command_that_is_refused_or_asked_for_help_does_not_wait_for_torch(tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("workers: [1, 2")
    assert imported("run", "--help") == (0, ["rich"])
    assert imported("run", wrong) == (2, [])
    assert imported("simulate", tmp_path / "missing.yaml") == (2, [])
    assert imported("run", tmp_path / "missing.py", "--workers", 2) == (2, [])
    assert imported("scale", tmp_path, "--workers", 2) == (2, [])


def test_an_ignored_ctrl_c_stays_ignored():
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    code = ignoring + INTERRUPTED.format(module="typer", swallowed="ZeroDivisionError")
    assert run("-c", code).returncode == 2, "there is nothing to explain"


def test_what_is_imported_on_first_use_is_listed():
    code = "import outpace, sys; print(*dir(outpace)); sys.exit('typing' in sys.modules)"
    ended = run("-c", code)
    assert ended.returncode == 0, "nothing heavy before the command guards itself"
    assert set(outpace.__all__) < set(ended.stdout.split())


def test_every_public_name_is_what_it_says():
    for name in set(outpace.__all__) - {"__version__"}:
        value = getattr(outpace, name)
        assert getattr(value, "__name__", name).rpartition(".")[2] == name
        assert not inspect.ismodule(value)


def test_a_misspelt_name_is_an_error_of_type_checkers(tmp_path, monkeypatch):
    monkeypatch.setenv("MYPYPATH", str(Path(outpace.__file__).parents[1]))
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from outpace import simualte, simulate\nfrom outpace.sync import Bsp, Bspp\n")
    options = ("--config-file=", "--follow-imports=skip", f"--cache-dir={tmp_path}")
    ended = run("-m", "mypy", *options, str(wrong))
    assert 'Module "outpace" has no attribute "simualte"; maybe "simulate"?' in ended.stdout
    assert 'Module "outpace.sync" has no attribute "Bspp"; maybe "Bsp"?' in ended.stdout
    assert "Found 2 errors" in ended.stdout
