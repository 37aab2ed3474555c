"""Makes training data from a text, to predict its next character."""

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
from outpace.tasks.task import Pair

_DEFAULT_CHARACTERS: Final = 2_000_000
_TEST_SHARE: Final = 10  # one tenth of the text is test data
_TEST_WINDOWS: Final = 200  # maximum, so that an evaluation is short


@dataclass(frozen=True)
class Characters:
    """The characters of a text as indices into `distinct`, the sorted distinct characters.

    `train` is the first nine tenths of the text, `test` the last tenth; both are int64.
    """

    distinct: str
    train: torch.Tensor
    test: torch.Tensor

    def train_windows(self, context: int) -> Pair:
        """Return inputs and next characters, each of shape (n, context), with one row per offset.

        The rows are views of the text and need no memory.
        """
        return _windows(self.train, context, 1)

    def test_windows(self, context: int) -> Pair:
        """Return windows that do not overlap, evenly spaced if there are more than needed."""
        fit = (len(self.test) - 1) // context
        return _windows(self.test, context, context * -(-fit // _TEST_WINDOWS))


def read_characters(path: str | None, context: int) -> Characters:
    """Read the text of a UTF-8 file, by default the text of Python's standard library.

    Raises ConfigError if it cannot be read, or is too short to train and test with.
    """
    text = standard_library() if path is None else _read(Path(path))
    source = path or "the standard library's text (it is installed without its sources here)"
    needed = _TEST_SHARE * (context + 1)  # so that the test part has a row
    if len(text) < needed:
        raise ConfigError(
            f"task.path: {source} is too short: with a context of {context} the text needs "
            f"{needed} characters or more, and has {len(text)}"
        )
    return _of_standard_library() if path is None else _numbered(text)


def _numbered(text: str) -> Characters:
    codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
    distinct, places = np.unique(codes, return_inverse=True)
    numbers, border = torch.from_numpy(places), len(text) - len(text) // _TEST_SHARE
    return Characters("".join(map(chr, distinct)), numbers[:border], numbers[border:])


@cache
def _of_standard_library() -> Characters:
    return _numbered(standard_library())


@cache
def standard_library() -> str:
    """Return the first 2,000,000 characters of the modules in the folder of Python's library.

    Modules are in the order of their names, and "?" replaces characters that are not ASCII. Modules
    that a distribution or build adds are left out, so equal versions of Python give equal texts.
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
            f"task.path: {path} is not UTF-8 text: byte {error.start} is wrong"
        ) from error


def _windows(numbers: torch.Tensor, context: int, step: int) -> Pair:
    return numbers[:-1].unfold(0, context, step), numbers[1:].unfold(0, context, step)
