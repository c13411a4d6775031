"""The flags that the tools for series share."""

from absl import flags

DATA_DIR = flags.DEFINE_string('data_dir', '', 'where the data lie')
WORK = flags.DEFINE_string('work', '', 'the folder of runs')
ONLY = flags.DEFINE_string('only', '', 'cells whose name contains the text')
SHOW = flags.DEFINE_bool('show', False, 'writes tables and figures')
