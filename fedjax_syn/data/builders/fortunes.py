"""Short texts by topic: the files of Debian's package `fortunes`, as rows of hashed words.

A file holds texts with a line `%` between them. Topics of at least `LEAST` texts are the classes,
and the natural clients. A text's first `LENGTH` words (runs of letters, digits and apostrophes,
lower case) become numbers 1 .. VOCABULARY - 1 by their CRC-32; the rest is 0. Texts with the same
numbers as one before are left out. A fifth of each topic's texts, those with the smallest SHA-256,
is for testing: the same everywhere, whatever the seed.
"""

import hashlib
import re
import zlib
from collections import Counter
from pathlib import Path

import numpy as np

from fedjax_syn.data.builders import bounded
from fedjax_syn.data.dataset import Dataset, make
from fedjax_syn.data.facts import VOCABULARY
from fedjax_syn.data.split import check_split, smallest_digests

FOLDER = Path('/usr/share/games/fortunes')  # where Debian's package puts them
LENGTH = 32  # words; three of four texts are shorter
LEAST = 500  # texts of a topic, so that every client has some hundreds
TEST_SHARE = 0.2
_WORD, _BETWEEN = re.compile(r"[a-z0-9']+"), re.compile(r'^%\s*$', re.MULTILINE)


def tokens(text: str) -> np.ndarray:
  """Turns a text into int32 [LENGTH]: hashed words, then zeros."""
  words = _WORD.findall(text.lower())[:LENGTH]
  out = np.zeros(LENGTH, np.int32)
  out[: len(words)] = [1 + zlib.crc32(word.encode()) % (VOCABULARY - 1) for word in words]
  return out


def load(name: str, data_dir: Path) -> Dataset:
  """Reads the texts from `data_dir/fortunes`, else from where Debian's package puts them.

  Args:
    name: of the data set, as in the config.
    data_dir: the folder of all data sets.

  Returns:
    The data set; x int32 [n, LENGTH], a client for each topic.

  Raises:
    FileNotFoundError: if they are in neither.
    ValueError: if fewer than two topics have enough texts.
  """
  folder = next((f for f in (data_dir / 'fortunes', FOLDER) if f.is_dir()), None)
  if folder is None:
    raise FileNotFoundError(
      f"data.name='fortunes' is neither in {data_dir / 'fortunes'} nor in {FOLDER}: install "
      "Debian's packages fortunes and fortunes-min, or put their files there"
    )
  # Beside each file lie its index (.dat) and, by another name, itself (.u8).
  paths = sorted(p for p in folder.iterdir() if p.is_file() and not p.suffix and p.name[0] != '.')
  rows: dict[bytes, tuple[str, np.ndarray]] = {}
  texts = 0
  for path in paths:
    for text in _BETWEEN.split(bounded.read_bytes(path).decode(errors='replace')):
      row = tokens(text)
      if row[0]:
        texts += 1
        rows.setdefault(row.tobytes(), (path.name, row))
  sizes = Counter(topic for topic, _ in rows.values())
  topics = tuple(p.name for p in paths if sizes[p.name] >= LEAST)
  if len(topics) < 2:
    raise ValueError(f'{folder} has {len(topics)} topics of at least {LEAST} texts; two are needed')
  x = np.stack([row for topic, row in rows.values() if topic in topics])
  y = np.array([topics.index(topic) for topic, _ in rows.values() if topic in topics])
  held_out = smallest_digests(y, TEST_SHARE, [hashlib.sha256(row.tobytes()).digest() for row in x])
  train, test = (
    check_split(x[own], y[own], str(folder), len(topics)) for own in (~held_out, held_out)
  )
  note = (
    f'read {texts} texts of {len(paths)} files; left out {texts - len(rows)} (the words of one '
    f'before) and {len(rows) - len(x)} (topics of fewer than {LEAST} texts)'
  )
  return make(
    name,
    'fortunes',
    train,
    test,
    len(topics),
    'unit',
    clients=train.y.astype(np.int32),
    class_names=topics,
    client_names=topics,
    notes=(note,),
  )
