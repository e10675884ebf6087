"""Virtual time, messages, members.

``world`` joins them: ``network`` (latencies), ``process`` (a member), ``application`` (the program
around it), ``connections`` (requests and answers), ``costs`` (what things cost) and ``ledger``
(what was measured).
"""
