"""One module per command and nothing else: ``upgrade_check.py`` is ``holdfast upgrade-check``.

:mod:`holdfast.cli.app` lists the files of this folder and adds each module's ``run`` with its
``EXAMPLES``. ``config`` has commands of its own; its module has their ``group`` instead.
"""
