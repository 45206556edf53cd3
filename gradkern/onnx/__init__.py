"""ONNX models run from file, training graphs of ONNX Runtime above all (the extra `onnx`).

    >>> session = gradkern.onnx.load("training_model.onnx")
    >>> outputs = session.run({"x": x, "labels": labels, **parameters, **buffers})
    >>> print(session.report())

load        a Session, once the whole graph is checked
operators   classes for onnx.reference.ReferenceEvaluator(model, new_ops=gradkern.onnx.operators())
schemas     the registry's contracts as schemas, for onnx.defs.register_schema

Operators of the registry are gradkern's. Operators of ONNX are those of onnx.reference for NumPy arrays, and PyTorch's
for tensors of PyTorch. `training_ops` has the others that ONNX Runtime puts into training graphs.
"""

from __future__ import annotations

from gradkern.errors import GraphError
from gradkern.onnx.graph import load
from gradkern.onnx.schemas import operators, schemas
from gradkern.onnx.session import Report, Session

__all__ = ["GraphError", "Report", "Session", "load", "operators", "schemas"]
