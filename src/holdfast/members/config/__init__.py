"""What a user gives a member.

``own_assignors`` resolves the user's assignors and policies, ``timed_call`` calls the user's
functions with a deadline, and ``arguments`` checks the arguments of a consumer's calls.
"""
