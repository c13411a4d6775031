"""What all parts use: types, fields and their checks, random keys, objectives, processes."""
