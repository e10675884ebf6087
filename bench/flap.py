"""A flapping autoscaler on a real broker, policy by policy, as JSON lines.

``python bench/flap.py [--flaps 2] [--restore 0.5] POLICY...``. Two members share 24 partitions, and
a producer writes all the time. When both have been there for 70 s, three more members begin, and
end after 34 s; the next three begin 33 s later, ``--flaps`` times. The three are new processes each
time, as the pods of a Deployment are, and end by SIGTERM.

The figures and the settings of members are those of ``bench/bounce.py``; *no progress* is
counted from the first flap to 33 s after the last one. ``damped`` has its default window of 60 s,
``deferred`` a delay of 20 s.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import time
from pathlib import Path

from bounce import Bounce, play_all

POLICIES = ("simple", "failback", "deferred", "incremental", "damped")
STAYED_SECONDS, UP_SECONDS, DOWN_SECONDS = 70.0, 34.0, 33.0
N_MORE = 3


class Flap(Bounce):
    """One policy's run."""

    def play(self, members: list[subprocess.Popen[bytes]]) -> None:
        """Let more members come and go."""
        time.sleep(STAYED_SECONDS)
        self.began = time.time()
        for flap in range(self.options.flaps):
            slots = range(len(members) + flap * N_MORE, len(members) + (flap + 1) * N_MORE)
            more = [self.start(slot) for slot in slots]
            time.sleep(UP_SECONDS)
            gone = time.time()
            for member in more:
                member.send_signal(signal.SIGTERM)
            for member in more:
                member.wait(60)
            self.away += [(slot, gone, gone) for slot in slots]
            time.sleep(DOWN_SECONDS)
        self.ended = time.time()

    def result(self) -> dict[str, object]:
        """The figures of a bounce, and how many flaps they are of."""
        return {"flaps": self.options.flaps, **super().result()}


def main() -> None:
    """Start a broker, run the policies one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=24)
    parser.add_argument("--flaps", type=int, default=2)
    parser.add_argument("--restore", type=float, default=0.0)
    parser.add_argument("--folder", type=Path, help="keep the event logs there")
    parser.add_argument("kinds", nargs="+", choices=POLICIES, metavar="POLICY")
    parser.set_defaults(slow=0.0, crash=False, static=False)
    play_all(Flap, parser.parse_args())


if __name__ == "__main__":
    main()
