"""One engine knob at a time: capture, and say how much of the difference goes away."""
