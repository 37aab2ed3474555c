"""The policy that the shard of a server's process follows."""

from __future__ import annotations

from dataclasses import replace

from outpace.config.experiment import Experiment
from outpace.real.control import changed
from outpace.real.net.messages import ChangePolicy
from outpace.sync import Policy
from outpace.sync.messages import SetPolicy


class FollowedPolicy:
    """A server's policy, with the user's conditions over it, from begin to end."""

    def __init__(self, experiment: Experiment, server: int) -> None:
        self._experiment = experiment
        self._followed = experiment.policies.initial()[server]

    @property
    def present(self) -> Policy:
        """The policy that a shard follows which begins now."""
        return self._followed.policy

    def replace(self, policy: Policy) -> SetPolicy:
        """Follow another policy, under the same conditions; return the message for the shard."""
        self._followed = replace(self._followed, base=policy)
        return SetPolicy(self.present)

    def change(self, order: ChangePolicy) -> SetPolicy:
        """Follow an order of the coordinator; return the message for the shard.

        Raises:
            ConfigError: the server's configuration does not name the policy or condition.
        """
        self._followed = changed(self._followed, self._experiment, order)
        return SetPolicy(self.present)
