from .evaluation.trained import TrainedModel as TrainedModel
from .evaluation.trained import load as load
from .serving.estimator import CorrectedSearch as CorrectedSearch

__version__: str
