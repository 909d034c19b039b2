from .index import ServedIndex as ServedIndex
from .index import build_index as build_index
from .index import measured_recall as measured_recall
from .index import measured_time as measured_time
from .index import usage_note as usage_note
