"""Export a fitted model to ONNX or torch.export; each file is compared with the model before it is written."""

from lmfcn.export.agreement import Agreement, DisagreementError
from lmfcn.export.exported_files import export_onnx, export_torch

__all__ = ["Agreement", "DisagreementError", "export_onnx", "export_torch"]
