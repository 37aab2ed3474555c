"""The version of Outpace."""

from typing import Final

VERSION: Final = "0.1.0"
