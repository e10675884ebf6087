"""A fleet in the browser: pages of ``holdfast serve``, one page a request.

``server`` handles connections, and ``hosts`` checks addresses and host names. ``served_fleet``
holds the tables of a folder and examines their groups beside the requests; ``updater_state`` is
the state of their updater. ``group_index`` has one row a group, and finds, sorts and cuts pages of
them; ``index_page`` draws one. ``live_answers`` polls coordinators for the states of groups, and
``live_index`` has rows and verdicts by their answers. ``application`` answers requests, and
imports the web framework.
"""
