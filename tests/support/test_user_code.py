"""Errors of functions that a configuration names."""

from __future__ import annotations

import pytest
import torch

from outpace.errors import ConfigError
from outpace.support.user_code import brief, load_target


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


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            torch.cuda.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
                "79.25 GiB of which 1.00 GiB is free. Process 7 has 3.00 GiB memory in use. If "
                "reserved but unallocated memory is large try setting something. See the manual."
            ),
            "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
            "capacity of 79.25 GiB of which 1.00 GiB is free: use a smaller batch or model, or "
            "fewer workers on this GPU: each has its own model, optimizer and CUDA "
            "context",
        ),
        (
            RuntimeError("CUDA error: invalid device ordinal\nCompile with `TORCH_USE_CUDA_DSA`"),
            "RuntimeError: CUDA error: invalid device ordinal: this process has fewer GPUs than "
            "that: use as many workers as there are GPUs, or let workers share one: LOCAL_RANK % "
            "torch.cuda.device_count()",
        ),
        (
            RuntimeError("CUDA error: unknown error\nmore"),
            "RuntimeError: CUDA error: unknown error",
        ),
        (ValueError("one\nand two"), "ValueError: one\nand two"),
    ],
    ids=["memory", "ordinal", "another", "no GPU's"],
)
def test_an_error_of_a_gpu_is_a_line_with_what_to_do(error, line):
    assert brief(error) == line
