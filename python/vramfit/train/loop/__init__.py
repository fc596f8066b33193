"""The training loop: compiled steps, metrics, evaluation and reasons to stop."""
