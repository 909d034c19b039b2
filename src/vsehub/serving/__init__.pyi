from .corrected import IndexFacts as IndexFacts
from .corrected import ServedIndex as ServedIndex
from .corrected import build_index as build_index
from .corrected import load_index as load_index
from .corrected import measured_recall as measured_recall
from .corrected import measured_time as measured_time
from .corrected import usage_note as usage_note
from .mteb_backend import MTEBBackend as MTEBBackend
