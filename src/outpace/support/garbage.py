"""Sets how often Python collects garbage in a command and in its forked processes."""

import gc

_USUAL = gc.get_threshold()
# Number of new objects before garbage is collected. Importing torch makes half a million objects,
# and hardly any of them is garbage: with the usual number, 700, the collections take 0.2 s.
_RARELY = 50_000


def collect_rarely() -> None:
    gc.set_threshold(_RARELY, *_USUAL[1:])


def collect_as_usual() -> None:
    """Collect garbage as often as a new Python does."""
    gc.set_threshold(*_USUAL)
