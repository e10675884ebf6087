"""Virtual time, messages, members. Each module imports only modules above it in this list.

==================  ==================================================================
``clock``           what happens when, and the trace
``costs``           the cost model
``ownership_log``   which process runs which resource when, in numbers; broken rules
``process``          a member machine in its process; whether nothing is in progress there
``broker``          the coordinator, its log and its restarts
``connections``      the network: requests, answers, and hooks that a test may put around them
``application``     the program around a member
``world``           wires all parts, and makes faults happen to them
==================  ==================================================================
"""
