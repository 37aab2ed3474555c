"""How often Python looks for garbage in a command, and in the processes that are copies of it."""

import gc

_USUAL = gc.get_threshold()
# Objects made before garbage is looked for. Importing torch makes half a million objects, of which
# hardly any is garbage: with the usual 700 the search takes 0.2 s.
_RARELY = 50_000


def collect_rarely() -> None:
    gc.set_threshold(_RARELY, *_USUAL[1:])


def collect_as_usual() -> None:
    """Look as often as a new Python does."""
    gc.set_threshold(*_USUAL)
