"""Executes the notebooks, several at a time; an error in any cell is an error here.

  python -m tools.notebooks [OUT] [--jobs=N] [--only=NAME] [--seconds=S]

  OUT        a folder for copies with outputs; without it they are not kept
  --jobs     notebooks at a time; 2
  --only     those whose name has this in it, as 03
  --seconds  that a cell may take; 600

With `FEDJAX_SYN_NOTEBOOKS=OUT python -m mkdocs build` the documentation shows the copies. Exit status: 0, or 1 after the cell
that failed. Needs the extra `notebooks`.
"""

import argparse
import asyncio
import os
import pathlib
import re
import sys
import tempfile
import time

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / 'notebooks'
COLOUR = re.compile(r'\x1b\[[0-9;]*m')  # of a terminal, in tracebacks


async def execute(
  path: pathlib.Path, out: pathlib.Path | None, seconds: int, free: asyncio.Semaphore
) -> str:
  """Executes one notebook in a kernel of its own.

  Args:
    path: the notebook.
    out: a folder for the executed copy, or None.
    seconds: that a cell may take.
    free: how many may run.

  Returns:
    What went wrong, or ''.
  """
  notebook = nbformat.read(path, as_version=4)
  resources = {'metadata': {'path': str(path.parent)}}
  client = NotebookClient(
    notebook,
    timeout=seconds,
    startup_timeout=seconds,
    kernel_name='python3',
    resources=resources,
    extra_arguments=['--log-level=ERROR'],  # every kernel warns that its ports are not encrypted
  )
  async with free:
    start = time.monotonic()
    try:
      await client.async_execute()
    except (CellControlSignal, RuntimeError) as error:  # a cell failed, or the kernel did
      return f'{path.name}: {COLOUR.sub("", str(error))}'
    print(f'{path.name}: {time.monotonic() - start:.1f} s', flush=True)
  if out is not None:
    out.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, out / path.name)
  return ''


async def execute_all(
  paths: list[pathlib.Path], out: pathlib.Path | None, seconds: int, jobs: int
) -> list[str]:
  """Executes notebooks, `jobs` at a time; returns what went wrong with which."""
  free = asyncio.Semaphore(jobs)
  found = await asyncio.gather(*(execute(path, out, seconds, free) for path in paths))
  return [error for error in found if error]


def main(argv: list[str]) -> int:
  """Executes what the command line says; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('out', nargs='?', type=pathlib.Path, help='folder for executed copies')
  parser.add_argument('--jobs', type=int, default=2, help='notebooks at a time')
  parser.add_argument('--only', default='', help='those whose name has this in it')
  parser.add_argument('--seconds', type=int, default=600, help='that a cell may take')
  flags = parser.parse_args(argv[1:])
  paths = [path for path in sorted(FOLDER.glob('*.ipynb')) if flags.only in path.name]
  if not paths:
    parser.error(f'--only={flags.only}: no notebook in {FOLDER} has this in its name')
  for name in ('jobs', 'seconds'):
    if getattr(flags, name) < 1:
      parser.error(f'--{name}={getattr(flags, name)}: must be at least 1')
  with tempfile.TemporaryDirectory() as cache:
    # Kernels inherit this: a program that two notebooks share is compiled once.
    os.environ.setdefault('JAX_COMPILATION_CACHE_DIR', cache)
    errors = asyncio.run(execute_all(paths, flags.out, flags.seconds, flags.jobs))
  for error in errors:
    print(error, file=sys.stderr)
  return 1 if errors else 0


if __name__ == '__main__':
  sys.exit(main(sys.argv))
