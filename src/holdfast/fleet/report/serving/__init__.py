"""A fleet in the browser: pages of ``holdfast serve``, one page a request.

``server`` is the HTTP server: waitress, bounds, addresses and host names. ``served_fleet`` holds
a folder and examines its groups beside the requests, ``ranges`` its tables of one moment, and their
groups in other time ranges. ``group_index`` has one row a group, and finds, sorts and cuts pages of
them; ``index_page`` draws one. ``live`` polls coordinators for the states of groups, and has rows
and verdicts by their answers. ``application`` answers requests, and imports the web framework.
"""
