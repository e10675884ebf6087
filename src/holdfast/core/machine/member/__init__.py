"""A member of a group.

``member`` takes events. ``member_data`` has its settings, its state as a plain record, and the
requests that are written from it. ``holdings`` is the record of its resources, and the order of
revoking them. ``responses`` handles the coordinator's responses, with the steps that other events
take as well.
"""
