"""A user's script as a worker, in every runtime.

`Place.worker` is a `ScriptWorker`: what a script may do and when does not depend on the runtime. It
has a `Driver`, which each runtime implements, for what does. A script that calls `outpace.attach`
is an `AttachedScript` (`engine.scripts.attached`); one whose own collectives and optimizer do the
training is a `FollowedScript`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from outpace.engine.scripts.ending import EndedEarly, RunOver, own_handler
from outpace.errors import ConfigError, RunError
from outpace.tasks.abort_points import Computation


class Presence:
    """Whether what happens in this process belongs to the training.

    Attributes:
        has_left: True once the worker has left the run.
        is_untimed: True within `outpace.untimed`.
    """

    def __init__(self) -> None:
        self.has_left = self.is_untimed = False
        self._pid = os.getpid()

    @property
    def is_copy(self) -> bool:
        """True in a process that the script has forked: it has a copy of this object."""
        return os.getpid() != self._pid

    @property
    def is_out(self) -> bool:
        """True after the worker has left the run, and in processes that the script forks."""
        return self.has_left or self.is_copy

    def is_elsewhere(self) -> bool:
        """True if a forward pass of this process is not one of the training."""
        return self.is_untimed or self.is_out


class Driver(Protocol):
    """The part of a script's worker that its runtime implements."""

    name: str  # of the worker
    presence: Presence  # also changed by the driver, when the run is over

    @property
    def is_ended_early(self) -> bool:
        """True if the run was ended early: the script then has a while to end by itself."""

    def log(self, values: Mapping[str, float]) -> None:
        """Keep what the script logs at this point of the run."""

    def out_of_time(self) -> AbstractContextManager[None]:
        """Return a context whose time is no part of an iteration."""

    def leave(self, *, fetch: bool, sets: bool) -> None:
        """Leave the run.

        Args:
            fetch: load the final parameters into the model.
            sets: the script has changed parameters that are its own since its last step.
        """

    def end(self, error: Exception | None) -> None:
        """Take the end of the script, which has left the run unless there is an error."""

    def close(self) -> None:
        """Close the connection to the run, whose process may be about to end."""


class FollowedDriver(Driver, Protocol):
    """The driver of a script whose own collectives and optimizer do the training."""

    def start(self) -> None:
        """Join the run; return when it has begun."""

    def forward(self) -> None:
        """Note that a forward pass with gradients of the model begins."""

    def stepped(self) -> None:
        """End an iteration: the optimizer has taken a step. Raises RunOver if it was the last."""


class ScriptWorker:
    """The worker that the script of this process is."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self._presence, self._name = driver, driver.presence, driver.name

    def _require_step(self) -> None:
        """Raise RunError or ConfigError unless the script may call `optimizer.step()` now."""
        presence, name = self._presence, self._name
        if presence.has_left and not self.driver.is_ended_early:
            raise RunError(f"{name} has left the run: it cannot take another step")
        if presence.is_copy:
            raise RunError(
                f"a process that {name} has forked is no worker: only the worker's own process "
                "can take steps"
            )
        if presence.is_untimed:
            raise ConfigError(
                f"{name} called optimizer.step() in outpace.untimed(): a step is part of an "
                "iteration, so only what comes before or after it can be untimed"
            )

    def _exit_if_ended_early(self) -> None:
        if self.driver.is_ended_early:
            own_handler.call()
            raise EndedEarly

    def log(self, values: Mapping[str, float]) -> None:
        """See `outpace.log`; values: by column of metrics.parquet. Also after `outpace.finish`."""
        if self._presence.is_copy:
            raise RunError(
                f"a process that {self._name} has forked is no worker: only the worker's own "
                "process can log; return the numbers to it"
            )
        self.driver.log(values)

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """See `outpace.untimed`."""
        if self._presence.is_elsewhere():
            yield
            return
        self._presence.is_untimed = True
        try:
            with self.driver.out_of_time():
                yield
        finally:
            self._presence.is_untimed = False

    def abortable(self) -> AbstractContextManager[Computation]:
        """See `outpace.abortable`; nothing is stopped."""
        return never_stopped()

    def leave(self, *, fetch: bool = False) -> None:
        """Leave the run, so that no worker waits for this one. fetch: see `outpace.finish`."""
        if not self._presence.is_out:
            self.driver.leave(fetch=fetch, sets=False)

    def end(self, error: Exception | None) -> None:
        """Leave the run at the end of the script, or report its error; later calls do nothing."""
        if self._presence.is_copy:
            return
        failure: Exception | None = None
        if error is None:
            try:
                self.leave()
            except RunOver:
                pass
            except Exception as raised:
                failure = raised
            except BaseException:  # such as KeyboardInterrupt
                self.driver.close()
                raise
        self.driver.end(error or failure)
        if failure is not None:
            raise failure


class FollowedScript(ScriptWorker):
    """A script whose own collectives and optimizer do the training: the run follows its steps."""

    def __init__(self, driver: FollowedDriver) -> None:
        super().__init__(driver)
        self.start, self.forward = driver.start, driver.forward
        self._take_step = driver.stepped

    def stepped(self) -> None:
        """See `FollowedDriver`. Raises RunError or ConfigError if the script may take no step."""
        self._require_step()
        self._exit_if_ended_early()
        self._take_step()


@contextmanager
def never_stopped() -> Iterator[Computation]:
    """Return the context of a computation that always runs to its end."""
    yield Computation()
