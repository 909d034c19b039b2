from .evaluation.trained import TrainedModel as TrainedModel
from .evaluation.trained import load as load

__version__: str
