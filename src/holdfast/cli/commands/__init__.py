"""One module per command and nothing else: ``upgrade_check.py`` is ``holdfast upgrade-check``.

:mod:`holdfast.cli.app` has a row for each file of this folder and takes its ``run`` with its
``EXAMPLES``. ``config`` and ``tables`` have commands of their own: these modules have a ``group``.
"""
