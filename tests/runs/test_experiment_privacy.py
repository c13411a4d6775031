"""What a private run's folder reveals: refused pairs, noise of several methods, exported files."""

import functools
import json
import re

import jax
import numpy as np
import pytest
import safetensors

import fedjax_syn as fs
from fedjax_syn import config as config_lib
from fedjax_syn.config import identity
from fedjax_syn.core import privacy
from fedjax_syn.core.privacy import Mechanism, Sampling
from fedjax_syn.runs import api, assemble, config_json, experiment, export, progress, stored_files
from tests import tiny
from tests.run_helpers import config_of

pytest_plugins = ['tests.run_fixtures']

DP = {'algorithm': 'dp', 'compare': '', 'rounds': 2, 'seeds': (0, 1)}


@pytest.mark.parametrize(
  ('changes', 'line'),
  [
    (
      {'algorithm': 'dp+dynafed', 'compare': 'fedavg', 'rounds': 6},
      "compare='fedavg'.*'dp\\+dynafed' adds noise",
    ),
    ({'algorithm': 'fedavg', 'compare': 'dp'}, "compare='dp': 'dp' adds noise and 'fedavg' none"),
    ({'compare': 'feddualmatch'}, "'dp' adds noise and 'feddualmatch' none"),
    ({'start_from': 'elsewhere/checkpoints/3'}, 'would not count the rounds before'),
    ({'dp.delta': 0.25}, 'smaller than 1 / 4'),
  ],
)
def test_what_no_epsilon_covers_is_refused_before_data_are_read(changes, line, tmp_path, capsys):
  """The README's own command inherited a compared method without noise."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(experiment.assemble, 'load', None)  # not reached
    assert experiment.run_experiment(config_of(**DP | changes), tmp_path / 'run') == 2
  assert not (tmp_path / 'run').exists()
  error = capsys.readouterr().err
  assert error.count('\n') == 1
  assert re.search(line, error)


def test_a_compared_method_with_noise_counts(tmp_path, fake, monkeypatch):
  """Two seeds of two methods: four times two rounds of the same clients."""
  config = config_of(**DP, **{'dp.noise_multiplier': 4.0})
  config.compare, config.algorithm = 'dp', 'dp+fedavgm'
  assert experiment.run_experiment(config, tmp_path) == 0
  read = lambda folder: json.loads((folder / 'summary.json').read_text())
  whole, part = read(tmp_path), read(tmp_path / 'compare')
  of = lambda rounds: privacy.epsilon(Mechanism(4.0, 1e-5), Sampling('fixed', 4, 0.4, rounds))
  assert whole['epsilon'] == pytest.approx(of(8)) and part['epsilon'] == pytest.approx(of(4))
  assert whole['epsilon_per_seed'] == part['epsilon_per_seed'] == pytest.approx(of(2))
  assert (whole['privacy']['seeds'], whole['privacy']['methods']) == (2, 2)
  assert (part['privacy']['seeds'], part['privacy']['methods']) == (2, 1)
  config.compare = 'dp,dp(dp.noise_multiplier=8.0,client.lr=0.1)'
  numbers, bind = [], assemble.bind
  monkeypatch.setattr(assemble, 'bind', lambda *args: numbers.append(args[3]) or bind(*args))
  assert experiment.run_experiment(config, tmp_path / 'three') == 0
  four, eight = ((Mechanism(z, 1e-5), Sampling('fixed', 4, 0.4, 2, 2)) for z in (4.0, 8.0))
  epsilon = read(tmp_path / 'three')['epsilon']
  assert epsilon == pytest.approx(privacy.composed([four, four, eight]))
  assert numbers == [1, 2, 0]  # each draws noise of its own, and the run as without the others


def test_rounds_that_come_later_count(tmp_path, fake):
  config = config_of(**DP, **{'dp.noise_multiplier': 4.0})
  for rounds in (2, 5):
    config.rounds = rounds
    assert experiment.run_experiment(config, tmp_path) == 0
    summary = json.loads((tmp_path / 'summary.json').read_text())
    of = privacy.epsilon(Mechanism(4.0, 1e-5), Sampling('fixed', 4, 0.4, 2 * rounds))
    assert summary['epsilon'] == pytest.approx(of)


def test_seeds_that_diverge_count_for_all_their_rounds(tmp_path, fake):
  """Seed 1 ends in round 2: no less is stated than for two whole seeds."""
  fake(diverge={1: 2})
  config = config_of(**DP | {'rounds': 4}, **{'dp.noise_multiplier': 4.0})
  assert experiment.run_experiment(config, tmp_path) == 0
  summary = json.loads((tmp_path / 'summary.json').read_text())
  assert summary['status']['1']['status'] == 'diverged'
  of = privacy.epsilon(Mechanism(4.0, 1e-5), Sampling('fixed', 4, 0.4, 4, seeds=2))
  assert summary['epsilon'] == pytest.approx(of)


def test_methods_beside_each_other_draw_different_noise():
  """Equal noise could be subtracted, and sampling counts once for each method.

  Round 1 of one parameter is nearly noise alone.
  """

  def first_move(**settings):
    method = fs.chain(
      fs.FedAvg(lr=1e-9, optimizer='sgd', batch_size=1), fs.DP(clip=1.0, noise_multiplier=2.0)
    )
    engine = tiny.build(
      method, tiny.quadratic(1.0), tiny.two_points(), loss=tiny.half_square, **settings
    )
    return float(engine.run(0, engine.init(0), 1)[0].params['w']) - 1

  def empty_rounds(**settings):  # of 100 in which one of two clients is drawn, who has no sample
    engine = tiny.build(
      fs.DP(), tiny.net(4, 3), tiny.federated([6, 0]), participation=0.5, **settings
    )
    return engine.empty_rounds(0, 0, 100)

  alone, beside = first_move(), first_move(noise_number=1)
  assert empty_rounds() != empty_rounds(noise_number=1)
  assert abs(alone - beside) > 0.01 and 0.01 < abs(alone) < 5


def test_noise_that_was_chosen_for_less_is_not_gone_on_with():
  """An older folder has three seeds and noise that was chosen for one of them.

  With this noise the run would not keep the target.
  """
  config = config_lib.get_default()
  config.algorithm, config.compare, config.rounds, config.seeds = 'dp', '', 60, (0, 1, 2)
  config.client.sampler, config.dp.target_epsilon = 'poisson', 8.0
  resolved = config_lib.check(config)
  stored_files = config_lib.to_dict(resolved)
  assert not identity.diff(stored_files, resolved)
  stored_files['dp']['noise_multiplier'] = 1.5
  (line,) = identity.diff(stored_files, resolved)
  assert line.startswith('dp.noise_multiplier: 1.5 -> ')


def folder_of(root, rows, normalisation):
  """A folder of arrays; the last row is black or white."""
  root.mkdir()
  rng = np.random.default_rng(0)
  x, y = rng.integers(0, 256, (40, 4, 4, 1)).astype(np.uint8), np.arange(40) % 4
  np.savez(root / 'test.npz', x=x[:8], y=y[:8])
  x[-1] = 255 * (rows % 2)
  np.savez(root / 'train.npz', x=x[:rows], y=y[:rows])
  (root / 'meta.json').write_text(json.dumps({'normalisation': normalisation}))
  return str(root)


def described(root, folder, **changes):
  """The config.json of a run on a folder of arrays, and its model."""
  own = {'data.name': 'arrays', 'data.dir': folder, 'model.norm': 'none'}
  resolved = config_lib.check(config_of(**DP | own | changes))
  problem = assemble.load(resolved)
  (job,) = assemble.jobs(resolved, root, problem, progress.Reporter())
  config_json.write_config(job, 'test')
  return stored_files.read_json(root / 'config.json'), problem.model


def test_an_exported_model_tells_nothing_exact_of_the_clients(tmp_path):
  """The file says the same with another last row, or without it; a run's own files do not."""
  noise = {'dp.target_epsilon': 8.0, 'data.clients': 5, 'client.participation': 0.4}
  stored_files, files = [], []
  for rows in (40, 39):
    folder = folder_of(tmp_path / f'secret{rows}', rows, 'half')
    config, model = described(tmp_path / f'run{rows}', folder, **noise)
    variables = model.init(jax.random.key(0))
    stored_files.append(config['dataset'])
    files.append(export.save_model(variables, config, tmp_path / f'run{rows}' / 'm.safetensors'))
  for key in ('checksum', 'title', 'rows'):
    assert stored_files[0][key] != stored_files[1][key]
  said = []
  for file in files:
    with safetensors.safe_open(file, 'numpy') as opened:
      said.append(opened.metadata())
  assert said[0] == said[1] and files[0].stat().st_size == files[1].stat().st_size
  told = files[0].read_bytes()
  assert b'secret' not in told and b'seeds' not in told and b'clients' not in told
  assert export.note(config).startswith('the noise follows from the seeds (0, 1): whoever guesses')
  opened = export.load_model(files[0])  # what is left is enough
  x = np.zeros((2, 4, 4, 1))
  np.testing.assert_array_equal(
    opened.model.apply(opened.variables, x).logits, model.apply(variables, x).logits
  )
  assert (opened.mean, opened.std) == (0.5, 0.5)


