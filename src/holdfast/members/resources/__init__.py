"""The work on the resources of one worker: starting it, ending it, restarting it after a failure.

====================  ============================================================================
``forms``             the forms in which a program gives its work; a worker begins here
``supervisor``        the thread between the member and the work
``machine``           decides what begins, ends and fails; knows neither threads nor a clock
``effects``           what the machine wants done, and what it reports of a resource
``failures``          failures: how often, the next attempt, what is reported to the group
``runner``            the interface of each form of work
``threads``           a function on a thread of its own
``event_loop``        a coroutine on one event loop
``listener_calls``    callbacks with all resources of a round
``stop_events``       how the work learns of its end
====================  ============================================================================
"""
