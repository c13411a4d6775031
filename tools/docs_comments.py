"""The API pages take the comment beside or above a field as the field's description.

NamedTuples and dataclasses of this library describe a field and its shape in a comment. griffe,
which reads the sources for mkdocstrings, loads this file as an extension.
"""

import io
import linecache
import tokenize
from typing import Any

import griffe

from tools.docs_hooks import plain


def comments_of(lines: list[str], first: int, last: int) -> str:
  """Joins the comments of a statement.

  Args:
    lines: of the file.
    first: number of the statement's first line, from 1.
    last: number of its last line.

  Returns:
    The comments directly above the statement and those in its own lines; '' without any.
  """
  above = first - 1
  while above and lines[above - 1].lstrip().startswith('#'):
    above -= 1
  text = ''.join(line.lstrip() for line in lines[above : first - 1])
  text += ''.join(lines[first - 1 : last]).strip() + '\n'
  tokens = tokenize.generate_tokens(io.StringIO(text).readline)
  comments = [token.string.lstrip('# ') for token in tokens if token.type == tokenize.COMMENT]
  return ' '.join(comment for comment in comments if not comment.startswith('noqa'))


class Comments(griffe.Extension):
  """Gives each attribute without a docstring its comment."""

  def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
    """Handles one attribute; griffe calls it."""
    if attr.docstring or not attr.lineno or not attr.endlineno:
      return
    text = comments_of(linecache.getlines(str(attr.filepath)), attr.lineno, attr.endlineno)
    if text:
      attr.docstring = griffe.Docstring(plain(text), parent=attr)
