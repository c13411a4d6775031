"""The exit statuses of every command, and what `runs.experiment.run_experiment` returns."""

FINISHED = 0
FAILED = 1
REFUSED = 2  # one line says why; no work was done
DIVERGED = 3  # every seed
DISK_FULL = 74  # what was saved is good: with space, the same command resumes
INTERRUPTED = 75  # saved: the same command resumes
PEER_LOST = 76  # another process of the run has ended: the same commands continue
ABORTED = 130  # by a signal, before anything was begun
