"""Runs on one HTML page that needs no network: `write(folders, output)`; extra `report`."""

from fedjax_syn.report.page import render, write
from fedjax_syn.report.runs import Run, open_runs

__all__ = ['Run', 'open_runs', 'render', 'write']
