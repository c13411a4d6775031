"""A run from its config to its files: the loop, checkpoints, metrics, resuming, export."""
