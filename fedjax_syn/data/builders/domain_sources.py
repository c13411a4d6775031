"""The data sets of several domains that are fetched by hand: what they must hold."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fedjax_syn.data.builders import digit_five, office_home
from fedjax_syn.data.domains import Domain


class DomainSource(NamedTuple):
  """All that is known of a data set of several domains before it is read."""

  name: str
  title: str
  domains: tuple[str, ...]
  rows: tuple[tuple[int, int], ...]
  """By domain: training and test images."""
  side: int
  """Height and width of all images, in pixels; they have three channels."""
  num_classes: int
  fetch: str
  """What to put where; no program downloads these files."""
  locate: Callable[[Path], Path | None]
  """The folder of all data sets -> the layout."""
  parse: Callable[[Path], list[Domain]]


_ALL = (
  DomainSource(
    name='digit_five',
    title='Digit-Five',
    domains=digit_five.DOMAINS,
    rows=((25000, 9000), (25000, 9000), (25000, 9000), (25000, 9000), (7438, 1860)),
    side=32,
    num_classes=10,
    fetch=f'put {digit_five.FOLDER}/ with {", ".join(digit_five.FILES)} there (http://ai.bu.edu/M3SDA/)',
    locate=digit_five.locate,
    parse=digit_five.parse,
  ),
  DomainSource(
    name='office_home',
    title='Office-Home',
    domains=tuple(office_home.DOMAINS),
    # A fifth of each domain, rounded.
    rows=((1942, 485), (3492, 873), (3551, 888), (3486, 871)),
    side=office_home.SIDE,
    num_classes=65,
    fetch=f'put {office_home.FOLDER}.zip, or the folder in it, there '
    '(https://www.hemanthdv.org/officeHomeDataset.html)',
    locate=office_home.locate,
    parse=office_home.parse,
  ),
)

DOMAIN_SOURCES: dict[str, DomainSource] = {source.name: source for source in _ALL}
