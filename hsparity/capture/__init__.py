"""Captures on disk: reading them, making them, and what engines call the layers in them."""
