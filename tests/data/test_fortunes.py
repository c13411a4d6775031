"""Texts by topic: Debian's files, where installed, and an invented corpus of the same layout."""

import zlib

import numpy as np
import pytest

from fedjax_syn.data import datasets
from fedjax_syn.data.builders import fortunes
from fedjax_syn.data.facts import VOCABULARY

WORDS = {
  'cooking': ['boil', 'bake', 'stir', 'salt', 'pepper', 'oven', 'spoon', 'bread'],
  'sailing': ['wind', 'mast', 'rope', 'harbour', 'tide', 'anchor', 'deck', 'stern'],
  'maths': ['proof', 'lemma', 'prime', 'sum', 'limit', 'axiom', 'set', 'field'],
}


def write(folder, texts: int = 20):
  """Writes `texts` texts of 3 to 6 words for each topic, as Debian lays them out.

  Each topic has its own words. Tests accept topics of 10 texts.
  """
  folder.mkdir(parents=True)
  rng = np.random.default_rng(0)
  for topic, words in WORDS.items():
    lines = {' '.join(rng.choice(words, 6).tolist()).capitalize() + '.' for _ in range(2 * texts)}
    content = '\n%\n'.join(sorted(lines)[:texts]) + '\n%\n'
    (folder / topic).write_text(content)
    (folder / f'{topic}.dat').write_bytes(b'\x00\x01')
    (folder / f'{topic}.u8').symlink_to(topic)
  (folder / 'short').write_text('only one text\n%\n')


@pytest.fixture
def corpus(tmp_path, monkeypatch):
  monkeypatch.setattr(fortunes, 'LEAST', 10)
  write(tmp_path / 'fortunes')
  return tmp_path


def test_tokens_by_hand():
  row = fortunes.tokens("Don't PANIC -- 42!\n\t\t-- D. Adams")
  words = ["don't", 'panic', '42', 'd', 'adams']
  assert row[:5].tolist() == [1 + zlib.crc32(w.encode()) % (VOCABULARY - 1) for w in words]
  assert not row[5:].any() and row.dtype == np.int32 and row.shape == (fortunes.LENGTH,)
  assert fortunes.tokens('word ' * 100).all()


def test_a_corpus_of_the_same_layout(corpus):
  """Three topics have 20 texts each, of which 4 are test rows.

  The fourth topic is too small, and index files are not topics.
  """
  data = datasets.load('fortunes', str(corpus))
  assert (
    data.num_classes == 3 and data.shape == (fortunes.LENGTH,) and data.train.x.dtype == np.int32
  )
  assert (
    np.bincount(data.train.y).tolist() == [16] * 3 and np.bincount(data.test.y).tolist() == [4] * 3
  )
  assert data.clients.tolist() == data.train.y.tolist()
  known = [{1 + zlib.crc32(w.encode()) % (VOCABULARY - 1) for w in WORDS[t]} for t in sorted(WORDS)]
  for x, y in zip(*data.train, strict=True):
    assert set(x[x > 0].tolist()) <= known[y]
  assert data.class_names == data.client_names == tuple(sorted(WORDS))
  assert data.notes == (
    'read 61 texts of 4 files; left out 0 (the words of one before) '
    'and 1 (topics of fewer than 10 texts)',
  )
  held = datasets.load('fortunes', str(corpus), validation=0.25)
  assert len(held.validation.y) == 12 and len(held.clients) == 36
  assert datasets.load('fortunes', str(corpus)).checksum == data.checksum


def test_texts_that_are_there_twice_are_left_out(corpus):
  first = datasets.load('fortunes', str(corpus))
  path = corpus / 'fortunes' / 'maths'
  path.write_text(path.read_text() + path.read_text().upper())
  again = datasets.load('fortunes', str(corpus))
  assert again.checksum == first.checksum
  assert 'read 81 texts of 4 files; left out 20 (the words of one before)' in again.notes[0]


def test_what_is_wrong_is_one_line(corpus, tmp_path, monkeypatch):
  with pytest.raises(ValueError, match="data.normalisation='half' is for images"):
    datasets.load('fortunes', str(corpus), normalisation='half')
  monkeypatch.setattr(fortunes, 'LEAST', 500)
  with pytest.raises(ValueError, match='fortunes has 0 topics of at least 500 texts'):
    datasets.load('fortunes', str(corpus))
  monkeypatch.setattr(fortunes, 'FOLDER', tmp_path / 'nowhere')
  with pytest.raises(
    FileNotFoundError, match="install Debian's packages fortunes and fortunes-min"
  ):
    datasets.load('fortunes', str(tmp_path / 'none'))


def test_tokens_as_arrays(tmp_path):
  """A folder of one's own tokens; those beyond the vocabulary are refused."""
  x, y = np.arange(12, dtype=np.int32).reshape(4, 3), np.arange(4) % 2
  for name in ('train', 'test'):
    np.savez(tmp_path / f'{name}.npz', x=x, y=y)
  assert datasets.load('arrays', str(tmp_path)).normalisation.name == 'unit'
  np.savez(tmp_path / 'test.npz', x=x + VOCABULARY, y=y)
  with pytest.raises(ValueError, match=r'tokens must lie in 0\.\.4095, got 4096\.\.4107'):
    datasets.load('arrays', str(tmp_path))


@pytest.mark.skipif(
  not fortunes.FOLDER.is_dir(), reason="Debian's package fortunes is not installed"
)
def test_debians_texts(tmp_path):
  data = datasets.load('fortunes', str(tmp_path))
  assert data.num_classes >= 8 and len(data.train.y) > 4000
  assert np.bincount(data.train.y).min() > 300 and (data.train.x[:, 0] > 0).all()
  rows = {row.tobytes() for row in data.train.x}
  assert not rows & {row.tobytes() for row in data.test.x}
