"""Texts of Kafka's coordinator that our table has not: reasons, and texts without a cause."""

from __future__ import annotations

from typing import Final

REASONS: Final = (
    ("Adding new member \1 with group instance id \1; client reason: \1", "join"),
    ("explicit `LeaveGroup` request for (\1) members.", "leave"),
    ("removing member \1 on heartbeat expiration.", "session_timeout"),
    ("Removing \1 on pending sync request expiration", "sync_timeout"),
    (
        "Group's selectedProtocol will change because static member \1 with instance id \1 joined "
        "with change of protocol; client reason: \1",
        "restart",
    ),
    (
        "Updating metadata for static member \1 with instance id \1; client reason: \1",
        "restart",
    ),
    ("Updating metadata for member \1 during \1; client reason: \1", "rejoin"),
    ("Leader \1 re-joining group during \1; client reason: \1", "rejoin"),
    ("Member \1 is joining group during \1; client reason: \1", "rejoin"),
    (
        "Freshly-loaded group \1 (size \1) is over capacity \1. Rebalancing in order to give a "
        "chance for consumers to commit offsets",
        "over_capacity",
    ),
    ("Downgrade group %s from consumer to classic for member leaving.", "protocol_change"),
    ("Downgrade group %s from consumer to classic with stale assignment.", "protocol_change"),
)
"""Reasons of "Preparing to rebalance", with the broker's own placeholders."""

PREPARING: Final = (
    "Preparing to rebalance group {} in state {} with old generation {} (reason: {})."
)

NOTHING: Final = frozenset(
    {
        # a member id is handed out, a member that was none goes, or one is refused
        "Dynamic member with unknown member id joins group {} in {} state. Created a new member id "
        "{} and requesting the member to rejoin with this id.",
        "[GroupId {}] Dynamic member with unknown member id joins the consumer group. Created a "
        "new member id {} and requesting the member to rejoin with this id.",
        "[Group {}] Pending member {} has left group through explicit `LeaveGroup` request; client "
        "reason: {}",
        "Pending member {} in group {} has been removed after session timeout expiration.",
        "[GroupId {}] Static member {} with instance id {} cannot join the group because the "
        "instance id is owned by member {}.",
        "[GroupId {}] Static member {} with instance id {} is fenced by existing member {}.",
        "Request memberId={} for static member with groupInstanceId={} is fenced by existing "
        "memberId={} during operation {}",
        "[GroupId {}][MemberId {}] Member joined with stale topology epoch {}",
        "Static member which joins during Stable stage and doesn't affect the selected protocol "
        "will not trigger a rebalance.",
        # what comes of a round
        "Assignment received from leader {} for group {} for generation {}. The group has {} "
        "members, {} of which are static.",
        "Group leader [memberId: {}, groupInstanceId: {}] failed to join before the rebalance "
        "timeout. Member {} was elected as the new leader.",
        "Group leader [memberId: {}, groupInstanceId: {}] failed to join before the rebalance "
        "timeout and the group couldn't proceed to the next generation because no member joined.",
        "Group {} is dead, skipping rebalance stage.",
        "Received notification of heartbeat expiration for member {} after group {} had already "
        "been unloaded or deleted.",
        # steps between a reason and its epoch
        "[GroupId {}] Computed new metadata hash: {}.",
        "[GroupId {}][MemberId {}] Computed new metadata hash: {}.",
        "[GroupId {}][MemberId {}] Configuring the topology {}",
        "[GroupId {}][MemberId {}] Valid topic configuration found in {}ms, but internal topics "
        "are missing for topology epoch {}: {}",
        "[GroupId {}][MemberId {}] Valid topic configuration found in {}ms, topology epoch {} is "
        "now initialized.",
        "[GroupId {}] Skipping delayed target assignment: group is empty",
        "[GroupId {}] Scanned {} topics to refresh regular expressions {} in {}ms.",
        "[GroupId {}][MemberId {}] Shutdown requested for the streams application.",
        "[GroupId {}] Clearing shutdown requested for the streams application.",
        # conversions: "Preparing to rebalance" or an epoch of its own says why
        "[GroupId {}] Converted the classic group to a consumer group.",
        "[GroupId {}] Converted the consumer group to a classic group.",
        "[GroupId {}] Converted the empty classic group to a consumer group.",
        "[GroupId {}] Converted the empty classic group to a streams group.",
        "[GroupId {}] Converted the empty consumer group to a classic group.",
        "[GroupId {}] Converted the empty streams group to a classic group.",
        "Cannot downgrade consumer group {} to classic group because the online downgrade is "
        "disabled.",
        "Cannot downgrade consumer group {} to classic group because its group size is greater "
        "than classic group max size.",
        "Cannot upgrade classic group {} to consumer group because online upgrade is disabled.",
        "Cannot upgrade classic group {} to consumer group because the group does not use the "
        "consumer embedded protocol.",
        "Cannot upgrade classic group {} to consumer group because the group size exceeds the "
        "consumer group maximum size.",
        "Cannot join the consumer group {} with the classic protocol because the group migration "
        "is disabled.",
        # the coordinator's housekeeping
        "[GroupId={}] Unloaded group metadata for group epoch {}.",
        "[GroupId={}] Unloading group metadata for generation {}.",
        "The following groups were deleted: {}. A total of {} offsets were removed.",
        "Generated {} tombstone records while cleaning up group metadata in {} milliseconds.",
        "Generated {} records in {} milliseconds while cleaning share group state for topics {}.",
        "Existing deleting entries found in share group {} - {}",
        "[GroupId {}] Creating a simple consumer group via manual offset commit.",
        "Skipped the materialization of transactional offset commit {} for producer id {} in group "
        "{} with topic {}, partition {} since its record offset {} is smaller than the record "
        "offset {} of the last committed offset.",
    }
)
"""Texts at INFO about groups that state no cause."""
