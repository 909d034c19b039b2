from .checkpoint import Model as Model
from .checkpoint import read_checkpoint as read_checkpoint
from .encode import EncodedSplit as EncodedSplit
