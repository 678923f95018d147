"""What a capture's engine differs by from itself and from fp32: planned, captured, measured."""
