from .cosine import Cosine as Cosine
from .order import Order as Order
from .scan.cross_attention import CrossAttention as CrossAttention
