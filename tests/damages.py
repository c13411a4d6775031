"""Damages of a file of a run."""

import os


def flip(path):
  """Changes one bit; in an npz file a bit of a value, since the time of packing does not count."""
  data = bytearray(path.read_bytes())
  header = data.find(b'\x93NUMPY')
  data[len(data) // 2 if header < 0 else header + 128] ^= 1
  path.write_bytes(bytes(data))


def digit(path):
  """Changes a digit of an accuracy in the first line."""
  text = path.read_text()
  at = text.index('"test/accuracy": 0.') + len('"test/accuracy": 0.')
  path.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])


def lines_changed(change):
  def apply(path):
    path.write_text(''.join(change(path.read_text().splitlines(True))))

  return apply


def folder_for_file(path):
  path.unlink()
  path.mkdir()


def pipe_for_file(path):
  path.unlink()
  os.mkfifo(path)
