"""Every test of this folder runs in float64."""

import jax
import pytest


@pytest.fixture(autouse=True, scope='module')
def x64():
  with jax.enable_x64(True):
    yield
