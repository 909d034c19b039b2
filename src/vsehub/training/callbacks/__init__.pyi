from .average import WeightAverage as WeightAverage
from .bank import BankCallback as BankCallback
from .collapse import CollapseDetector as CollapseDetector
from .retrieval import RetrievalCallback as RetrievalCallback
from .warmup import Warmup as Warmup
