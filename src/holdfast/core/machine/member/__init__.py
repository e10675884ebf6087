"""A member of a group.

``member`` takes events. ``member_data`` has its settings, and its state as a plain record.
``holdings`` is the record of its resources, and the order of revoking them. ``answers`` handles the
coordinator's answers, ``steps`` holds the steps that several events share, and writes requests.
"""
