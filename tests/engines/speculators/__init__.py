"""The real programs that write hidden-state files, driven on a CPU."""
