"""Divides work between rounds into chunks of limited time, so that it can be saved and stopped."""

import time

from fedjax_syn.core import processes


class Chunks:
  """Returns how many iterations to run before looking at the clock again."""

  def __init__(self, seconds: float):
    """Starts the clock.

    Args:
      seconds: for all chunks together; the first chunk runs in any case.
    """
    self.seconds, self.size = seconds, 0
    self.began = self.last = time.monotonic()

  def next(self, left: int) -> int:
    """Returns the iterations of the next chunk, equal in all processes; 0 when the time is up.

    Args:
      left: iterations left to do.
    """
    now = time.monotonic()
    took, self.last = now - self.last, now
    remaining = self.seconds - (now - self.began)
    if self.size == 0:
      size = 1
    elif remaining <= 0:
      size = 0
    else:  # doubling from one iteration keeps the compilation out of the estimate
      size = max(1, min(2 * self.size, int(self.size * remaining / max(took, 1e-9))))
    self.size = processes.broadcast_from_process_0(min(size, left))
    return self.size
