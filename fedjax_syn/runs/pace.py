"""How fast rounds go, and how long that is for a reader."""

import time


class Pace:
  """Rounds a second between the moments that it is told of; pauses do not count."""

  def __init__(self) -> None:
    """Knows nothing yet."""
    self.counted, self.seconds = 0.0, 0.0
    self.last: tuple[float, float] | None = None  # rounds done, and when

  def reached(self, done: float) -> None:
    """Tells how many rounds are done now; the first time after a pause only marks the moment."""
    now = time.monotonic()
    if self.last is not None:
      self.counted += done - self.last[0]
      self.seconds += now - self.last[1]
    self.last = done, now

  def pause(self) -> None:
    """Leaves out what passes until `reached` is called: compilation, work between rounds."""
    self.last = None

  def per_second(self) -> float:
    """Returns rounds a second; 0 while that is not known."""
    return self.counted / self.seconds if self.counted and self.seconds else 0.0


def duration(seconds: float) -> str:
  """Writes '0.3 s', or '1:02:03' from a minute on."""
  minutes, rest = divmod(int(seconds), 60)
  return f'{minutes // 60}:{minutes % 60:02}:{rest:02}' if minutes else f'{seconds:.1f} s'
