"""For the API pages: a comment beside a field, or above it, is the field's description.

NamedTuples and dataclasses of this library say in comments what a field is and which shape it has. mkdocstrings loads
this file as an extension of griffe, the reader of its sources.
"""

import io
import linecache
import tokenize
from typing import Any

import griffe

from tools.docs_hooks import plain


def comments_of(lines: list[str], first: int, last: int) -> str:
  """Reads the comments that belong to a statement.

  Args:
    lines: of the file.
    first: the statement's first line, from 1.
    last: its last line.

  Returns:
    What stands in comments directly above it and in its own lines, as one text; '' if there is none.
  """
  above = first - 1
  while above and lines[above - 1].lstrip().startswith('#'):
    above -= 1
  text = ''.join(line.lstrip() for line in lines[above : first - 1])
  text += ''.join(lines[first - 1 : last]).strip() + '\n'
  found = [
    token.string.lstrip('# ')
    for token in tokenize.generate_tokens(io.StringIO(text).readline)
    if token.type == tokenize.COMMENT
  ]
  return ' '.join(part for part in found if not part.startswith('noqa'))


class Comments(griffe.Extension):
  """Gives attributes without a docstring their comment."""

  def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
    if attr.docstring or not attr.lineno or not attr.endlineno:
      return
    text = comments_of(linecache.getlines(str(attr.filepath)), attr.lineno, attr.endlineno)
    if text:
      attr.docstring = griffe.Docstring(plain(text), parent=attr)
