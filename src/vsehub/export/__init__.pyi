from .onnx import Onnx as Onnx
