"""Checkpoints: saved in the background, verified when they are restored."""
