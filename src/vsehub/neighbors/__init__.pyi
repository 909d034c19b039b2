from .bank import ExactIndex as ExactIndex
from .bank import MemoryBank as MemoryBank
from .bank import ScoredIndex as ScoredIndex
from .bank import ShortlistIndex as ShortlistIndex
from .faiss import FaissIndex as FaissIndex
from .vectors import VectorSource as VectorSource
from .vectors import as_vectors as as_vectors
