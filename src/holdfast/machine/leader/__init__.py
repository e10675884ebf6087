"""What a group's leader does with subscriptions, and the assignors that members offer.

Kafka's coordinator chooses one assignor and hands its leader the subscriptions of all members
(``onLeaderElected``, ``performAssignment``); the leader answers with one assignment a member.

================  =================================================================================
``embedded``      what an assignor writes in a subscription and reads in an assignment
``designs``       the assignors: eager, cooperative, Designs I, II and III; a round of any
``leader_turn``   a round of an eager or cooperative assignor: subscriptions in, assignments out
``subscriptions`` a round of a design, part 1: the subscriptions of its members
``deferral``      part 2: which partitions wait for a departed member
``targets``       part 3: who shall own what, by kind of resource or by weight
``leader``        all parts in order: what each member keeps, gains and gives up
================  =================================================================================
"""
