"""Experiment trackers: their interface, and the code that sends them rows of metrics.parquet.

Workers are at different iterations, so their points arrive out of order, and some trackers drop
points whose step does not increase. So the step of a point is the worker's iteration (for a task:
the number of updates), but at least one more than the last step; `iteration` is one of the values.
The names of values of other workers than worker 0 begin with `worker-N/`, so that each worker has
its own curve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from outpace.errors import ConfigError
from outpace.support.user_code import brief, load_target

_LONGEST: Final = 500  # largest number of characters of an error


@runtime_checkable
class Tracker(Protocol):
    """Keeps the configuration and the curves of one run."""

    def config(self, values: dict[str, Any], /) -> None:
        """Take the configuration of the run: nested plain data. Called once, at the start."""

    def log(self, values: dict[str, float], step: int, /) -> None:
        """Take a point of the run.

        Args:
            values: the values, by name. `time_s` is the time of the run.
            step: greater than the step of the previous point.
        """

    def finish(self, status: str, /) -> None:
        """Note that the run has ended. status: `complete`, `partial` or `failed`."""


def require_tracker(given: object) -> Tracker:
    """Return the object if it is a tracker. Raises ConfigError."""
    if isinstance(given, Tracker) and not isinstance(given, type):
        return given
    raise ConfigError(
        f"tracker: a {type(given).__name__} is no tracker: give an object with the methods "
        "config(values), log(values, step) and finish(status)"
    )


def require_usable(targets: Sequence[str]) -> None:
    """Raise ConfigError if a function in the key `trackers` cannot be imported."""
    for place, target in enumerate(targets):
        load_target(target, f"trackers[{place}]")


def trackers_of(
    targets: Sequence[str], given: Any, name: str, out: Path | None, warn: Callable[[str], None]
) -> Trackers:
    """Return the trackers of a run.

    Args:
        targets: the key `trackers` of its configuration.
        given: the argument `tracker` of `simulate` and `run`: an object with the methods of
            `Tracker`, a list of objects, or None.
        name: name of the run; empty: the name of its folder.
        out: folder of the run.
        warn: called with a warning for each tracker that fails.

    Raises:
        ConfigError: if an object is not a tracker.
    """
    name = name or ("run" if out is None else out.absolute().name)
    several = given if isinstance(given, list | tuple) else [given]
    objects = [require_tracker(each) for each in several if each is not None]
    makers = [(target, partial(_made, target, name, out)) for target in targets]
    given_makers = [(type(each).__name__, partial(require_tracker, each)) for each in objects]
    return Trackers([*makers, *given_makers], warn)


def _made(target: str, name: str, out: Path | None) -> Tracker:
    return require_tracker(load_target(target, "trackers")(name, out))


class Trackers:
    """The trackers of one run. A tracker that fails is left out afterwards, with one warning.

    Args:
        makers: functions that make the trackers, each with the name for warnings. `config` calls
            them when the folder of the run exists.
        warn: called with the warnings.
    """

    def __init__(
        self,
        makers: Sequence[tuple[str, Callable[[], Tracker]]] = (),
        warn: Callable[[str], None] = print,
    ) -> None:
        self._makers, self._warn = makers, warn
        self._trackers: list[tuple[str, Tracker]] = []
        self._last = -1  # step

    def config(self, values: Mapping[str, Any]) -> None:
        """Make the trackers, and pass them the configuration."""
        for name, make in self._makers:
            with self._warning_of(name):
                tracker = make()
                tracker.config(dict(values))
                self._trackers.append((name, tracker))

    def point(self, row: Mapping[str, Any]) -> None:
        """Log a row of metrics.parquet; None: the row has no such value."""
        iteration = row.get("iteration")
        step = row.get("updates") if iteration is None else iteration
        self._last = max(self._last + 1, step or 0)
        before = f"worker-{row['worker']}/" if row.get("worker") else ""
        values = {
            before + name: value
            for name, value in row.items()
            if value is not None and name != "worker"
        }
        self._each(lambda tracker: tracker.log(dict(values), self._last))

    def finish(self, status: str) -> None:
        """Tell the trackers that the run has ended."""
        self._each(lambda tracker: tracker.finish(status))

    def _each(self, call: Callable[[Tracker], None]) -> None:
        working = []
        for name, tracker in self._trackers:
            with self._warning_of(name):
                call(tracker)
                working.append((name, tracker))
        self._trackers = working

    @contextmanager
    def _warning_of(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            why = " ".join(brief(error).split())
            self._warn(
                f"the tracker {name} failed and gets no more values of this run; all of them "
                f"are in its metrics: {why[:_LONGEST]}"
            )
