"""Errors of functions that a configuration names."""

from __future__ import annotations

import pytest

from outpace.errors import ConfigError
from outpace.support.user_code import load_target


def test_a_module_that_lacks_an_import_is_not_called_missing_itself(tmp_path, monkeypatch):
    (tmp_path / "mine_and_more.py").write_text("import mine_and\n")
    monkeypatch.syspath_prepend(tmp_path)
    words = r"^task\.target: importing mine_and_more raised .*: No module named 'mine_and'"
    with pytest.raises(ConfigError, match=words):
        load_target("mine_and_more:make", "task.target")


@pytest.mark.parametrize("missing", ["mine", "mine.more"])
def test_a_missing_module_is_named_with_the_path_that_it_would_have_as_a_file(missing):
    with pytest.raises(ConfigError, match=f"'{missing.replace('.', '/')}.py:make'$"):
        load_target(f"{missing}:make", "sync.target")


def test_an_error_that_a_library_raises_names_the_line_of_the_user(tmp_path, monkeypatch):
    (tmp_path / "parses.py").write_text("import json\n\njson.loads('[')\n")
    words = r"raised JSONDecodeError: .* \(.*/parses\.py, line 3\)$"
    with pytest.raises(ConfigError, match=words):
        load_target(f"{tmp_path}/parses.py:make", "task.target")
