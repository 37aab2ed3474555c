"""The phases of a run before its training: all processes join, get the plan and become ready."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from outpace.errors import RunError
from outpace.real.coordinator.reports import Reports
from outpace.real.coordinator.run_state import RunState, with_room
from outpace.real.coordinator.script_states import ScriptStates
from outpace.real.net import probes
from outpace.real.net.messages import Go, JoinRun, ModelBuffers, Plan, Ready
from outpace.support.units import nanoseconds
from outpace.sync.messages import WireMessage

# seconds for the probes of one worker, which take PROBE_S once it is connected
_LIMIT_S: Final = 60.0


class Preparation:
    """Brings all processes to the point at which the time of the run can begin.

    Args:
        kept: the states with which scripts continue.
        keys: public keys of the processes.
    """

    def __init__(
        self,
        run: RunState,
        reports: Reports,
        kept: ScriptStates,
        keys: Mapping[str, str],
    ) -> None:
        self._run, self._reports, self._kept = run, reports, kept
        self._keys = keys
        self._experiment, self._servers, self._workers = (
            run.experiment,
            run.servers,
            run.workers,
        )
        self._clock, self._listener, self._announced = run.clock, run.listener, run.announced
        self._resume, self._limit_s = run.resume, run.setting.join_s

    async def run(self) -> None:
        """Wait until all processes are ready, and have measured their network.

        Raises:
            RunError: if a process exceeded the time limit.
            ConfigError: if the workers do not fit together, or do not fit the checkpoint.
        """
        servers, workers, limit_s = self._servers, self._workers, self._limit_s
        all_say = self._announced.all
        await self._all_join()
        plan = self._plan()
        self._tell(servers, plan)
        await all_say(servers, Ready, "be ready for the parameters", limit_s)
        kept = self._kept.all()
        self._tell(workers, self._kept.announced(plan, kept))
        self._kept.send(kept)
        del kept  # as large as all states of the scripts
        if self._run.joined[workers[0]].buffer_bytes:
            await all_say(workers[:1], ModelBuffers, "send its buffers", limit_s)
            buffers = self._run.buffers = self._reports.buffers
            assert buffers is not None
            self._tell(workers[1:], ModelBuffers(buffers))
        await all_say(workers, Ready, "be ready", limit_s)
        await all_say(servers, Ready, "have the parameters", limit_s, times=2)
        if self._experiment.probe:
            await self._probe()

    async def _all_join(self) -> None:
        try:
            await self._announced.all(self._servers + self._workers, JoinRun, "join", self._limit_s)
        except RunError as error:
            _, missing = self._announced.awaited
            is_saved = self._resume is not None
            text = with_room(str(error), self._run.launcher.no_room(missing), is_saved=is_saved)
            raise RunError(text) from None

    def _plan(self) -> Plan:
        resume = self._resume
        first = [] if resume is None else resume.first
        plan = self._reports.make_plan(self._experiment, self._keys, first)
        if resume is not None:
            if self._experiment.peers is not None:
                plan = msgspec.structs.replace(plan, resume=str(resume.path.absolute()))
            resume.require_same_model(plan.layers)
        return plan

    def _tell(self, names: list[str], message: WireMessage) -> None:
        for name in names:
            self._listener.send(name, message)

    async def _probe(self) -> None:
        """Let workers measure the network: each in turn, or all together with all-reduces.

        Each worker has reported once that it is ready.

        Raises:
            RunError: if a worker has not done so in time; the limit is 60 s if it measures the
                network to the servers, because it may not reach them.
        """
        if (strategy := self._experiment.peers) is not None:
            if not strategy.exchanges:
                for name in self._workers:
                    self._listener.send(name, Go(probe=nanoseconds(probes.PROBE_S)))
                await self._announced.all(self._workers, Ready, "probe", self._limit_s, times=2)
            return
        until = self._clock.now + nanoseconds(probes.PROBE_S)
        for n, name in enumerate(self._workers):
            budget = (until - self._clock.now) // (len(self._workers) - n)
            if budget <= 0:
                break
            self._listener.send(name, Go(probe=budget))
            try:
                limit = min(self._limit_s, _LIMIT_S)
                await self._announced.all([name], Ready, "probe the servers", limit, times=2)
            except RunError as error:
                host = self._listener.endpoint.removeprefix("tcp://").rpartition(":")[0]
                raise RunError(
                    f"{error}: its machine must be able to connect to {host}, at any port; see "
                    "whether a firewall is in the way"
                ) from None
