"""Paths of files that several tests read."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SUPPORT = Path(__file__).parent
SCRIPTS = SUPPORT / "scripts"
