"""What a user gives a member: assignors, functions with a deadline, arguments of calls."""
