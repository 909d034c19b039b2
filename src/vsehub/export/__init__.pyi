from .embedding_atlas import EmbeddingAtlas as EmbeddingAtlas
from .onnx import Onnx as Onnx
