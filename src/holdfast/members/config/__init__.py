"""What a user gives a member.

``settings`` has every key of a member, with type, default and range; ``client_keys`` passes on, or
refuses, the keys of other clients. ``policy`` makes the assignors and the machine of a member from
its settings, ``own_assignors`` resolves the user's assignors and policies, and calls the user's
functions with a deadline. ``arguments`` checks the arguments of a consumer's calls.
"""
