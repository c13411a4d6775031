"""A run from its config to its files.

`experiment` opens the folder, `training` trains its seeds, `loop` is the rounds; `resume`,
`checkpoint` and `work_folder` are what lies on disk; `api` is the same without a folder.
"""
