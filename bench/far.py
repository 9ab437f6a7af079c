"""A wide area for benches: two namespaces of tests/peers/wan, and a look at what passes between them."""

import atexit
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

import lib

HOST = "10.77.0.2"
WAN = lib.PEERS / "wan"
ETC = pathlib.Path("/etc/netns")
# Prints the time and the bytes that came to and left the interface, until it is told to stop.
SAMPLER = """
import sys, time
every = float(sys.argv[1])
due = time.monotonic()
while True:
    for line in open("/proc/net/dev"):
        name, _, rest = line.partition(":")
        if name.strip() == "wan0":
            fields = rest.split()
            print(time.monotonic(), fields[0], fields[8], flush=True)
    due += every
    time.sleep(max(0, due - time.monotonic()))
"""


class Wan:
    """Namespaces a (the client's) and b (the server's)."""

    def __init__(self, *options):
        if os.getuid():
            sys.exit("needs root for namespaces and TUN; skipped")
        os.environ["WAN_RUN"] = str(lib.scratch("tmpfs"))
        self.name = f"gb{os.getpid() % 10000}"
        self.down()
        subprocess.run([WAN / "wan-up", self.name, *options], check=True, stdout=subprocess.DEVNULL)
        atexit.register(self.down)
        # Globus wants a name for each address; `ip netns exec` puts these files over those in /etc.
        for side, own in (("a", "10.77.0.1"), ("b", HOST)):
            etc = ETC / f"{self.name}-{side}"
            etc.mkdir(parents=True, exist_ok=True)
            (etc / "hosts").write_text(f"127.0.0.1 localhost\n{own} {socket.gethostname()}\n10.77.0.1 near\n{HOST} far\n")

    def at(self, side, *command):
        return ["ip", "netns", "exec", f"{self.name}-{side}", *map(str, command)]

    def tell(self, command):
        subprocess.run([WAN / "wan-ctl", self.name, command], check=True, stdout=subprocess.DEVNULL)

    def down(self):
        subprocess.run([WAN / "wan-down", self.name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for side in "ab":
            shutil.rmtree(ETC / f"{self.name}-{side}", ignore_errors=True)


class Rates:
    """What comes to the client's side, and leaves it, while a `with` block runs."""

    def __init__(self, wan, every_s=0.1):
        self.wan, self.every_s, self.points = wan, every_s, []

    def __enter__(self):
        command = self.wan.at("a", sys.executable, "-c", SAMPLER, self.every_s)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()
        self.began = time.monotonic()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        lines = self.process.stdout.read().splitlines()
        self.process.wait()
        rows = [[float(field) for field in line.split()] for line in lines if len(line.split()) == 3]
        for before, after in zip(rows, rows[1:]):
            moved = max(after[1] - before[1], after[2] - before[2])
            self.points.append((after[0] - self.began, moved * 8e-6 / (after[0] - before[0])))