def test_a_model_without_noise_is_exported_as_before(tmp_path):
  folder = folder_of(tmp_path / 'data', 40, 'auto')
  config, _ = described(tmp_path / 'run', folder, algorithm='fedavg')
  told = export.published(config)
  assert told['config'] == config['config'] and told['dataset']['checksum']
  assert export.note(config) == ''


@pytest.mark.parametrize('stated', ['', 'auto'])
def test_pixels_normalised_by_the_clients_own_are_refused(stated, tmp_path):
  """Mean and deviation of all clients' pixels are in the model, the sets and the files."""
  folder = folder_of(tmp_path / 'data', 40, 'auto')
  with pytest.raises(ValueError, match=r"data.normalisation='auto': .*'half' .*or 'unit'"):
    described(tmp_path / 'run', folder, **{'data.normalisation': stated})
  assert not (tmp_path / 'run').exists()
  config, _ = described(tmp_path / 'run', folder, **{'data.normalisation': 'half'})
  config['dataset']['normalisation']['name'] = 'auto'  # a run of before
  with pytest.raises(ValueError, match="data.normalisation='auto'"):
    export.published(config)


def two_points_round(method, start=0.0, rounds=1):
  engine = tiny.build(method, tiny.quadratic(start), tiny.two_points(), loss=tiny.half_square)
  return engine.run(0, engine.init(0), rounds)


