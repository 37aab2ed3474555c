"""The public names; `__init__.py` imports each on first use."""

from outpace.config.experiment import Experiment as Experiment
from outpace.config.goals import Evaluate as Evaluate
from outpace.config.goals import Stop as Stop
from outpace.config.reading import experiment_from as experiment_from
from outpace.engine.control import Control as Control
from outpace.errors import ConfigError as ConfigError
from outpace.errors import DivergenceError as DivergenceError
from outpace.errors import OutpaceError as OutpaceError
from outpace.errors import RunError as RunError
from outpace.experiment.advising.advise import Advice as Advice
from outpace.experiment.advising.advise import advise as advise
from outpace.experiment.compared import Comparison as Comparison
from outpace.experiment.compared import Row as Row
from outpace.experiment.compared import Variant as Variant
from outpace.experiment.comparison import compare as compare
from outpace.experiment.comparison import variants_from as variants_from
from outpace.experiment.explaining import explain as explain
from outpace.experiment.results import Result as Result
from outpace.experiment.resuming import load_checkpoint as load_checkpoint
from outpace.experiment.running import run as run
from outpace.experiment.running import simulate as simulate
from outpace.experiment.sweeping.sweep import Sweep as Sweep
from outpace.experiment.sweeping.sweep import sweep as sweep
from outpace.script import abortable as abortable
from outpace.script import attach as attach
from outpace.script import finish as finish
from outpace.script import log as log
from outpace.script import output_dir as output_dir
from outpace.script import rank as rank
from outpace.script import sampler as sampler
from outpace.script import untimed as untimed
from outpace.script import world_size as world_size
from outpace.simulation.by_hand import Simulator as Simulator
from outpace.simulation.by_hand import Worker as Worker
from outpace.support.targets import Target as Target
from outpace.tasks import Task as Task

__all__: list[str]
__version__: str
