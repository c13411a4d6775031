"""The engine of the papers' tables: cells, runner, measures, rendering."""
