"""Addresses of this machine."""

from __future__ import annotations

from typing import Final

LOOPBACK: Final = "127.0.0.1"


def is_loopback(address: str) -> bool:
    """True if only this machine reaches an address."""
    return address.startswith("127.")
