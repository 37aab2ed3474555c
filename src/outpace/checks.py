"""Range checks of configuration values, with the key in the message.

They raise ValueError, in `__post_init__`: a value is refused in the same words whether
it came from YAML, the command line or Python.
"""

from typing import Final

LARGEST: Final = 1e9  # seconds, factors, rates: what lies beyond is a slip of the pen


def require(condition: bool, key: str, must: str, value: object) -> None:
    """Raise ValueError, naming the key, unless the condition holds."""
    if not condition:
        raise ValueError(f"{key} must be {must}, not {value}")


def positive(value: float) -> bool:
    """Greater than zero, and at most LARGEST."""
    return 0 < value <= LARGEST


def not_negative(value: float) -> bool:
    """At least zero, and at most LARGEST."""
    return 0 <= value <= LARGEST
