"""The page: one HTML file.

``writing`` puts the page together: HTML, whose parts are ``sections``, ``group_sections`` (state,
members, partitions), ``charts`` over time and ``policies``, and ``payload``, columns and colours
for the script. ``markup`` escapes, draws numbers in words and small pictures, and makes a whole
page with its policy. ``page/`` has the script, the style and the timeline's frame.
"""
