"""A user's script as a worker, in every runtime.

`Place.worker` is a `ScriptWorker`, because it does not depend on the runtime what a script may do
and when. Everything that depends on the runtime is in its `Driver`, which each runtime implements.
A script that calls `outpace.attach` is an `AttachedScript` (`engine.scripts.attached`); a script
whose own collectives and optimizer do the training is a `FollowedScript`.
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
    """Tells whether the actions of this process belong to the training.

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
        """True if a forward pass of this process is not part of the training."""
        return self.is_untimed or self.is_out


class Driver(Protocol):
    """The part of a script's worker that a runtime implements."""

    name: str  # name of the worker
    presence: Presence  # the driver also changes it when the run is over

    @property
    def is_ended_early(self) -> bool:
        """True if the run was ended early; then the script has some time to end by itself."""

    def log(self, values: Mapping[str, float]) -> None:
        """Record the values that the script logs at this point of the run."""

    def out_of_time(self) -> AbstractContextManager[None]:
        """Return a context whose time is not part of an iteration."""

    def leave(self, *, fetch: bool, sets: bool) -> None:
        """Leave the run.

        Args:
            fetch: True: load the final parameters into the model.
            sets: True: the script has changed its own parameters since its last step.
        """

    def end(self, error: Exception | None) -> None:
        """Note the end of the script, which has left the run unless there is an error."""

    def close(self) -> None:
        """Close the connection to the run, because the process may be about to end."""


class FollowedDriver(Driver, Protocol):
    """The driver of a script whose own collectives and optimizer do the training."""

    def start(self) -> None:
        """Join the run; return when it has begun."""

    def forward(self) -> None:
        """Note that a forward pass with gradients of the model begins."""

    def stepped(self) -> None:
        """End an iteration after an optimizer step. Raises RunOver if it was the last iteration."""


class ScriptWorker:
    """The worker that is formed by the script of this process."""

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
        """See `outpace.log`. values: values by column of metrics.parquet."""
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
        """See `outpace.abortable`; here nothing is stopped."""
        return never_stopped()

    def leave(self, *, fetch: bool = False) -> None:
        """Leave the run, so that no worker waits for this one. fetch: see `outpace.finish`."""
        if not self._presence.is_out:
            self.driver.leave(fetch=fetch, sets=False)

    def end(self, error: Exception | None) -> None:
        """Leave the run at the script's end, or report its error; later calls do nothing."""
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
        """See `FollowedDriver`. Raises RunError or ConfigError if no step is allowed."""
        self._require_step()
        self._exit_if_ended_early()
        self._take_step()


@contextmanager
def never_stopped() -> Iterator[Computation]:
    """Return the context of a computation that is never stopped."""
    yield Computation()
