"""The work on the resources of one worker: begun, ended, and begun again where it has failed.

====================  ============================================================================
``forms``             the forms in which a program gives its work; a worker begins here
``supervisor``        the thread between the member and the work
``machine``           decides what begins, ends and fails; knows neither threads nor a clock
``effects``           what the machine wants done, and what it tells of a resource
``failures``          what has failed how often, when it is tried again, what the group hears
``runner``            what each form of work has to do
``threads``           a function on a thread of its own
``event_loop``        a coroutine on one event loop
``listener_calls``    callbacks with all resources of a round
``stop_events``       what the work sees of its end
====================  ============================================================================
"""
