"""A member of a group.

``member`` takes events. ``member_data`` is the member's state as a plain record, ``holdings`` the
part of it that a member owns, and the order of giving it up. ``answers`` is what the coordinator's
answers do to a member, ``steps`` what answers and other events have in common, ``requests`` writes
its requests. ``options`` are its settings.
"""
