"""Changes of policies by code in a real run: the coordinator sends them to the servers.

It sends plain data. A function is sent as its name. A server uses the function only if its own
configuration also names it, so no message can make a server import anything else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outpace.config.experiment import Experiment
from outpace.config.reading import plain, sync_from
from outpace.engine.control import ConditionLike, Control, ControlFunction
from outpace.errors import ConfigError
from outpace.real.net.messages import ChangePolicy
from outpace.record.event_log import EventLog
from outpace.support.paths import absolute_target, with_paths
from outpace.support.units import Time, nanoseconds
from outpace.sync.assignment import Sync, policy_of
from outpace.sync.conditions import Conditioned
from outpace.sync.membership.events import AskedToScale
from outpace.sync.messages import server_name
from outpace.sync.python import PythonStrategy

if TYPE_CHECKING:
    from outpace.real.coordinator.coordinator import Coordinator


class RealControl(Control):
    """The `Control` of a run on real processes.

    Args:
        acted_until: the time of the run until which an earlier attempt has called the actions; -1:
            this is the first attempt. If actions are called again, they set policies and conditions
            as before, but do not request other numbers of processes again.
    """

    def __init__(
        self,
        experiment: Experiment,
        events: EventLog,
        coordinator: Coordinator,
        acted_until: Time = -1,
    ) -> None:
        super().__init__(experiment, events)
        self._coordinator, self._acted_until = coordinator, acted_until
        self._is_repeated = False  # the present action was also called in an earlier attempt

    def begin(self, function: ControlFunction) -> None:
        """Call the user's function."""
        self._call(lambda: function(self), is_repeated=self._acted_until >= 0)

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        def act() -> None:
            self._call(action, is_repeated=nanoseconds(time_s) <= self._acted_until)

        super().at(time_s, act)

    def _call(self, action: Callable[[], object], *, is_repeated: bool) -> None:
        self._is_repeated = is_repeated
        try:
            action()
        finally:
            self._is_repeated = False

    def summary(self) -> dict[str, Any]:
        return self._coordinator.state.totals.summary(self._experiment.workers)

    def scale(self, *, servers: int | None = None, workers: int | None = None) -> str:
        """Begin again with other numbers after the next checkpoint; return a text about it.

        Raises:
            ConfigError: if that is not possible, or no number is given.
        """
        if self._is_repeated:
            return "the run was asked for these numbers before it began again from a checkpoint"
        return self._coordinator.scaling.scale(AskedToScale(workers, servers))

    def _now(self) -> Time:
        return self._coordinator.clock.now

    def _call_at(self, time: Time, action: Callable[[object], None]) -> None:
        self._coordinator.kernel.call_at(time, action)

    def _set_policy(self, server: int, sync: Sync) -> None:
        self._relax_checkpoints()
        sync = with_paths(sync, Path.cwd())
        if isinstance(sync, PythonStrategy) and sync not in self._experiment.policies.python():
            raise ConfigError(
                f"sync.target: {sync.target} must be named in the configuration (sync or "
                "sync_changes), with the same arguments, for the servers of a real run to use it"
            )
        self._tell(server, "policy", json.dumps(plain(asdict(sync))))

    def _set_condition(self, server: int, which: str, condition: ConditionLike) -> None:
        self._relax_checkpoints()
        if condition is not None:
            _known(self._experiment, which, condition)
            condition = absolute_target(str(condition), Path.cwd())
        self._tell(server, which, condition or "")

    def _relax_checkpoints(self) -> None:
        if self._coordinator.checkpoints is not None:
            self._coordinator.checkpoints.relax()

    def _tell(self, server: int, what: str, text: str) -> None:
        self._coordinator.listener.send(server_name(server), ChangePolicy(what, text))


def changed(followed: Conditioned, experiment: Experiment, change: ChangePolicy) -> Conditioned:
    """Return what a server follows after this change.

    Raises:
        ConfigError: if the server's configuration does not name the policy or condition.
    """
    if change.what == "policy":
        sync = sync_from(json.loads(change.text), "a change of policy")
        if isinstance(sync, PythonStrategy) and sync not in experiment.policies.python():
            raise ConfigError(f"a change of policy: {sync.target} is not in the configuration")
        return replace(followed, base=policy_of(sync))
    if not change.text:
        none: dict[str, Any] = {change.what: None}
        return replace(followed, **none)
    return _known(experiment, change.what, change.text)(followed)


def _known(
    experiment: Experiment, which: str, condition: object
) -> Callable[[Conditioned], Conditioned]:
    """Return a function that puts this condition over a policy, if the configuration names it."""
    wanted = absolute_target(condition, Path.cwd()) if isinstance(condition, str) else condition
    for each in experiment.conditions:
        if getattr(each, which) == wanted:
            alone = replace(each, push=None) if which == "pull" else replace(each, pull=None)
            return alone.on
    names = sorted({str(getattr(c, which)) for c in experiment.conditions if getattr(c, which)})
    raise ConfigError(
        f"the {which} condition {condition!r} must be named in the configuration for the servers "
        f'of a real run to use it: conditions: [{{{which}: "file.py:function", active: false}}]'
        f" (named there: {', '.join(names) or 'none'})"
    )
