"""How much of holdfast a reader passes on two ways: a leader's round, and settings to assignors.

A count above a limit says that an idea was spread over more files or functions: merge them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import holdfast
from holdfast.core.machine.actions import ComputeAssignment
from holdfast.core.machine.events import JoinedMember
from holdfast.core.machine.leader.assignor_protocol import MemberView
from holdfast.core.machine.leader.designs import compute
from holdfast.core.machine.supported_protocols import assignors_for

SOURCE = str(Path(holdfast.__file__).parent)


def entered(call: Callable[[], object]) -> set[tuple[str, str]]:
    """Return the functions that a call enters: file and name, without constructors and loops."""
    call()  # what is imported or memoized on first use is no station
    found: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        hidden = code.co_name.startswith("<") or code.co_name in ("__init__", "__post_init__")
        if event == "call" and code.co_filename.startswith(SOURCE) and not hidden:
            found.add((code.co_filename, code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("policy", ["simple", "eager", "deferred", "failback"])
def test_from_settings_to_assignors_are_ten_functions(policy):
    assert len(entered(lambda: assignors_for(policy))) <= 10


@pytest.mark.parametrize("policy", ["simple", "eager"])
def test_from_the_bytes_of_a_join_to_the_plan_are_twenty_files(policy):
    (assignor,) = assignors_for(policy)

    def subscription(*owned: tuple[str, int]) -> bytes:
        view = MemberView(topics=("t",), owned=owned, previous=owned, generation=4)
        return assignor.subscribe(view)

    request = ComputeAssignment(
        token=0,
        generation=5,
        protocol_name=assignor.name,
        members=(
            JoinedMember(member_id="a", metadata=subscription(("t", 0))),
            JoinedMember(member_id="b", metadata=subscription(("t", 1), ("t", 2))),
        ),
        partitions=(("t", 6),),
        member_id="a",
        waited_ms=0,
    )
    found = entered(lambda: compute([assignor], request))
    assert len({file for file, _ in found}) <= 20
