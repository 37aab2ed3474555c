"""The checks; `__init__.py` imports each on first use."""

from outpace.testing.launcher_check import check_launcher as check_launcher
from outpace.testing.law_check import check_law as check_law
from outpace.testing.policy_check import check_policy as check_policy
from outpace.testing.strategy_check import check_strategy as check_strategy
from outpace.testing.tracker_check import check_tracker as check_tracker

__all__: list[str]
