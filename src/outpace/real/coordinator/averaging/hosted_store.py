"""The store of a run: where its workers find each other to form process groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outpace.real.coordinator.averaging.key_values import KeyValues
from outpace.real.net.transport import Handlers, Listener, Transport


class HostedStore:
    """Answers the requests of all workers to the store.

    Args:
        transport: listens at `address`.
        keys: public keys of the processes; empty in an insecure run.

    Raises:
        ConfigError: it cannot listen there.
    """

    def __init__(
        self, transport: Transport, address: str, workers: Sequence[str], keys: Mapping[str, str]
    ) -> None:
        values = KeyValues(
            lambda name, answer: self._listener.send(name, answer),
            lambda name, reason: self._listener.refuse(name, reason),
        )
        self._listener: Listener = transport.listen(
            address,
            {name: keys.get(name, "") for name in workers},
            Handlers(lambda name, message: None, values.take, values.lose),
        )
        self.endpoint = self._listener.endpoint

    def close(self) -> None:
        self._listener.close()
