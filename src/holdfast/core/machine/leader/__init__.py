"""The leader's round, from subscriptions to assignments, and the assignors that members offer.

Kafka's coordinator chooses one assignor and hands its leader the subscriptions of all members
(``onLeaderElected``, ``performAssignment``); the leader answers with one assignment a member.

================  =================================================================================
``embedded``      the protocol by which a member machine uses an assignor
``designs``       the assignors: eager, cooperative, Designs I, II and III; a round of any
``leader_turn``   a round of an eager or cooperative assignor: subscriptions in, assignments out
``subscriptions`` a round of a design, part 1: the subscriptions of its members
``places``        where members live, so that a process is known when it is back
``oversized``     subscriptions larger than an honest one, as their leader takes them
``recall``        part 2: the memory, put together from the shares that members bring
``delayed``      part 3: which partitions may wait for a departed member, and who gets them
``imbalance``     the question of a rebalance policy: what waits on, and what may move now
``resolvers``     its answers: Designs I, II and III, damped, and a function of the user
``successors``    newcomers whose presence ends the wait for a departed member
``failed``        what has failed at a member, and is tried at others
``targets``       part 4: the owner wanted for each resource, by kind or by weight
``leader``        all parts in order, and which of them decides what: the plan, final
``ring``          the memory of a round, divided into shares
``record_limit``  what of it fits into the group's record
``counts``        the partition counts that a static leader planned with
``new_resources`` resources of workers that the leader does not have yet
================  =================================================================================
"""
