"""The work on the resources of one worker: starting it, ending it, restarting it after a failure.

====================  ============================================================================
``supervisor``        the thread between the member and the work; a worker begins here
``machine``           decides what begins, ends and fails; knows neither threads nor a clock
``attempts``          the state of the work, the effects to perform, and how the work learns of its
                      end; the interface of each form of work
``runners``           a function on a thread of its own; callbacks with all resources of a round
``event_loop``        a coroutine on one event loop
====================  ============================================================================
"""
