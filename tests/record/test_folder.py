"""Folders of runs."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from outpace.errors import ConfigError
from outpace.record.folder import free_folder


def test_runs_that_start_at_once_get_a_folder_each(tmp_path):
    together = threading.Barrier(8)

    def run(_: int) -> Path:
        together.wait()
        with free_folder(tmp_path / "runs", "demo") as folder:
            together.wait()
            (folder / "config.yaml").touch()
        return folder

    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(run, range(8)))
    assert {folder.name for folder in folders} == {"demo", *(f"demo-{n}" for n in range(2, 9))}
    assert all(folder.is_dir() for folder in folders)


def test_a_folder_with_nothing_in_it_goes_away_again(tmp_path):
    with contextlib.suppress(ConfigError), free_folder(tmp_path, "demo") as folder:
        assert folder.is_dir()
        raise ConfigError("wrong")
    assert not folder.exists()


def test_what_cannot_be_made_is_said(tmp_path):
    (tmp_path / "runs").touch()
    with (
        pytest.raises(ConfigError, match="cannot make the folder"),
        free_folder(tmp_path / "runs", "demo"),
    ):
        raise AssertionError("unreachable")
