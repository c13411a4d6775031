"""Figures, each a pure function of numbers."""
