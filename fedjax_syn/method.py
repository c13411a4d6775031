"""What versions before 0.2 kept here: every name of it fails with the line that says the new one."""

from typing import Any

_RENAMED = {
  'Client': 'the hook Layer.client_update',
  'ClientTransform': 'the hooks of fedjax_syn.Layer',
  'Method': 'fedjax_syn.Chain',
  'Message': 'fedjax_syn.core.contexts.Message',
  'Messages': 'fedjax_syn.core.contexts.Messages',
  'ServerTransform': 'the hooks of fedjax_syn.Layer',
  'State': 'fedjax_syn.core.contexts.State',
  'Task': 'fedjax_syn.Task',
  'Visit': 'fedjax_syn.ClientContext',
}


def __getattr__(name: str) -> Any:
  if name.startswith('__'):  # what Python asks of every module
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  new = _RENAMED.get(name, 'gone: a method is a class of hooks')
  text = new if new.startswith('gone') else f'{new} now'
  raise ImportError(f'{__name__}.{name} is {text} (docs/compose.md, CHANGELOG.md)')
