"""What a private run's folder gives away: refused pairs, noise of several methods, what is exported."""

import json
import re

import pytest

from fedjax_syn import config as config_lib
from fedjax_syn import experiment, privacy, same_run
from fedjax_syn.algorithms.dp import dp
from fedjax_syn.algorithms.fedavg import fedavg
from fedjax_syn.privacy import Mechanism, Sampling
from tests import tiny
from tests.runs import config_of

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
    ({'start_from': 'elsewhere/checkpoints/3'}, 'would leave out what the rounds before'),
    ({'dp.delta': 0.25}, 'one of its 4 clients'),
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


def test_a_compared_method_with_noise_counts(tmp_path, fake):
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


def test_methods_beside_each_other_draw_different_noise():
  """Equal noise could be subtracted. Round 1 of one parameter: nearly noise alone, 2 / 2 long."""

  def first_move(**settings):
    method = dp(fedavg(1e-9, optimizer='sgd', batch_size=1), clip=1.0, noise_multiplier=2.0)
    engine = tiny.build(
      method, tiny.quadratic(1.0), tiny.two_points(), loss=tiny.half_square, **settings
    )
    return float(engine.run(0, engine.init(0), 1)[0].params['w']) - 1

  alone, beside = first_move(), first_move(noise_number=1)
  assert abs(alone - beside) > 0.01 and 0.01 < abs(alone) < 5


def test_noise_that_was_chosen_for_less_is_not_gone_on_with():
  """A folder of before: three seeds, noise chosen for one of them. With it the target would not be kept."""
  config = config_lib.get_default()
  config.algorithm, config.compare, config.rounds, config.seeds = 'dp', '', 60, (0, 1, 2)
  config.client.sampler, config.dp.target_epsilon = 'poisson', 8.0
  resolved = config_lib.check(config)
  stored = config_lib.to_dict(resolved)
  assert not same_run.diff(stored, resolved)
  stored['dp']['noise_multiplier'] = 1.5
  (line,) = same_run.diff(stored, resolved)
  assert line.startswith('dp.noise_multiplier: 1.5 -> ')
