"""Measured round-trip times between machines, from a file."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from outpace.errors import ConfigError, did_you_mean
from outpace.support.checks import LARGEST, NotEmpty, check_ranges
from outpace.support.paths import FILE
from outpace.support.regular_files import named, regular

_UNITS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_SUFFIXES: Final = (".npz", ".npy", ".csv", ".txt")
_ASYMMETRY: Final = 1e-6  # relative error of rounding to single precision


@dataclass(frozen=True, slots=True)
class Matrix:
    """A symmetric matrix of round-trip times; the latency of a message is half a round trip.

    Rows and columns are machines, in the order of `Machines`; surplus rows and columns are not
    used.

    Attributes:
        path: A file .npz, .npy, .csv, or .txt with numbers separated by blanks. Its rows are the
            workers, then the servers; a machine with several nodes has one row, at the place of its
            first node.
        array: Name of the array in an .npz file with several arrays.
        unit: unit of the round-trip times.
    """

    path: NotEmpty = field(metadata=FILE)
    unit: Literal["s", "ms", "us"]
    array: str | None = None

    def __post_init__(self) -> None:
        check_ranges(self)

    def latencies(self, machines: int) -> NDArray[np.float64]:
        """Return one-way latencies in seconds, shape (machines, machines).

        Raises ConfigError, which names the place, if the file cannot be read, is too small, or
        does not hold a symmetric matrix of times.
        """
        values, source = self._values()
        if values.dtype.kind not in "fiu":
            raise ConfigError(f"{source}: must hold numbers, not {values.dtype}")
        if values.ndim != 2 or values.shape[0] != values.shape[1]:
            shape = " x ".join(map(str, values.shape)) or "a single number"
            raise ConfigError(f"{source}: must be a square matrix, not {shape}")
        times = values.astype(np.float64) * _UNITS[self.unit]
        # Not ~(wrong): comparisons with NaN are false.
        wrong = np.argwhere(~((times >= 0) & (times <= LARGEST)))
        if len(wrong):
            row, column = wrong[0]
            raise ConfigError(
                f"{source}: row {row}, column {column} (from 0): {values[row, column]:g} is not "
                f"a round-trip time in {self.unit}"
            )
        _require_symmetric(times, values, source)
        if len(times) < machines:
            raise ConfigError(
                f"{source}: {machines} machines need as many rows, and there are {len(times)}"
            )
        return times[:machines, :machines] / 2

    def _values(self) -> tuple[NDArray[Any], str]:
        """Return the content of the file, and its name for errors."""
        path = Path(self.path)
        if path.suffix not in _SUFFIXES:
            raise ConfigError(f"{path}: a matrix must be one of {', '.join(_SUFFIXES)}")
        if self.array is not None and path.suffix != ".npz":
            raise ConfigError(f"{path}: only .npz has named arrays; leave out array: {self.array}")
        try:
            if path.suffix == ".npz":
                return self._from_archive(path)
            if path.suffix == ".npy":
                with open(path, "rb", opener=named) as file:
                    return np.lib.format.read_array(file, allow_pickle=False), str(path)
            with warnings.catch_warnings(action="ignore"):  # an empty file is refused later
                comma = "," if path.suffix == ".csv" else None
                return np.loadtxt(regular(path, named), delimiter=comma, ndmin=2), str(path)
        except ConfigError:
            raise
        except Exception as error:  # what numpy raises for a broken file is not documented
            raise ConfigError(f"cannot read the matrix in {path}: {error}") from error

    def _from_archive(self, path: Path) -> tuple[NDArray[Any], str]:
        # Not np.load, which leaves a broken archive open.
        with (
            open(path, "rb", opener=named) as file,
            np.lib.npyio.NpzFile(file, allow_pickle=False) as archive,
        ):
            names = archive.files
            if self.array is None and len(names) != 1:
                raise ConfigError(
                    f"{path}: say which of its arrays with array: {', '.join(names) or '(none)'}"
                )
            name = names[0] if self.array is None else self.array
            if name not in names:
                raise ConfigError(f"{path}: no array {name!r}.{did_you_mean(name, names)}")
            return np.asarray(archive[name]), f"{path}, array {name!r}"


def _require_symmetric(times: NDArray[np.float64], values: NDArray[Any], source: str) -> None:
    difference = np.abs(times - times.T)
    difference[difference <= _ASYMMETRY * np.maximum(times, times.T)] = 0
    if difference.any():
        row, column = np.unravel_index(difference.argmax(), difference.shape)
        raise ConfigError(
            f"{source}: must be symmetric, but row {row}, column {column} (from 0) is "
            f"{values[row, column]:g} and row {column}, column {row} is {values[column, row]:g}"
        )
