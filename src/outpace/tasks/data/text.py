"""A text as training data for guessing its next character."""

from __future__ import annotations

import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import torch

from outpace.errors import ConfigError

_DEFAULT_CHARACTERS: Final = 2_000_000
_TEST_SHARE: Final = 10  # one tenth
_TEST_WINDOWS: Final = 200  # at most: an evaluation is to be short

Windows = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Characters:
    """A text's characters as numbers 0, 1, ...: their places among its distinct ones, sorted.

    train, test: int64, the first nine tenths and the last.
    """

    distinct: str
    train: torch.Tensor
    test: torch.Tensor

    def train_windows(self, context: int) -> Windows:
        """(characters, the characters after them), both (n, context): one row per offset.

        They are views: a row costs no memory of its own.
        """
        return _windows(self.train, context, 1)

    def test_windows(self, context: int) -> Windows:
        """Rows that do not overlap, evenly spaced where there are more than needed."""
        fit = (len(self.test) - 1) // context
        return _windows(self.test, context, context * -(-fit // _TEST_WINDOWS))


def read_characters(path: str | None, context: int) -> Characters:
    """The text of a UTF-8 file, by default the standard library's.

    Raises ConfigError if it cannot be read, or gives no row to train or to test with.
    """
    text = standard_library() if path is None else _read(Path(path))
    source = path or "the standard library's text (it comes without its sources here)"
    needed = _TEST_SHARE * (context + 1)  # a row and one character more in the smaller part
    if len(text) < needed:
        raise ConfigError(
            f"task.path: {source} is too short: with a context of {context} the text needs "
            f"{needed} characters or more, and has {len(text)}"
        )
    numbers, distinct = _numbered(text)
    border = len(text) - len(text) // _TEST_SHARE
    return Characters(distinct, numbers[:border], numbers[border:])


@cache
def standard_library() -> str:
    """The first 2,000,000 characters of the modules that lie next to each other in a folder.

    In the order of their names; what is not ASCII is replaced by "?". The same for the
    same version of Python: what a distribution or a build adds is left out.
    """
    files = Path(sysconfig.get_path("stdlib")).glob("*.py")
    modules = sorted(f for f in files if f.stem in sys.stdlib_module_names)
    texts = (file.read_text(encoding="utf-8", errors="replace") for file in modules)
    text = "".join(texts)[:_DEFAULT_CHARACTERS]
    return text.encode("ascii", "replace").decode("ascii")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"task.path: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"task.path: {path} is no UTF-8 text: byte {error.start} does not belong there"
        ) from error


def _numbered(text: str) -> tuple[torch.Tensor, str]:
    """The characters' numbers, int64, and the distinct characters in their order."""
    codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
    distinct, numbers = np.unique(codes, return_inverse=True)
    return torch.from_numpy(numbers), "".join(map(chr, distinct))


def _windows(numbers: torch.Tensor, context: int, step: int) -> Windows:
    return numbers[:-1].unfold(0, context, step), numbers[1:].unfold(0, context, step)
