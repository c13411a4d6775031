"""The text of `compare`: methods with settings of their own, 'fedavg,scaffold(client.lr=0.05)'."""

import functools
from collections.abc import Callable
from typing import NamedTuple

from fedjax_syn.core.fields import ConfigError
from fedjax_syn.core.texts import shown

_OPEN, _CLOSE = '([{', ')]}'


class Method(NamedTuple):
  """One method of the list."""

  word: str
  """Layers joined by '+', as in `algorithm`."""
  settings: tuple[tuple[str, str], ...] = ()
  """Dotted keys and values, as on a command line, of the fields that this method has otherwise."""

  def __str__(self) -> str:
    """The method as `read` reads it."""
    settings = ','.join(f'{key}={value}' for key, value in self.settings)
    return f'{self.word}({settings})' if settings else self.word


@functools.lru_cache(1000)
def read(text: str) -> tuple[Method, ...]:
  """Reads the methods of a text; they may be unknown, and so may their settings.

  Args:
    text: methods separated by commas, each with its settings in parentheses if it has any.

  Raises:
    ConfigError: if the text is no such list.
  """
  return tuple(_method(text, entry) for entry in _split(text, text)) if text else ()


def write(methods: tuple[Method, ...]) -> str:
  """Returns the text of methods."""
  return ','.join(map(str, methods))


def words_of(key: str, text: str) -> tuple[str, ...]:
  """Returns the methods that `algorithm` or `compare` names, without their settings."""
  return tuple(method.word for method in read(text)) if key == 'compare' else (text,)


def rename(key: str, text: str, called: Callable[[str], str]) -> str:
  """Returns the text of `algorithm` or `compare` with every layer called otherwise."""
  new = lambda word: '+'.join(map(called, word.split('+')))
  if key == 'algorithm':
    return new(text)
  return write(tuple(method._replace(word=new(method.word)) for method in read(text)))


def _method(text: str, entry: str) -> Method:
  """One method; a file of a user's own may have parentheses in its name."""
  opening = _opening(entry) if entry.endswith(')') else -1
  if opening < 0:
    word, settings = entry, []
  else:
    inside = entry[opening + 1 : -1].strip()
    word, settings = entry[:opening].rstrip(), _split(text, inside) if inside else []
  if not word:
    raise ConfigError(f'compare={shown(text)}: a method is missing; write one, or fedavg,scaffold')
  pairs = [setting.partition('=') for setting in settings]
  for (key, equals, _), setting in zip(pairs, settings, strict=True):
    if not (key and equals):
      joined = f', or {setting}+{word}' if setting.isidentifier() else ''
      raise ConfigError(
        f'compare={shown(text)}: {setting!r} is no setting; write {word}(client.lr=0.1){joined}'
      )
  return Method(word, tuple((key.strip(), value.strip()) for key, _, value in pairs))


def _opening(entry: str) -> int:
  """Where the parenthesis begins that the last character closes."""
  depth = 0
  for i in range(len(entry) - 1, -1, -1):
    depth += (entry[i] in _CLOSE) - (entry[i] in _OPEN)
    if depth == 0:
      return i
  return -1


def _split(text: str, part: str) -> list[str]:
  """A part of a text at its commas, not at those within parentheses."""
  depth, out = 0, ['']
  for letter in part:
    depth += (letter in _OPEN) - (letter in _CLOSE)
    if depth < 0:
      break
    if letter == ',' and depth == 0:
      out.append('')
    else:
      out[-1] += letter
  if depth:
    raise ConfigError(f'compare={shown(text)}: its parentheses do not match')
  return [entry.strip() for entry in out]
