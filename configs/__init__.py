"""One config for each experiment."""
