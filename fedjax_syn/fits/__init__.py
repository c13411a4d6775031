"""What a run needs on devices that need not be there: programs are compiled, nothing is run."""
