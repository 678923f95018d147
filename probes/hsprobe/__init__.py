"""hsprobe captures hidden states inside an inference engine; it needs torch, safetensors and nothing else."""

__version__ = "0.1.0"
