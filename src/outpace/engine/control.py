"""Control: user code that inspects and changes a run while it is running, in every runtime.

    def control(run):
        run.at(10.0, lambda: run.set_policy("*", Asp()))
        run.set_pull_condition("server-0", "mine.py:may_answer")

    outpace.simulate("experiment.yaml", control=control)

`control` is called once, when the run starts. Actions passed to `at` are called between two
events of the run. After a change, held pulls are judged again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias, get_args

from outpace.config.contradictions import refused
from outpace.config.experiment import Experiment
from outpace.errors import ConfigError, RunError
from outpace.record.event_log import EventLog
from outpace.support.checks import LARGEST
from outpace.support.units import Time, nanoseconds, seconds
from outpace.support.user_code import brief
from outpace.sync.assignment import (
    ONE_WIRE,
    Sync,
    for_workers_of,
    matching,
    traits_of,
    without_servers,
)
from outpace.sync.messages import server_name

ConditionLike: TypeAlias = Callable[..., Any] | str | None


class Control(ABC):
    """A run in progress. `keys` are patterns of servers' names: `server-0`, `server-*`, `*`.

        def control(run: outpace.Control) -> None:  # as in outpace.simulate(..., control=control)
            run.at(5.0, lambda: run.set_policy("*", outpace.sync.Bsp()))

    All methods raise ConfigError, without any change, for keys that match no server and for
    changes that the run does not allow.
    """

    def __init__(self, experiment: Experiment, events: EventLog) -> None:
        self._experiment, self._events = experiment, events

    @property
    def now_s(self) -> float:
        """Seconds since the start of the run."""
        return seconds(self._now())

    @property
    def servers(self) -> list[str]:
        """The names of the servers."""
        if self._experiment.peers is not None:
            return []
        return [server_name(server) for server in range(self._experiment.servers)]

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        """Call `action()` when `time_s` seconds of the run have passed; if they have, call it now.

        Raises:
            ConfigError: if the time is negative, not finite or above 1e9 s.
        """
        if not isinstance(time_s, int | float) or not 0 <= time_s <= LARGEST:
            raise ConfigError(f"the time of an action must be from 0 to 1e9 s, not {time_s}")

        def act(_: object) -> None:
            try:
                action()
            except (ConfigError, RunError):
                raise
            except Exception as error:
                raise RunError(f"the action at {time_s} s raised {brief(error)}") from error

        self._call_at(max(self._now(), nanoseconds(time_s)), act)

    def set_policy(self, keys: str, sync: Sync) -> None:
        """Replace the policy of some servers; their conditions do not change.

        Args:
            keys: the servers, see the class.
            sync: the new policy, such as `outpace.sync.Ssp(staleness=2)`.

        Raises:
            ConfigError: if the run cannot follow this policy from now on.
        """
        self._require_changeable()
        if not isinstance(sync, Sync):
            known = ", ".join(kind.__name__ for kind in get_args(Sync))
            raise ConfigError(f"a policy must be one of {known}, not {sync!r}")
        sync = for_workers_of(sync, self._experiment.workers)
        policies = self._experiment.policies
        before, after = policies.strategy, traits_of(sync)
        if before.kind != after.kind and (why := before.everywhere or after.everywhere):
            raise ConfigError(f"{why}: all servers must follow it during the whole run")
        if after.wire != before.wire:
            raise ConfigError(f"sync.wire={after.wire}, but the run has {before.wire}: {ONE_WIRE}")
        problems = [
            *policies.problems("sync", sync),
            *refused(self._experiment, after.refused_keys(self._experiment.workers)),
        ]
        if problems:
            raise ConfigError("\n".join(problems))
        for server in matching(keys, self._experiment.servers):
            self._set_policy(server, sync)
            self._policy_set(server, sync.kind)

    def set_pull_condition(self, keys: str, condition: ConditionLike) -> None:
        """Make the servers that match `keys` answer a pull if condition(pull, view) is true.

        condition: a function or its target (see `sync.conditions.Conditions`); None: the
        policy's own condition. A real run accepts only targets in the configuration's
        `conditions`.
        """
        self._set_conditions(keys, "pull", condition)

    def set_push_condition(self, keys: str, condition: ConditionLike) -> None:
        """Make the servers that match `keys` advance if condition(view) is true.

        condition: a function or its target, see `set_pull_condition`.
        """
        self._set_conditions(keys, "push", condition)

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """Return the summary so far, as in summary.json; in a real run, the last reported one."""

    def _set_conditions(self, keys: str, which: str, condition: ConditionLike) -> None:
        self._require_changeable()
        if not (condition is None or isinstance(condition, str) or callable(condition)):
            raise ConfigError(f"a {which} condition must be a function or its name: {condition!r}")
        excludes = self._experiment.policies.refused_keys(load=True)
        if why := excludes.get("conditions") or excludes.get(f"conditions.{which}"):
            raise ConfigError(f"no {which} condition can be set: {why}")
        for server in matching(keys, self._experiment.servers):
            self._set_condition(server, which, condition)

    def _policy_set(self, server: int, kind: str) -> None:
        """Note that a server follows another policy from now on."""
        self._events.add("policy", role=server_name(server), kind=kind, time_ns=self._now())

    def _require_changeable(self) -> None:
        if self._experiment.peers is not None:
            raise ConfigError(f"sync: {without_servers(self._experiment.peers)}")
        if why := self._experiment.policies.strategy.excludes.get("sync_changes"):
            raise ConfigError(f"no policy can be set: {why}")

    @abstractmethod
    def _now(self) -> Time: ...

    @abstractmethod
    def _call_at(self, time: Time, action: Callable[[object], None]) -> None: ...

    @abstractmethod
    def _set_policy(self, server: int, sync: Sync) -> None: ...

    @abstractmethod
    def _set_condition(self, server: int, which: str, condition: ConditionLike) -> None: ...


ControlFunction: TypeAlias = Callable[[Control], None]
