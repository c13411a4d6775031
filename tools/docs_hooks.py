"""Hooks of MkDocs (`hooks` in mkdocs.yml): tables of fields, sections of README, MathML.

`<!-- readme: Methods -->` in a page becomes the section of README with this heading.
`<!-- fields: fedprox -->` in a page becomes the table of the fields of that block. The table comes
from the declarations that check a config. Formulas are converted while the site is built, so a page
needs neither a script nor a network to show them.
"""

import html
import pathlib
import re
import subprocess
from collections.abc import Mapping
from typing import Any

import fedjax_syn
from fedjax_syn import config as config_lib

README = pathlib.Path(__file__).resolve().parent.parent / 'README.md'
FIELDS = re.compile(r'<!-- fields: ([\w.]+) -->')
SECTION = re.compile(r'<!-- readme: (.+?) -->')
# The output of the arithmatex extension for inline formulas and for formulas of their own line.
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def plain(text: str) -> str:
  """Escapes a text so that Markdown shows it unchanged."""
  return re.sub(r'[|*_`\[\]]', lambda mark: f'&#{ord(mark[0])};', html.escape(text, quote=False))


def allowed(rules: Mapping[str, Any]) -> str:
  """Describes the values of a field.

  Args:
    rules: of `fedjax_syn.core.fields.field`.

  Returns:
    The choices or the range; '' if there is neither.
  """
  if rules['choices']:
    return ', '.join(f'`{choice!r}`' for choice in rules['choices'])
  signs = {'above': '>', 'low': '≥', 'high': '≤'}
  return ', '.join(f'{sign} {rules[k]:g}' for k, sign in signs.items() if rules[k] is not None)


def fields_table(block: str) -> str:
  """Writes the fields of one block of the config as a table.

  Args:
    block: 'fedprox', 'client', 'data' ...

  Returns:
    Markdown; a field `mu` under the heading `fedprox.` is set by `--config.fedprox.mu=`.

  Raises:
    ValueError: there is no such block.
  """
  rows = [
    f'| `{key.rpartition(".")[2]}` | `{leaf.default!r}` | {plain(leaf.rules["help"])} '
    f'| {allowed(leaf.rules)} |'
    for key, leaf in config_lib.leaves().items()
    if key.rpartition('.')[0] == block
  ]
  if not rows:
    raise ValueError(f'<!-- fields: {block} -->: no block of the config has this name')
  return '\n'.join([f'| `{block}.` | default | meaning | values |', '|---|---|---|---|', *rows])


def readme_section(heading: str, text: str) -> str:
  """Returns a section of README as a page of docs/ has it.

  Args:
    heading: of the section, without its #.
    text: README.

  Returns:
    Markdown below the heading. Links lead to the site; those to files that it lacks are texts.

  Raises:
    ValueError: there is no such section.
  """
  # A line that begins with # in a block of code is a comment.
  found = re.search(rf'^#+ {re.escape(heading)}\n(.*?)(?=^##+ |\Z)', text, re.DOTALL | re.MULTILINE)
  if not found:
    raise ValueError(f'<!-- readme: {heading} -->: README has no such section')
  links = found[1].replace('](docs/', '](').replace('](notebooks/)', '](notebooks/index.md)')
  elsewhere = r'\[([^\]]+)\]\((?!https?:|#)([^)]+)\)'
  on_site = lambda path: (README.parent / 'docs' / path.partition('#')[0]).exists()
  return re.sub(elsewhere, lambda m: m[0] if on_site(m[2]) else m[1], links).strip()


def notebook_links(text: str) -> str:
  """Turns links to notebooks of the repository into links to their pages of the site.

  Args:
    text: of a page; a link is relative to its file, and the notebooks lie beside docs/.

  Returns:
    The text, in which they lie in docs/ and end with .md.
  """
  return re.sub(r'\]\(\.\./((?:\.\./)*notebooks/\w+)\.ipynb\)', r'](\1.md)', text)


def formulas(page: str) -> str:
  """Converts the formulas of a page to MathML.

  Args:
    page: HTML with formulas as the arithmatex extension writes them.

  Returns:
    HTML with MathML.

  Raises:
    ValueError: latex2mathml does not know a command of a formula.
  """
  from latex2mathml.converter import convert  # tests of the tables need no extra

  def mathml(match: re.Match) -> str:
    display = 'block' if match[1] == 'div' else 'inline'
    converted = convert(html.unescape(match[2]), display=display)
    if '\\' in converted:  # latex2mathml copies an unknown command
      raise ValueError(f'latex2mathml does not know a command in: {match[2]}')
    return converted

  return FORMULA.sub(mathml, page)


def on_config(config: Any) -> Any:
  """Adds the version to the title, and a link to the repository; MkDocs calls it."""
  config.site_name += f' {fedjax_syn.__version__}'
  origin = subprocess.run(['git', 'remote', 'get-url', 'origin'], capture_output=True, text=True)
  if origin.stdout.startswith('https://'):
    config.repo_url = origin.stdout.strip().removesuffix('.git')
  return config


def on_page_markdown(markdown: str, **_: Any) -> str:
  """Inserts tables and sections into the source of a page; MkDocs calls it."""
  readme, markdown = README.read_text(), notebook_links(markdown)
  markdown = SECTION.sub(lambda match: readme_section(match[1], readme), markdown)
  return FIELDS.sub(lambda match: fields_table(match[1]), markdown)


def on_page_content(html: str, **_: Any) -> str:
  """Converts the formulas of a rendered page; MkDocs calls it."""
  return formulas(html)
