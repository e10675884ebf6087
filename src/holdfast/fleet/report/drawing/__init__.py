"""The page: one HTML file.

``writing`` puts the page together: HTML, whose parts are ``sections``, ``now_section`` (state and
members), ``partitions_section``, ``charts`` over time and ``policies`` over ``words`` (sentences
and small pictures), and ``payload``, columns and colours for the script. ``document`` is a whole
page with its policy. ``markup`` escapes, and ``page/`` has the script, the style and the timeline's
frame.
"""
