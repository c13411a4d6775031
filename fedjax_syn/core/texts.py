"""Texts for people, from users, files and exceptions: one short line of printable characters."""

import codecs
import sys
from collections.abc import Sequence
from typing import Any

LINE = 4000  # characters of a line, at most; longer ones lose their middle
VALUE = 200  # of a value in it
CAPTION = 80  # of a name in a figure
SPELLED = {
  '±': '+-',
  '–': '-',
  '—': '-',
  '…': '...',
  '×': 'x',
  '→': '->',
  'ε': 'epsilon',
  'δ': 'delta',
}
_HANDLER = 'fedjax_syn.spelled'


def printable(text: str) -> str:
  """Writes characters that are not printable (control, direction, surrogates) as escapes."""
  if text.isprintable():
    return text
  return ''.join(c if c.isprintable() else c.encode('unicode_escape').decode() for c in text)


def shorten(text: str, most: int) -> str:
  """Leaves out the middle of a text of more than `most` characters, and says its length."""
  if len(text) <= most:
    return text
  head, tail = text[: most * 3 // 4], text[-(most // 4) :]
  return f'{head}[... {len(text) - len(head) - len(tail)} characters ...]{tail}'


def one_line(text: Any) -> str:
  """Returns a text, or an exception's, as one line that can be shown anywhere.

  Args:
    text: of any length, with any characters; an exception without a text is named by its type.

  Returns:
    At most some `LINE` characters, all of them printable; white space is single blanks.
  """
  try:
    said = str(text)
  except Exception as error:  # of a class of a user's own
    said = f'{type(text).__name__} (and {type(error).__name__} when asked for its text)'
  if not said.strip() and isinstance(text, BaseException):
    said = type(text).__name__
  return printable(shorten(' '.join(shorten(said, 100 * LINE).split()), LINE))


def shown(value: Any, most: int = VALUE) -> str:
  """Returns a value as Python writes it, shortened, or else the name of its type."""
  try:
    return shorten(repr(value), most)
  except ValueError:  # Python writes no integer of more than 4,300 digits
    bits = f' of {value.bit_length()} bits' if isinstance(value, int) else ''
    return f'{type(value).__name__}{bits}'
  except Exception:  # an object of a user's own, or a nest that is too deep
    return type(value).__name__


def caption(text: Any, most: int = CAPTION) -> str:
  r"""Returns a text for matplotlib, which reads text between $ as formulas, and `\$` as a $."""
  plain = ''.join(c if c.isprintable() else '\ufffd' for c in str(text))
  if len(plain) > most:
    plain = f'{plain[: most // 2]}…{plain[-(most // 2) :]}'
  return plain.replace('$', r'\$')


def cell(text: Any) -> str:
  """Returns a text for a cell of a Markdown table, where | ends the cell."""
  return one_line(text).replace('|', r'\|')


def _spell(error: UnicodeError) -> tuple[str, int]:
  if not isinstance(error, UnicodeEncodeError):
    raise error
  text = error.object[error.start : error.end]
  spelled = (SPELLED.get(c) or c.encode('unicode_escape').decode() for c in text)
  return ''.join(spelled), error.end


codecs.register_error(_HANDLER, _spell)


def forgive(*streams: Any) -> None:
  """Lets streams write characters that their encoding lacks (± in ASCII) in other characters.

  Args:
    *streams: standard output and error by default; those that are closed, or no text files, are
      left alone.
  """
  for stream in streams or (sys.stdout, sys.stderr):
    if hasattr(stream, 'reconfigure'):
      stream.reconfigure(errors=_HANDLER)


def first_line(error: BaseException, most: int = 400) -> str:
  """Returns an exception's first line, short enough for a message of one line."""
  lines = str(error).splitlines() or [type(error).__name__]
  return lines[0].rstrip(':')[:most]


def listed(names: Sequence[str], most: int = 3) -> str:
  """Writes the first few of several names: "'a', 'b', 'c' and 7 others"."""
  text = ', '.join(map(repr, names[:most]))
  rest = len(names) - most
  return text if rest <= 0 else f'{text} and {rest} other{"s" if rest > 1 else ""}'
