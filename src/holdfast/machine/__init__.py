"""Members, leaders and a coordinator as state machines: events in, actions out, no clock.

=====================================  =========================================================
``states``                             the transition tables
``events``, ``actions``, ``codes``     what a member is told, what it asks for, Kafka's errors
``member``, ``member_answers``         a member: how it takes events, and answers
``member_record``                      what it knows of itself, and the requests it writes
``holdings``, ``listeners``            what it owns, and the order of giving it up
``options``, ``policy``                settings of a member, and of its group
``designs``, ``embedded``              assignors as members speak them; Designs I, II and III
``leader_turn``                        one leader turn, bytes to bytes, without a machine
``leader``, ``claimants``              a leader's round: claims in, shares out
``deferral``, ``targets``              what waits for whom; who shall own what
``upgrade``                            changes of assignor as checked steps
``coordinator``                        Kafka's classic group coordinator
``group_table``, ``group_messages``    its group, its messages
``group_log``                          its records, and their replay
=====================================  =========================================================
"""
