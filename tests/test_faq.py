"""The FAQ answers what every study asks, with settings that exist or a no."""

import pathlib
import re
import shlex

import pytest

from fedjax_syn import config as config_lib

TEXT = (pathlib.Path(__file__).resolve().parents[1] / 'docs' / 'faq.md').read_text()
STUDIES = re.search(r'^## Studies\n(.*?)^## ', TEXT, re.DOTALL | re.MULTILINE)[1]
ANSWERS = dict(re.findall(r'^\*\*(.+?)\*\*\s(.*?)(?=^\*\*|\Z)', STUDIES, re.DOTALL | re.MULTILINE))
ASKED = (
  *('early stopping', 'best model', 'attacks', 'label noise', 'schedules', 'own test rows'),
  *('pretrained weights', 'confusion matrix', 'dropouts', "clients' models", 'never trained'),
  *('tables', 'config.json', 'own partition', 'shared layers', 'gradient clipping'),
  *('tensorflow-datasets', 'dropout layers', 'asynchronous', 'vertical', 'pytorch models'),
  *('language models',),
)
FAST = {'algorithm': 'fedavg', 'compare': ''}  # what an answer's settings are added to


@pytest.mark.parametrize('topic', ASKED)
def test_every_question_has_a_command_or_a_no(topic):
  (answer,) = {a for question, a in ANSWERS.items() if topic in question.lower()}
  yes, command = re.match(r'Yes\b', answer), re.search(r'`[^`]*(--|npz)[^`]*`', answer)
  assert (yes and command) or re.match(r'No\b', answer), answer


@pytest.mark.parametrize('question', ANSWERS)
def test_settings_of_answers_exist_and_go_together(question):
  """Each command's settings are checked, with those beside them in the same code."""
  for code in re.findall(r'`([^`]*--config\.[^`]*)`', ANSWERS[question]):
    words = shlex.split(code.replace('\n', ' '))
    config = config_lib.get_default()
    for key, value in FAST.items():
      config_lib.override(config, key, value)
    for word in words:
      if word.startswith('--config.'):
        key, _, value = word.removeprefix('--config.').partition('=')
        if '.py:' not in value:  # a file of the reader's own
          config_lib.override(config, key, value)
    config_lib.check(config)
