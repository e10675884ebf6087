"""What a user gives a member.

``policy`` makes the assignors and the machine of a member from its settings, ``own_assignors``
resolves the user's assignors and policies, and calls the user's functions with a deadline.
``arguments`` checks the arguments of a consumer's calls.
"""
