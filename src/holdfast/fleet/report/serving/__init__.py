"""A fleet in the browser: what ``holdfast serve`` shows, one page a request.

``server`` holds connections, and ``hosts`` says who may ask by which name. ``served_fleet`` holds
the tables of a folder and examines their groups beside the requests; ``updater_state`` is how their
keeper is. ``group_index`` has one row a group, and finds, sorts and cuts pages of them;
``index_page`` draws one. ``live_answers`` asks coordinators what groups do now, and ``live_index``
has rows and verdicts by that. ``application`` answers requests, and imports the web framework.
"""
