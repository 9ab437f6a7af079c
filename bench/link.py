"""A link with a rate and no more: two namespaces, a pair of interfaces, and a token bucket each way.

So the figures of GASS and Kangaroo were measured before (rate only, no delay), as far as there were some of this kind of machine. Who wants delay and
losses takes `far`.
"""

import atexit
import os
import subprocess
import sys

import lib  # noqa: its handler of SIGTERM runs what atexit was told

NEAR, FAR = "10.78.0.1", "10.78.0.2"


class Link:
    """Namespaces a (the client's) and b (the destination's)."""

    count = 0

    def __init__(self, mbit):
        if os.getuid():
            sys.exit("needs root for namespaces; skipped")
        Link.count += 1
        self.name, self.mbit = f"gl{os.getpid() % 10000}x{Link.count}", mbit
        atexit.register(self.down)
        for side in "ab":
            self.ip("netns", "add", f"{self.name}-{side}")
        self.ip("link", "add", "link0", "netns", f"{self.name}-a", "type", "veth", "peer", "name", "link0", "netns", f"{self.name}-b")
        for side, address in (("a", NEAR), ("b", FAR)):
            inside = ("-n", f"{self.name}-{side}")
            self.ip(*inside, "address", "add", f"{address}/24", "dev", "link0")
            for device in ("lo", "link0"):
                self.ip(*inside, "link", "set", device, "up")
        self.rate(mbit)

    def rate(self, mbit):
        """The bucket holds what a scheduler of 250 Hz needs, and at least one large segment."""
        burst = max(int(mbit * 125_000 / 250) * 2, 128 << 10)
        for side in "ab":
            subprocess.run(self.at(side, "tc", "qdisc", "replace", "dev", "link0", "root", "tbf", "rate", f"{mbit}mbit", "burst", burst, "latency", "50ms"),
                           check=True)

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True)

    def at(self, side, *command):
        return ["ip", "netns", "exec", f"{self.name}-{side}", *map(str, command)]

    def passed_bytes(self):
        """What has left the client's side and come to it."""
        for line in subprocess.run(self.at("a", "cat", "/proc/net/dev"), capture_output=True, text=True).stdout.splitlines():
            if line.strip().startswith("link0:"):
                fields = line.split(":")[1].split()
                return int(fields[8]), int(fields[0])
        return 0, 0

    def down(self):
        for side in "ab":
            for pid in subprocess.run(["ip", "netns", "pids", f"{self.name}-{side}"], capture_output=True, text=True).stdout.split():
                try:
                    os.kill(int(pid), 9)
                except ProcessLookupError:
                    pass
            subprocess.run(["ip", "netns", "del", f"{self.name}-{side}"], stderr=subprocess.DEVNULL)


