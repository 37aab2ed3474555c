"""Writes lines to standard output and standard error, which another program may stop reading."""

from __future__ import annotations

import os
from typing import TextIO


class OutputClosed(KeyboardInterrupt):
    """Raised when nothing reads the output any more, as after `| head`."""


def write_line(stream: TextIO, text: str) -> None:
    """Write a line; letters that the stream cannot encode are replaced.

    Raises OutputClosed if nothing reads the stream any more. All later output, including the output
    of the interpreter at its end, is discarded.
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = text.encode(encoding, "replace").decode(encoding)
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
        raise OutputClosed from None
