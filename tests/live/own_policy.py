"""The policy of docs/assignors.md, for members of a live group."""

import holdfast


def spares_last(members, topics, claims):
    """Members named spare-... own nothing as long as another member can."""
    plan = {}
    for topic, partitions in topics.items():
        able = {i: m.instance_id or "" for i, m in members.items() if topic in m.topics}
        first = [i for i, name in able.items() if not name.startswith("spare-")]
        held = dict.fromkeys(first or able, 0)
        most = -(-len(partitions) // len(held))
        left = []
        for partition in partitions:
            owner = claims.get((topic, partition))
            if owner in held and held[owner] < most:
                plan[topic, partition] = owner
                held[owner] += 1
            else:
                left.append(partition)
        for partition in left:
            owner = min(held, key=held.__getitem__)
            plan[topic, partition] = owner
            held[owner] += 1
    return plan


eager = holdfast.assignor("spares-last", spares_last, laws=["sticky"])
cooperative = holdfast.assignor(
    "spares-last-cooperative", spares_last, laws=["sticky"], cooperative=True
)
