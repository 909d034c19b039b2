from .models.trained import TrainedModel as TrainedModel
from .models.trained import load as load
from .serving.estimator import CorrectedSearch as CorrectedSearch

__version__: str
