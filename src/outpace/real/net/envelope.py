"""The header of wire messages, and the types that a message may have."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec

from outpace.real.net import (
    checkpoint_messages,
    memory_messages,
    peer_messages,
    probes,
    report_messages,
)
from outpace.real.net.messages import WirePart
from outpace.sync.messages import Count, Index, WireMessage

# Imported so that their messages are among the subclasses.
assert checkpoint_messages
assert memory_messages
assert peer_messages
assert probes
assert report_messages

# Decodes as one of them.
ANY_MESSAGE: Final[Any] = reduce(or_, WireMessage.__subclasses__())


class Header(WirePart):
    """The first frame of every message.

    generation: of the process that sends. serial: counts the messages of one connection. slot: the
    shared memory in which the block lies that comes with the message; None: it comes in frames.
    """

    run: Count
    generation: Count
    serial: Count
    message: WireMessage
    slot: Index | None = None


class Envelope(WirePart):
    """A Header whose message is not decoded yet."""

    run: Count
    generation: Count
    serial: Count
    message: msgspec.Raw
    slot: Index | None = None
