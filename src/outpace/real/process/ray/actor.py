"""The actor of a role, which is its host on a node, and what the command knows of it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

import ray
import ray.util
from ray.exceptions import ActorDiedError, RayError

from outpace.real.process.ray.connecting import has_lost_its_node, last_line
from outpace.real.process.ray.host import Event, Host, Survey, survey_here
from outpace.real.process.ray.launcher import Hear

_EVENTS: Final = "events"  # a thread of its own in each actor


class OutpaceHost(Host):
    """A host in an actor of Ray, which shows the name of this class beside that of the role."""

    def __init__(self, name: str, folder: str) -> None:
        super().__init__(name, ray.util.get_node_ip_address(), folder)

    def survey(self, paths: Sequence[str]) -> tuple[Survey, str]:
        """Return what this actor finds on its node, and the id of the node."""
        return survey_here(paths), ray.get_runtime_context().get_node_id()


class RayHost:
    """A `Host` in an actor.

    Args:
        name: of its role.
        folder: see `Host`.
        options: of the actor.
    """

    def __init__(self, name: str, folder: str, options: Mapping[str, Any]) -> None:
        self.name = name
        self.node = ""  # its name, once it is known
        kind = ray.remote(concurrency_groups={_EVENTS: 1})(OutpaceHost)
        self._actor = kind.options(**options).remote(name, folder)
        self._hear: Hear = lambda *_: None
        self._is_asked = False  # for the next events

    def survey(self, paths: Sequence[str]) -> Any:
        """Return a reference to what the actor's survey returns."""
        return self._actor.survey.remote(list(paths))

    def order(self, method: str, *arguments: Any) -> Future[Any]:
        """Give an order; it is done when the result is there, or an error if the host is lost."""
        return _future(self._actor.order.remote(method, *arguments))

    def listen(self, hear: Hear) -> None:
        """Call `hear` once, in another thread, with what happens next.

        It takes the place of one that waits already.
        """
        self._hear = hear
        if not self._is_asked:
            self._is_asked = True
            events = self._actor.events.options(concurrency_group=_EVENTS).remote()
            _future(events).add_done_callback(self._has_come)

    def _has_come(self, events: Future[list[Event]]) -> None:
        """In another thread."""
        self._is_asked = False
        self._hear(self, events.exception() or events.result())

    def end(self) -> None:
        """End this host at once, with its process."""
        with contextlib.suppress(RayError, ValueError):
            ray.kill(self._actor)

    def why_lost(self, error: BaseException) -> str:
        """Say how the process ended, whose host is lost with this error."""
        where = f" on node {self.node}" if self.node else ""
        if not isinstance(error, ActorDiedError):
            return f"was lost with its host{where} ({last_line(error)})"
        if has_lost_its_node(error):
            return f"was lost with node {self.node}" if self.node else "was lost with its node"
        return f"was lost with its actor{where}"


def _future(reference: Any) -> Future[Any]:
    found: Future[Any] = reference.future()
    return found
