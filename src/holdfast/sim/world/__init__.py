"""Virtual time, messages, members. Each module imports only modules above it in this list.

==================  ==================================================================
``clock``           what happens when, and the trace
``costs``           the cost model
``network``         delays, drops and duplicates messages
``ownership_log``   which process runs which resource when, in numbers; broken rules
``process``         a member machine in its process
``quiescence``      whether nothing is in progress in a group
``hooks``           functions that a test may put around the parts below
``broker``          the coordinator, its log and its restarts
``connections``     requests on the way to the broker, answers on the way back
``application``     the program around a member
``world``           wires all parts, and makes faults happen to them
==================  ==================================================================
"""
