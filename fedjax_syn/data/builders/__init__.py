"""Readers of data sets: files and records become a `Dataset`."""
