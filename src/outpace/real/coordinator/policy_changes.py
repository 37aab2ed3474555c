"""The changes of policies and conditions by code, which a server that comes back hears again."""

from __future__ import annotations

from outpace.config.experiment import Experiment
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import ChangePolicy
from outpace.real.net.transport import Listener
from outpace.support.units import Time
from outpace.sync.messages import server_name


class PolicyChanges:
    """Sends changes to servers, and keeps the last one of each kind."""

    def __init__(self, experiment: Experiment, clock: RealClock, listener: Listener) -> None:
        self._experiment, self._clock, self._listener = experiment, clock, listener
        self._last: dict[tuple[int, str], tuple[Time, ChangePolicy]] = {}  # by server and kind

    def tell(self, server: int, change: ChangePolicy) -> None:
        """Have a server follow this change."""
        self._last[server, change.what] = self._clock.now, change
        self._listener.send(server_name(server), change)

    def tell_again(self, server: int) -> None:
        """Tell a new process of a server what it must follow beside its configuration.

        It makes the changes of `sync_changes` itself; one of those may have come after.
        """
        for (number, what), (since, change) in self._last.items():
            if number != server or (what == "policy" and self._is_over(server, since)):
                continue
            self._listener.send(server_name(server), change)

    def _is_over(self, server: int, since: Time) -> bool:
        """True if the configuration has changed the policy of a server since then."""
        later = self._experiment.policies.later()
        return any(number == server and since < at <= self._clock.now for at, number, _ in later)
