"""Benchmarks of the library on fixed work; they need a checkout."""
