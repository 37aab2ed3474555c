"""The first runtime: virtual time."""
