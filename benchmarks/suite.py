"""Runs the jobs of a suite, shows each result, and keeps them in files."""

import contextlib
import dataclasses
import datetime
import functools
import json
import os
import pathlib
import statistics
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks import records, timing, workloads
from benchmarks.records import Result
from benchmarks.timing import Side

WHOLE_PAIRS = 2


class Suite:
  """Runs jobs, shows each result, and keeps them all in a file, or in one file for each job."""

  def __init__(
    self,
    peers: Mapping[str, Sequence[str]],
    file: pathlib.Path | None,
    smoke: bool,
    folder: pathlib.Path | None = None,
    about: Mapping[str, Any] = {},
  ):
    """Prepares a suite.

    Args:
      peers: their commands, by name.
      file: for all results, or None.
      smoke: measures the machine's speed with small arrays.
      folder: for a file for each job; a job whose file is there is not run again.
      about: what these files say besides: command, commit.
    """
    self.peers, self.file, self.smoke, self.folder, self.about = peers, file, smoke, folder, about
    self.results: list[Result] = []
    self.known: dict[str, timing.Rates] = {}
    self.versions: dict[str, str] = {}  # what the peers of the job say that they are

  def rates(self, precision: str) -> timing.Rates:
    """Returns the machine's speed with a precision, measured once."""
    if precision not in self.known:
      self.known[precision] = rates = timing.measure_rates(precision, self.smoke)
      speed, copied = rates.operations / 1e12, rates.bytes / 1e9
      print(f'{precision}: {speed:.4g} TFLOP/s in a matrix product, {copied:.4g} GB/s')
    return self.known[precision]

  def add(
    self,
    name: str,
    precision: str,
    program: timing.Program,
    ours: Side,
    units: int,
    peer: str = '',
    theirs: Side | None = None,
    note: str = '',
  ) -> Result:
    """Shows and keeps a result.

    Args:
      name: of the result.
      precision: of the matrix products.
      program: that was measured, after its last unit.
      ours: our side, seconds for one unit each; or for all units, if there is one value.
      units: measured units.
      peer: the peer.
      theirs: its side.
      note: end of the line.
    """
    share = 1 if len(ours.seconds) == 1 else units
    operations, bytes_moved = (
      value / share for value in program.cost(program.done - units + 1, program.done)
    )
    floor = timing.floor_seconds(operations, bytes_moved, self.rates(precision))
    own = {'floor': floor, 'peak': program.peak_bytes, 'compile_seconds': program.compile_seconds}
    result = records.compare(name, ours, **own, peer=peer, theirs=theirs)
    print(records.show(result, operations, bytes_moved, note), flush=True)
    return self.keep(result)

  def keep(self, result: Result) -> Result:
    """Keeps a result."""
    self.results.append(result)
    if self.file:
      objects = [result._asdict() for result in self.results]
      self.file.write_text(json.dumps(objects, indent=1) + '\n')
    return result

  def run(self, job: workloads.Job, file: str = '') -> bool:
    """Runs a job, unless its file in the folder is complete.

    Args:
      job: the job.
      file: its file's name.

    Returns:
      Did all of it succeed?
    """
    peers = {name: command for name, command in self.peers.items() if name in job.peers}
    wanted = {'commit': self.about.get('commit'), 'asked': [*peers], 'smoke': self.smoke}
    path = self.folder / file if self.folder else None
    if path and (results := records.finished(path, wanted)) is not None:
      self.results += results
      print('\n'.join(f'{records.show(r._replace(floor_seconds=None))}, {path}' for r in results))
      return True
    before, load, self.versions = len(self.results), os.getloadavg()[0], {}
    whole = isinstance(job.work, workloads.WholeRun)
    succeeded = self._run_whole(job, peers) if whole else self._run_programs(job, peers)
    if path:
      rates = {name: rates._asdict() for name, rates in self.known.items()}
      content = self.about | wanted | {'name': job.name}
      content |= {'complete': succeeded, 'load': load, 'rates': rates}
      content |= {'date': f'{datetime.datetime.now():%Y-%m-%d %H:%M}', 'peers': self.versions}
      content |= {'machine': records.machine()}
      content['results'] = [result._asdict() for result in self.results[before:]]
      path.write_text(json.dumps(content, indent=1) + '\n')
    return succeeded

  def _run_whole(self, job: workloads.Job, peers: Mapping[str, Sequence[str]]) -> bool:
    """Times whole processes."""
    main = [sys.executable, str(timing.ROOT / 'launch' / 'main.py')]
    commands = {'': lambda folder: [*main, *job.work.arguments(f'{folder}/run')]}
    for name, command in peers.items():
      work = json.dumps(dataclasses.asdict(job.work))
      commands[name] = lambda folder, command=command, work=work: [*command, work]
    sides, printed = timing.measure_whole(commands, 1 if self.smoke else WHOLE_PAIRS)
    ours = sides.pop('')
    self.versions = {name: printed[name] for name in sides}
    for name, theirs in (sides or {'': None}).items():
      print(records.show(self.keep(records.compare(job.name, ours, peer=name, theirs=theirs))))
    return True

  def _run_programs(self, job: workloads.Job, peers: Mapping[str, Sequence[str]]) -> bool:
    """Compiles the variants of a job in parallel, then times one after the other."""
    import jax

    timed = self._variants(job, alone=len(job.variants) > 1 or job.whole or not peers)
    succeeded = len(timed) == len(job.variants)
    if not timed:
      return False
    _, variant, program = min(timed, key=lambda entry: entry[0])
    timed.clear()  # frees the other programs and their memory
    name, precision, units = job.label(variant), variant.precision, job.work.units
    with jax.default_matmul_precision(precision):
      if peers:
        with contextlib.ExitStack() as stack:
          asks = {}
          for peer, command in peers.items():
            asks[peer], self.versions[peer] = stack.enter_context(timing.peer_process(command, job))
          program, ours, sides = timing.measure_beside(program, job.units, asks)
        for peer, theirs in sides.items():
          grown = theirs.peak_bytes
          note = '' if grown is None else f', the peer {grown / 2**20:.0f} MiB'
          count = timing.REPEATS * job.units
          self.add(name, precision, program, ours, count, peer, theirs, note)
      if job.whole:
        program, unit, cpu = timing.run_units(program, units)
        total = Side([unit * units + program.compile_seconds], [cpu * units])
        note = f', {variant.label()}, of which {program.compile_seconds:.1f} s compilation'
        self.add(f'{job.name}/{precision}/all', precision, program, total, units, note=note)
    return succeeded

  def _variants(self, job: workloads.Job, alone: bool) -> list[tuple[float, Any, timing.Program]]:
    """Compiles the variants; times them `alone`, or leaves that to the pairs.

    Returns:
      Median seconds, variant and program of those that succeeded.
    """
    import jax

    from benchmarks import programs

    timed, count = [], timing.REPEATS * job.units
    with ThreadPoolExecutor(min(len(job.variants), os.cpu_count() or 1)) as pool:
      prepare = functools.partial(programs.prepare, job.work)
      futures = {v: pool.submit(prepare, v) for v in job.variants}
    for variant in job.variants:
      name, precision, seconds = job.label(variant), variant.precision, [0.0]
      try:
        program = futures.pop(variant).result()
        # A single variant is timed later if there is a peer, alternating with it.
        if alone:
          with jax.default_matmul_precision(precision):
            program, side = timing.measure(program, job.units)
          note, seconds = f', compiled in {program.compile_seconds:.1f} s', side.seconds
          self.add(name, precision, program, side, count, note=note)
        timed.append((statistics.median(seconds), variant, program))
      except Exception as error:  # out of memory, for example: the others can still be timed
        reason = str(error).strip().splitlines() or ['']
        print(f'{name}: {type(error).__name__}: {reason[0][:200]}', flush=True)
    return timed
