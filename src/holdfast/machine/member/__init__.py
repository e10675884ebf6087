"""A member of a group.

``member`` takes events and ``answers`` what the coordinator says; ``record`` is what the member
knows of itself and the requests it writes; ``holdings`` is what it owns and the order of giving it
up, ``listeners`` what an application hears; ``options`` are its settings.
"""
