"""Data sets, how their rows go to clients, and augmentation."""
