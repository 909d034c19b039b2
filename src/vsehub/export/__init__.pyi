from .embedding_atlas import EmbeddingAtlas as EmbeddingAtlas
from .fiftyone import FiftyOne as FiftyOne
from .onnx import Onnx as Onnx
from .torch_export import TorchExport as TorchExport
