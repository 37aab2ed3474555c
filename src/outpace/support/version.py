"""The version of Outpace."""

__version__ = "0.1.0"
