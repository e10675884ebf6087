"""One module per command and nothing else: ``upgrade_check.py`` is ``holdfast upgrade-check``.

:mod:`holdfast.cli.app` lists the files of this folder. A module has ``register(app)``, which gives
the Typer app its function.
"""
