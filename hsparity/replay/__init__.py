"""Decoder layers one at a time in float32, fed with the captured input: the error that each layer adds."""
