"""One module per command and nothing else: ``upgrade_check.py`` is ``holdfast upgrade-check``.

:mod:`holdfast.cli.app` has a row for each file of this folder and takes the ``run`` and the
``EXAMPLES`` of the file. ``config`` and ``tables`` have subcommands: these two modules have a
``group``.
"""
