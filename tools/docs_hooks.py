"""What the documentation takes from the code while it is built: tables of fields, and formulas as MathML.

MkDocs calls these functions (`hooks` in mkdocs.yml). A page says `<!-- fields: fedprox -->` and gets the table of the
fields of that block, from the same declarations that check a config; so it cannot go stale. Formulas become MathML here,
so that a page needs neither a script nor a network to show them.
"""

import html
import re
from typing import Any

from fedjax_syn import config as config_lib

FIELDS = re.compile(r'<!-- fields: ([\w.]+) -->')
# What the arithmatex extension leaves of \( ... \) and \[ ... \].
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def plain(text: str) -> str:
  """Writes a text that is no Markdown such that it looks the same as Markdown."""
  return re.sub(r'[|*_`\[\]]', lambda mark: f'&#{ord(mark[0])};', html.escape(text, quote=False))


def allowed(rules: Any) -> str:
  """Says in a few words which values a field takes.

  Args:
    rules: what `fedjax_syn.core.fields.field` was told.

  Returns:
    Its choices or its range, '' if there is none.
  """
  if rules['choices']:
    return ', '.join(f'`{choice!r}`' for choice in rules['choices'])
  bounds = [
    f'{sign} {rules[key]:g}'
    for key, sign in (('above', '>'), ('low', '≥'), ('high', '≤'))
    if rules[key] is not None
  ]
  return ', '.join(bounds)


def fields_table(block: str) -> str:
  """Writes the fields of one block of the config as a table.

  Args:
    block: 'fedprox', 'client', 'data' ...

  Returns:
    Markdown; a field `mu` under the heading `fedprox.` is set by `--config.fedprox.mu=`.

  Raises:
    ValueError: if there is no such block.
  """
  rows = {key: leaf for key, leaf in config_lib.leaves().items() if key.rpartition('.')[0] == block}
  if not rows:
    raise ValueError(f'<!-- fields: {block} -->: no block of the config has this name')
  lines = [f'| `{block}.` | default | what it is | values |', '|---|---|---|---|']
  for key, leaf in rows.items():
    lines.append(
      f'| `{key.rpartition(".")[2]}` | `{leaf.default!r}` | {plain(leaf.rules["help"])} | {allowed(leaf.rules)} |'
    )
  return '\n'.join(lines)


def formulas(page: str) -> str:
  """Turns the formulas of a page into MathML.

  Args:
    page: HTML with what the arithmatex extension leaves.

  Returns:
    HTML without any of it.

  Raises:
    ValueError: if a formula has a command that is not understood.
  """
  from latex2mathml.converter import convert  # here: the tables need no extra

  def one(match: re.Match) -> str:
    display = 'block' if match[1] == 'div' else 'inline'
    mathml = convert(html.unescape(match[2]), display=display)
    if '\\' in mathml:  # what the converter does not know it passes on
      raise ValueError(f'a formula has a command that is not understood: {match[2]}')
    return mathml

  return FORMULA.sub(one, page)


def on_page_markdown(markdown: str, **_: Any) -> str:
  """MkDocs: the source of a page, before it is rendered."""
  return FIELDS.sub(lambda match: fields_table(match[1]), markdown)


def on_page_content(html: str, **_: Any) -> str:
  """MkDocs: a rendered page."""
  return formulas(html)
