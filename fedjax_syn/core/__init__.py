"""What everything else stands on: types, fields and their checks, random keys, objectives, trees, processes."""
