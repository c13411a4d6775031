"""The commands: what `launch/*.py` and the console script `fedjax-syn` call."""
