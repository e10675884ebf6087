"""The work on the resources of one worker: starting it, ending it, restarting it after a failure.

====================  ============================================================================
``supervisor``        the thread between the member and the work; a worker begins here
``machine``           decides what begins, ends and fails; knows neither threads nor a clock
``attempts``          the state of the work, the effects to perform, and how the work learns of its
                      end; failures and their delays
``runners``           a thread for each function, an event loop for coroutines, or a thread for the
                      callbacks with all resources of a rebalance
====================  ============================================================================
"""
