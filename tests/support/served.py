"""A running `outpace serve`, and scripts as its workers."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from tests.support.warm import Process, Warm


class Served:
    """A running `outpace serve` and the file for its workers."""

    def __init__(
        self, warm: Warm, folder: Path, workers: int, *settings: str, stdout: int | None = None
    ) -> None:
        self.folder, self.connect, self.workers = folder, folder / "connect.json", workers
        self.started: list[Process] = []
        self._warm = warm
        counts = ("--workers", workers, "--connect", self.connect, "--out", folder / "run")
        self._begin("serve", *counts, "deterministic=true", *settings, stdout=stdout)

    def resume(self, *settings: object) -> None:
        """Continue with the run, which was killed."""
        run = self.folder / "run"
        self._begin("serve", "--resume", run, "--connect", self.connect, *settings)

    def _begin(self, *command: object, stdout: int | None = None) -> None:
        before = self._content()
        self.process = self._warm.outpace(*command, cwd=self.folder, stdout=stdout)
        deadline = time.monotonic() + 60
        while self._content() in ("", before):
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def _content(self) -> str:
        return self.connect.read_text() if self.connect.exists() else ""

    def start_script(self, script: Path, rank: int) -> Process:
        """Start a script that calls outpace.attach."""
        environment = self._environment(rank)
        self.started.append(self._warm.script(script, cwd=self.folder, env=environment))
        return self.started[-1]

    def start_unchanged(self, script: Path, rank: int, *arguments: object) -> Process:
        """Start a script that does not use Outpace."""
        command = ("worker", script, *arguments)
        environment = self._environment(rank)
        self.started.append(self._warm.outpace(*command, cwd=self.folder, env=environment))
        return self.started[-1]

    def _environment(self, rank: int) -> dict[str, str]:
        place = {
            "OUTPACE_CONNECT": str(self.connect),
            "RANK": str(rank),
            "WORLD_SIZE": str(self.workers),
        }
        return {**os.environ, **place}

    def end(self) -> tuple[int, str, dict]:
        _, text = self.process.communicate(timeout=60)
        return (
            self.process.returncode,
            text,
            json.loads((self.folder / "run" / "summary.json").read_text()),
        )
