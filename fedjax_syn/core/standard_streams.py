"""Standard output and error of a command: it continues after nobody reads them any more."""

import io
import os
import sys


class Lasting(io.TextIOWrapper):
  """A text stream that falls silent when its reader is gone or its disk is full."""

  def write(self, text: str) -> int:
    """Writes a text, or nothing."""
    try:
      return super().write(text)
    except OSError:
      silence(self.fileno())
      return len(text)

  def flush(self) -> None:
    """Flushes what was written, or nothing."""
    try:
      super().flush()
    except OSError:
      silence(self.fileno())


def silence(descriptor: int) -> None:
  """Lets all that is written to a descriptor from now on go nowhere."""
  nowhere = os.open(os.devnull, os.O_WRONLY)
  os.dup2(nowhere, descriptor)
  os.close(nowhere)


def outlive_readers() -> None:
  """Replaces standard output and error by streams that fall silent; before anything is written."""
  for name in ('stdout', 'stderr'):
    stream = getattr(sys, name)
    if stream is None:  # it was closed before Python began
      setattr(sys, name, open(os.devnull, 'w'))  # noqa: SIM115
    elif type(stream) is io.TextIOWrapper:
      lasting = Lasting(
        stream.buffer,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
      )
      setattr(sys, name, lasting)
