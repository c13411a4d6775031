"""A data set without its files: known rows and shapes, and labels that are equally frequent.

A problem is built from images of one pixel by the code that also builds it from the files; then
the pixels become shapes. Sizes of clients are therefore those of labels that are equally frequent,
and of domains and users where a data set has them.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_syn.config import Resolved
from fedjax_syn.data import datasets, facts, features, held_out, partition, unseen
from fedjax_syn.data.builders.domain_sources import DOMAIN_SOURCES
from fedjax_syn.data.builders.sources import SOURCES
from fedjax_syn.data.dataset import Dataset, make
from fedjax_syn.data.normalisation import constants_for
from fedjax_syn.data.split import Split
from fedjax_syn.runs import assemble


class Facts(NamedTuple):
  """What is known of a data set without its files."""

  rows: tuple[int, int]
  """Training and test rows."""
  shape: tuple[int, ...]
  """Of a row: height, width, channels; time, channels; features; or how many tokens."""
  num_classes: int
  natural: tuple[int, ...] = ()
  """Training rows of each natural client; (): it has none."""
  test_natural: tuple[int, ...] = ()
  """Test rows of each domain."""
  multi_label: bool = False
  normalisation: str = 'unit'
  kind: str = ''
  """See `features.kind_of`; '': images, or tokens where a row has one axis."""


class AbstractProblem(NamedTuple):
  """A problem whose images are shapes."""

  problem: assemble.Problem
  size: np.ndarray
  """Samples of each client, [clients]."""
  splits: dict[str, int]
  """Rows of each split that is evaluated, by name."""


def known(name: str) -> Facts | None:
  """Returns what is known of a data set of `datasets.names()`; None: nothing without its files."""
  if source := SOURCES.get(name):
    return Facts(source.rows, source.shape, source.num_classes, normalisation=source.normalisation)
  if domains := DOMAIN_SOURCES.get(name):
    train, test = zip(*domains.rows, strict=True)
    shape = domains.side, domains.side, 3
    return Facts((sum(train), sum(test)), shape, domains.num_classes, train, test)
  if name in facts.FLAIR:
    side, users = facts.FLAIR[name], facts.FLAIR_USERS
    rows = tuple(np.bincount(np.arange(facts.FLAIR_ROWS[0]) % users))
    return Facts(facts.FLAIR_ROWS, (side, side, 3), facts.FLAIR_LABELS, rows, multi_label=True)
  if name == 'digits_domains':
    train, test = zip(*(SOURCES[n].rows for n in ('mnist', 'usps')), (1198, 599), strict=True)
    return Facts((sum(train), sum(test)), (28, 28, 1), 10, train, test)
  return NATURAL.get(name)


def _of_clients(
  rows: tuple[int, int], shape: tuple[int, ...], classes: int, clients: int, kind: str = ''
) -> Facts:
  """Returns the facts of a natural federation whose clients are taken to be equally large."""
  natural = tuple(np.bincount(np.arange(rows[0]) % clients))
  scale = 'auto' if kind else 'unit'
  return Facts(rows, shape, classes, natural, normalisation=scale, kind=kind)


NATURAL = {
  'fortunes': _of_clients((7586, 1896), (32,), 12, 12),
  'watch': _of_clients((3455, 1010), (100, 6), 7, 10, features.SEQUENCES),
  'vietnam': _of_clients((22_212, 5553), (20,), 2, 194, features.TABLE),
  'inst_eval': _of_clients((58_737, 14_684), (5,), 2, 2972),
}


def of_flags(rows: str, shape: str, classes: int) -> Facts | None:
  """Reads the facts that a command line states; None if it states none.

  Args:
    rows: 'TRAIN,TEST'.
    shape: 'HEIGHT,WIDTH,CHANNELS', or 'LENGTH' of tokens.
    classes: how many.

  Raises:
    ValueError: if one is missing or cannot be read.
  """
  if not (rows or shape or classes):
    return None
  wanted = '--rows=TRAIN,TEST --shape=HEIGHT,WIDTH,CHANNELS --classes=N'
  try:
    counts, sizes = (tuple(int(word) for word in text.split(',')) for text in (rows, shape))
  except ValueError:
    counts, sizes = (), ()
  if len(counts) != 2 or len(sizes) not in (1, 3) or min(*counts, *sizes, classes) < 1:
    raise ValueError(
      f'--rows={rows} --shape={shape} --classes={classes}: say all three, as {wanted}'
    )
  return Facts(counts, sizes, classes)


def problem_of(resolved: Resolved, stated: Facts | None) -> AbstractProblem:
  """Returns a config's problem with shapes instead of images.

  Args:
    resolved: a checked config.
    stated: facts of the command line; None: those that are known, else those of the files.

  Raises:
    ValueError: if data, partition and model do not fit together, or the data are not known.
  """
  given = stated or known(resolved.data.name)
  if given is None:
    dataset = _read(resolved)
    given = Facts((len(dataset.train.y), len(dataset.test.y)), dataset.shape, dataset.num_classes)
  else:
    dataset = _small(resolved, given)
  build = lambda: assemble.build_model(resolved, given.shape, given.num_classes, dataset.kind)
  problem = assemble.problem_of(dataset, resolved.data, build)
  data = problem.data
  size = np.asarray(data.size)

  def wide(x) -> Any:
    shape = x.shape[0], *given.shape
    if isinstance(x, np.ndarray):  # rows in host memory: one pixel, which takes no more memory
      return np.broadcast_to(x.ravel()[0], shape)
    return jax.ShapeDtypeStruct(shape, x.dtype)

  data = data._replace(
    x=wide(data.x), proxy=data.proxy and data.proxy._replace(x=wide(data.proxy.x))
  )
  splits = {'test': dataset.test, 'validation': dataset.validation, **dataset.test_by_domain()}
  rows = {name: len(split.y) for name, split in splits.items() if split is not None}
  return AbstractProblem(problem._replace(data=data), size, rows)


def _read(resolved: Resolved) -> Dataset:
  """Reads a data set of which nothing is known without its files."""
  try:
    return assemble.read(resolved)
  except (FileNotFoundError, ValueError) as error:
    raise ValueError(
      f'{error}; or say --rows=TRAIN,TEST --shape=HEIGHT,WIDTH,CHANNELS --classes=N'
    ) from error


def _small(resolved: Resolved, given: Facts) -> Dataset:
  """Returns a data set of one pixel an image, divided as the config says."""
  d = resolved.data
  train, test = (_split(rows, given) for rows in given.rows)
  parts: dict[str, Any] = {}
  numbers = lambda rows: np.repeat(np.arange(len(rows), dtype=np.int32), rows)
  if given.natural:
    parts['clients'] = numbers(given.natural)
  elif partition.is_natural(d.partition):  # of clients that nobody knows: equal ones
    parts['clients'] = np.arange(given.rows[0], dtype=np.int32) % d.clients
  if given.test_natural:
    parts['domains'] = tuple(map(str, range(len(given.test_natural))))
    parts['test_domains'] = numbers(given.test_natural)
  dataset = make(d.name, d.name, train, test, given.num_classes, given.normalisation, **parts)
  if d.unseen_clients and given.natural:
    dataset = unseen.hold_out(dataset, d.unseen_clients, d.seed)
  if d.validation:
    dataset = held_out.hold_out(dataset, 'validation', d.validation, d.seed)
  if d.proxy == datasets.HELD_OUT:
    dataset = held_out.hold_out(dataset, 'proxy', d.proxy_share, d.seed)
  elif d.proxy:
    other = known(d.proxy)
    if other is None:
      raise ValueError(f"data.proxy={d.proxy!r}: its rows are not known; 'held_out' would work")
    x = _split(other.rows[0], given).x
    dataset = dataclasses.replace(dataset, proxy=Split(x, np.full(len(x), -1, np.int32)))
  if d.normalisation:
    scale = constants_for(d.normalisation, dataset.train.x)
    dataset = dataclasses.replace(dataset, normalisation=scale)
  return dataset


def _split(rows: int, given: Facts) -> Split:
  """Returns rows of one pixel or one step, or whole rows of tokens or a table."""
  numbers = np.arange(rows)
  y = (numbers % given.num_classes).astype(np.int32)
  if given.multi_label:
    y = (y[:, None] == np.arange(given.num_classes)).astype(np.int32)
  if given.kind:
    one = (rows, 1, given.shape[-1]) if given.kind == features.SEQUENCES else (rows, *given.shape)
    values = np.random.default_rng(0).standard_normal(one, np.float32)
    return Split(values, y)
  if len(given.shape) == 1:
    return Split((numbers[:, None] % facts.VOCABULARY).astype(np.int32), y)
  pixels = (numbers % 256).astype(np.uint8)
  return Split(np.repeat(pixels[:, None, None, None], given.shape[-1], axis=-1), y)
