"""One module per command, named as the command is.

``assign``, ``broker``, ``config``, ``decode``, ``demo``, ``doctor``, ``dump``, ``encode``,
``explain``, ``export``, ``history``, ``lag``, ``plan``, ``replay``, ``report``, ``simulate``,
``upgrade_check`` and ``watch``.

Of ``simulate`` there are three more: ``simulate_scene``, ``simulate_search``, ``simulation_dump``.
"""
