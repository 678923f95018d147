"""A checkpoint's tensors by name, read one at a time and dequantised by the published rules."""
