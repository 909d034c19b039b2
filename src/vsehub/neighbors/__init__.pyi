from .bank import MemoryBank as MemoryBank
from .bank import Relation as Relation
from .exact import ExactIndex as ExactIndex
from .exact import ScoredIndex as ScoredIndex
from .exact import ShortlistIndex as ShortlistIndex
from .faiss import FaissIndex as FaissIndex
from .vectors import VectorSource as VectorSource
from .vectors import as_vectors as as_vectors
