"""The leader's round, from subscriptions to assignments, and the assignors that members support.

Kafka's coordinator chooses one assignor and sends its leader the subscriptions of all members
(``onLeaderElected``, ``performAssignment``); the leader answers with one assignment a member.

=======================  ==========================================================================
``assignor_protocol``    the protocol of an assignor, eager or cooperative; the leader's round
``designs``              the assignors: eager, cooperative, Designs I, II and III; a round of any
``leader_round``         subscriptions larger than an honest one, trimmed; a round of an eager or
                         cooperative assignor: subscriptions to assignments
``subscriptions``        a round of a design, part 1: what its members report; their identities
``state_reconstruction`` part 2: the leader state, reconstructed from the members' shards
``delayed_rebalance``    part 3: which partitions wait for a departed member, and who gets them
``departed_members``     what departed members left; members that are back or replace one
``imbalance``            what waits, and what may move now: the question, and all policies
``successors``           new members whose presence ends the wait for a departed member
``targets``              part 4: the owner wanted for each resource, also of failed ones
``planner``              part 5: what each member keeps, gains and revokes
``leader``               all parts in order, and which of them decides what: the final plan
``ring``                 the leader state of a round, divided into shards that fit the record
=======================  ==========================================================================
"""
