"""The store of a run: keys and values through which its workers form process groups.

It is the rendezvous of torch.distributed. It uses the authenticated connections of the run, not a
TCPStore, because every process that reaches the port of a TCPStore can read, overwrite and fill it.
The size of the content is limited. Each request is answered at once: a worker that waits for a key
asks again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from outpace.real.net.peer_messages import AskStore, StoreAnswer
from outpace.real.net.transport import Handlers, Listener, Transport
from outpace.sync.messages import WireMessage

MOST_BYTES: Final = 256 << 20  # largest number of bytes of all entries
_ENTRY_BYTES: Final = 128  # bytes of an entry in addition to its key and value
_MOST_SUM: Final = 1 << 62


class KeyValues:
    """The content of the store. An unacceptable request changes nothing."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._size_bytes = 0

    def answer(self, ask: WireMessage) -> StoreAnswer | str:
        """Return the answer to a message of a worker, or why the message is not acceptable."""
        if not isinstance(ask, AskStore):
            return f"{type(ask).__name__} is not for the store"
        found = [self._values[key] for key in ask.keys if key in self._values]
        known = found[0] if found else b""
        if ask.operation == "get":
            return StoreAnswer(ask.number, known, len(found))
        if len(ask.keys) != 1:
            return f"a request to {ask.operation} has one key"
        value, amount = ask.value, len(found)
        if ask.operation == "add":
            try:
                amount = int(known or b"0") + ask.amount
            except ValueError:
                return "it adds to a value that is not a number"
            if abs(amount) > _MOST_SUM:
                return "a sum in the store is too large"
            value = str(amount).encode()
        (key,) = ask.keys
        size_bytes = self._size_bytes - sum(_size(key, each) for each in found)
        if ask.operation == "delete":
            self._values.pop(key, None)
        else:
            size_bytes += _size(key, value)
            if size_bytes > MOST_BYTES:
                return f"the store has no room for more than {MOST_BYTES} bytes"
            self._values[key] = value
        self._size_bytes = size_bytes
        return StoreAnswer(ask.number, amount=amount)


class HostedStore:
    """Answers the requests of all workers to the store.

    Args:
        transport: listens at `address`.
        keys: public keys of the processes.

    Raises:
        ConfigError: if it cannot listen there.
    """

    def __init__(
        self, transport: Transport, address: str, workers: Sequence[str], keys: Mapping[str, str]
    ) -> None:
        self._values = KeyValues()
        self._listener: Listener = transport.listen(
            address,
            {name: keys[name] for name in workers},
            # The keys of a worker that has left remain, because others may need them.
            Handlers(lambda name, message: None, self._take, lambda name: None),
        )
        self.endpoint = self._listener.endpoint

    def _take(self, name: str, message: WireMessage) -> None:
        answer = self._values.answer(message)
        if isinstance(answer, str):
            self._listener.refuse(name, answer)
        else:
            self._listener.send(name, answer)

    def close(self) -> None:
        self._listener.close()


def _size(key: str, value: bytes) -> int:
    return len(key.encode()) + len(value) + _ENTRY_BYTES
