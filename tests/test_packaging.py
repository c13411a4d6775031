"""The pins of constraints.txt are compatible: every package admits the pins of what it requires."""

import importlib.metadata
import pathlib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = pathlib.Path(__file__).parents[1]
OURS = 'fedjax-syn'


def read_pins() -> dict[str, str]:
  """Versions by name, of constraints.txt."""
  lines = (ROOT / 'constraints.txt').read_text().splitlines()
  pins = [line.partition('==') for line in lines if line and not line.startswith('#')]
  assert all(equals for _, equals, _ in pins)
  return {canonicalize_name(name): version for name, _, version in pins}


def admitted(requirement: Requirement) -> bool:
  """Says whether a requirement holds here, without extras."""
  return requirement.marker is None or requirement.marker.evaluate({'extra': ''})


def conflicts(pins: dict[str, str]) -> tuple[list[str], int]:
  """Compares the pins with the requirements of the installed packages.

  A package counts only in its pinned version. Every extra of this project counts.

  Returns:
    The requirements that the pins do not meet, and how many requirements were compared.
  """
  found, asked = [], 0
  for package in importlib.metadata.distributions():
    name = canonicalize_name(package.metadata['Name'])
    if name != OURS and pins.get(name) != package.version:
      continue
    for requirement in map(Requirement, package.requires or ()):
      pin = pins.get(canonicalize_name(requirement.name))
      if pin is None or not (name == OURS or admitted(requirement)):
        continue
      asked += 1
      if not requirement.specifier.contains(Version(pin), prereleases=True):
        found.append(f'{name} {package.version} needs {requirement}, not {pin}')
  return found, asked


def test_the_pins_fit_together():
  found, asked = conflicts(read_pins())
  assert not found and asked >= 15  # our own requirements at least


def test_a_pin_that_does_not_fit_is_found():
  """Of this project's own requirement, and of another's (dp-accounting admits attrs below 24)."""
  assert conflicts(read_pins() | {'numpy': '1.26.4'})[0]
  if importlib.metadata.version('dp-accounting') != read_pins()['dp-accounting']:
    pytest.skip('another dp-accounting is installed')
  assert any('attrs' in line for line in conflicts(read_pins() | {'attrs': '26.1.0'})[0])


def test_what_the_project_needs_is_pinned():
  mine = map(Requirement, importlib.metadata.requires(OURS))
  needed = {canonicalize_name(r.name) for r in mine if admitted(r)}
  assert needed <= set(read_pins())
