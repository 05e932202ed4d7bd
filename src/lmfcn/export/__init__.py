"""A fitted model for other programs: ONNX and torch.export."""
