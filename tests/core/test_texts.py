"""Any text becomes one short line that a terminal, a figure and a table can show."""

import io

import pytest

from fedjax_syn.core import texts

ODD = {
  'control': ('a\x1b[31mb\x07\x00', r'a\x1b[31mb\x07\x00'),
  'direction': ('a\u202eb\u200f', r'a\u202eb\u200f'),
  'not UTF-8': (b'caf\xe9'.decode('utf-8', 'surrogateescape'), r'caf\udce9'),
  'several lines': ('a\r\n  b\tc\u2028d', 'a b c d'),
  'emoji and other scripts': ('\U0001f600 ش ± 中', '\U0001f600 ش ± 中'),
}


@pytest.mark.parametrize(('text', 'line'), ODD.values(), ids=ODD)
def test_a_line_is_one_and_printable(text, line):
  assert texts.one_line(text) == line
  assert texts.one_line(ValueError(text)) == line


def test_a_line_is_short_and_says_what_it_leaves_out():
  line = texts.one_line(f'key={"x" * 10**7} the end')
  assert len(line) < texts.LINE + 100 and line.startswith('key=x') and line.endswith(' the end')
  assert texts.shorten('abcdefghij' * 3, 20) == 'abcdefghijabcde[... 10 characters ...]fghij'
  assert texts.shorten('short', 20) == 'short'


class Silent(Exception):
  """Says nothing, or cannot say it."""

  def __str__(self):
    raise RuntimeError('no text')

  __repr__ = __str__


def test_what_has_no_text_is_named_by_its_type():
  assert texts.one_line(KeyError()) == 'KeyError'
  assert texts.one_line(Silent()).startswith('Silent (and RuntimeError')
  assert texts.shown(Silent()) == 'Silent'
  nest = []
  nest.append(nest)
  assert texts.shown(nest) == '[[...]]'
  assert texts.shown(16**5000) == 'int of 20001 bits'  # Python refuses to write it
  assert texts.shown('a\nb') == r"'a\nb'"
  assert len(texts.shown('x' * 10**6)) < 300


def test_a_cell_of_a_table_keeps_its_borders():
  assert texts.cell('a|b\nc') == r'a\|b c'


def test_ascii_streams_spell_what_they_lack():
  raw = io.BytesIO()
  stream = io.TextIOWrapper(raw, encoding='ascii')
  texts.forgive(stream)
  stream.write('0.5 ± 0.1 – caf\udce9 \U0001f600')
  stream.flush()
  assert raw.getvalue() == rb'0.5 +- 0.1 - caf\udce9 \U0001f600'
  texts.forgive(None, io.StringIO())  # closed, or no file: left alone
