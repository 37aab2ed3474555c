"""Wire messages in which processes report to the coordinator what they record, and failures."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

from outpace.real.net.messages import BlockHead, Name, Text, WirePart
from outpace.record.logged import LONGEST_NAME, MOST_NAMES
from outpace.record.totals import Totals
from outpace.sync.messages import Count, WireMessage

MOST_ROWS: Final = 1 << 16  # of a trace, in one message
MOST_FILES: Final = 1000  # that a script has written
MOST_POINTS: Final = 256  # that a script has logged, in one message
ScalarsByName: TypeAlias = Annotated[
    dict[Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)], float],
    msgspec.Meta(max_length=MOST_NAMES),
]
MOST_TIMES: Final = 1 << 13  # rows of `record.timing`, in one message


class TraceReport(WireMessage, tag="rows"):
    """Rows of the trace, as integers, and the sums over all rows of this process so far."""

    totals: Totals
    block: BlockHead | None = None


class LoggedPoint(WirePart):
    """Numbers that a script logs at one time. time: ns since the start of the run."""

    time: Count
    iteration: Count
    values: ScalarsByName


class ScriptLog(WireMessage, tag="log"):
    """A worker to the coordinator: what its script has logged since the last ScriptLog."""

    points: Annotated[list[LoggedPoint], msgspec.Meta(max_length=MOST_POINTS)]


class FilesWritten(WireMessage, tag="files"):
    """A worker to the coordinator, at the end of its script: the files that it has written."""

    paths: Annotated[list[Text], msgspec.Meta(max_length=MOST_FILES)]


class TimingReport(WireMessage, tag="times"):
    """Rows of `record.timing`, as integers."""

    block: BlockHead


class ProcessFailed(WireMessage, tag="failed"):
    """A process cannot go on.

    kind: class name of the error. lost: name of the server that it lost, if that was the error.
    """

    kind: Name
    text: Text
    lost: Name = ""


class Notice(WireMessage, tag="notice"):
    """A line for the log; the run goes on.

    warns: it is a warning that other workers may send, too; it is shown once, without a name.
    """

    text: Text
    warns: bool = False