def test_a_client_that_diverges_counts_for_nothing_and_is_not_told():
  """A does not move from 0, and B overflows.

  The status once named B and its round, and the model was lost.
  """
  base = fs.FedAvg(lr=1e30, optimizer='sgd', batch_size=1)
  _, report = two_points_round(fs.chain(base, fs.DP(clip=1.0, noise_multiplier=0.0)), rounds=2)
  assert (report['diverged_round'], report['diverged_client']) == (1, 1)  # without noise as before
  state, report = two_points_round(fs.chain(base, fs.DP(clip=1.0, noise_multiplier=1e-3)), rounds=2)
  assert (report['diverged_round'], report['diverged_client']) == (0, -1)
  assert report['train/loss'] < 1.0  # of A, whose model the noise has moved
  assert 0 < abs(float(state.params['w'])) < 0.51  # round 2: A's update alone, cut to 1, over two


def test_with_noise_no_figure_shows_real_images():
  """How well real training images follow the trajectory is an exact figure of them."""
  method = fs.chain(
    fs.DP(), fs.DynaFed(length=2, segment=1, iterations=1, inner_steps=1, images_per_class=1)
  )
  engine = tiny.build(method, tiny.net(16, 3), tiny.federated([6, 3], side=4))
  state = engine.init(0)
  own = state.server['dynafed']
  done = own._replace(iteration=own.iteration + 1)  # as if it were learned
  sets = engine.diagnose(0, state._replace(server={**state.server, 'dynafed': done}))
  assert set(sets) == {'synthetic', 'noise'}  # and 'real' without noise


class Tenfold(fs.Layer):
  def postprocess_update(self, client, payload):
    return jax.tree.map(lambda leaf: 10 * leaf, payload)


class Looks(fs.Layer):
  def server_update(self, round, new):
    return round.messages.mean('params'), None


def test_layers_after_dp_see_no_message_and_change_none():
  """Ten times a bounded update is not bounded, and the sum of the updates has no noise."""
  base = fs.FedAvg(lr=0.1, optimizer='sgd')
  two_points_round(fs.chain(base, Tenfold(), fs.DP()))
  two_points_round(fs.chain(base, Looks(), fs.DP(noise_multiplier=0.0)))
  for method, line in (
    (fs.chain(base, fs.DP(), Tenfold()), "'tenfold' changes what clients send after 'dp'"),
    (
      fs.chain(base, fs.DP(), Looks()),
      "'dp' protects the aggregated model, and a server .* reads the clients' 'params'",
    ),
  ):
    with pytest.raises(ValueError, match=line):
      two_points_round(method)


def test_a_run_says_what_its_epsilon_does_not_cover(tmp_path, fake, capsys):
  noise = {'dp.noise_multiplier': 4.0, 'client.sampler': 'poisson'}
  assert experiment.run_experiment(config_of(**DP | noise), tmp_path / 'run') == 0
  stated = privacy.epsilon(Mechanism(4.0, 1e-5), Sampling('poisson', 4, 0.4, 2, 2))
  (line,) = [t for t in capsys.readouterr().out.splitlines() if 'covers all models' in t]
  assert (
    line.startswith(f'epsilon {stated:.3f} at delta 1e-05') and 'not protected: config.json' in line
  )
  assert (
    experiment.run_experiment(config_of(**DP | {'algorithm': 'fedavg'}), tmp_path / 'bare') == 0
  )
  assert 'epsilon' not in capsys.readouterr().out


def test_from_python_a_target_is_kept_by_the_whole_run(monkeypatch):
  """DP(target_epsilon=8) once had the default noise and no message.

  Now it has the noise of the whole run, over all seeds.
  """
  run = functools.partial(fs.run, dataset='digits', model='mlp', rounds=60, clients=20)
  noise = []

  def engine(method, *_, **options):
    noise.append(method[fs.DP].noise_multiplier)
    raise RuntimeError('as far as needed')

  with monkeypatch.context() as patch:
    patch.setattr(api.engine_lib, 'Engine', engine)
    with pytest.raises(RuntimeError, match='as far as needed'):
      run(fs.chain(fs.DP(target_epsilon=8.0)), seeds=(0, 1, 2))
  stated = privacy.epsilon(Mechanism(noise[0], 1e-5), Sampling('fixed', 20, 1.0, 60, seeds=3))
  assert 7.8 < stated <= 8.0
  with pytest.raises(ValueError, match='noise_multiplier=1e-30: must be 0'):
    run(fs.chain(fs.FedAvg(), fs.DP(noise_multiplier=1e-30)))
