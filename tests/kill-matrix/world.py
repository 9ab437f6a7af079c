"""Machines of a run of `depot`: a client, perhaps a hop, a destination, each with a disk; and what befalls them."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "power"))
import disks

DOOR, FTP, HOP_DOOR = 13560, 2811, 13561


class Machine:
    """A disk, a home on it, and the processes that carry its mark."""

    def __init__(self, run, name, disk):
        self.run, self.name, self.disk = run, name, disk
        self.mark = f"{run.id}.{name}"
        self.lock = threading.RLock()  # held while the machine is struck, and while something is started on it
        self.is_on = threading.Event()
        self.is_on.set()
        self.crash = None  # GODWIT_CRASH of what is started from now on
        self.deaths = run.base / f"deaths-{name}"  # the named points where a process died; on a disk that keeps its power
        self.deaths.touch()
        self.deaths.chmod(0o666)
        self.node, self.words, self.node_crash = None, None, None
        self.cuts = 0
        self.lost_logs = []  # their names and what was in them before each cut
        self.furnish()

    def furnish(self):
        for place in ("h", "s", "x"):
            path = self.disk.root / place
            path.mkdir(mode=0o700, exist_ok=True)
            if self.run.is_root:
                os.chown(path, disks.USER, disks.GROUP)
        self.home, self.export = self.disk.root / "h", self.disk.root / "x"

    def environment(self):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "GODWIT_"))}
        kept |= {"HOME": str(self.home), "GODWIT_SOCKET": str(self.disk.root / "s" / "n"), "GODWIT_BIN": self.run.godwit[-1], disks.MARK: self.mark}
        kept |= self.run.more_environment
        if "GODWIT_LOG" in os.environ:
            kept["GODWIT_LOG"] = os.environ["GODWIT_LOG"]
        if not self.run.is_root and os.getuid() == 0:
            kept["GODWIT_PEERS_ACCOUNT"] = "root"  # asked to be as without root, but it is
        if self.run.is_root:
            # A machine that lost its power has begun anew, though this kernel has not.
            kept["TEST_BOOT_ID"] = f"{self.cuts + 1:032x}"
        return kept | ({"GODWIT_CRASH": self.crash, "TEST_CRASH_NOTE": str(self.deaths)} if self.crash else {})

    def command(self, *words, program=None):
        words = [*(program or self.run.godwit), *map(str, words)]
        return disks.as_user(*words) if self.run.is_root else words

    def start(self, *words, program=None, **more):
        """Starts godwit on it, or another program, when it is on."""
        while True:
            self.is_on.wait()
            with self.lock:
                if self.is_on.is_set():
                    return subprocess.Popen(self.command(*words, program=program), env=self.environment(), cwd="/", start_new_session=True, **more)

    def says(self, *words, limit_s=30):
        process = self.start(*words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            disks.end([process.pid])
            process.communicate()
            return None, "", f"{words} took longer than {limit_s} s"
        return process.returncode, out, err

    def well(self, *words):
        status, out, err = self.says(*words)
        if status:
            raise disks.Broken(f"{self.name}: {words}: {status} {err.strip()[-600:]}")
        return out

    def serve(self, *words):
        """Starts its node, and waits until it says where it is."""
        self.words = words or self.words
        # The port of one that was just killed may be in use for a moment.
        for last in (False, False, False, False, True):
            with self.lock:
                if self.served() or self.crash:
                    return
            if last:
                raise disks.Broken(f"the node of {self.name} did not say where it serves (status {self.node.poll()}); see {self.name}.err")
            time.sleep(0.3)
            self.run.say(f"the node of {self.name} is started again (status {self.node.poll()})")

    def is_up(self):
        """Tells whether its node runs. One that was killed has its port until the last of its threads is gone."""
        if self.node and not disks.alive(self.node.pid):
            self.node.wait(20)
        return self.node is not None and self.node.poll() is None

    def kept_up(self):
        """Starts its node again if that has ended; returns its status then."""
        if not self.words or self.is_up():
            return None
        status = self.node.returncode
        self.run.say(f"the node of {self.name} has ended by itself (status {status})")
        self.serve()
        return status

    def disarmed(self, kind=""):
        """Ends all named points: a process that has one is killed, and its node replaced."""
        with self.lock:
            self.crash = None
        # A process with a named point may start another before it is killed.
        while armed := [pid for pid in self.its(kind) if disks.told(pid, "GODWIT_CRASH")] or self.dying():
            self.kill(armed)
        if self.words and not self.is_up():
            self.serve()

    def dying(self):
        """Returns its node if that was told to die at a named point: on its way out it has no environment any more, and still seems to run."""
        return [self.node.pid] if self.node_crash and disks.alive(self.node.pid) else []

    def served(self):
        disks.end([*self.its("node"), *self.dying()])
        self.is_up()
        self.node_crash = self.crash
        with open(self.run.logs / f"{self.name}.err", "ab") as log:
            self.node = subprocess.Popen(self.command(*self.words), env=self.environment(), cwd="/", stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        # A node that was told to die may do so before it speaks.
        return line_within(self.node, 30).strip()

    def its(self, kind=""):
        """Returns its processes."""
        return disks.marked(self.mark, kind)

    def kill(self, some):
        self.run.say(f"kill -9 at {self.name}: {some}")
        disks.end(some)
        if self.node:
            self.node.poll()

    def settled(self):
        """What was prepared is there to stay: it is not what is tested."""
        subprocess.run(["sync", "-f", self.disk.root], check=True)

    def off(self, seed):
        """The power goes."""
        with self.lock:
            self.is_on.clear()
            self.cuts += 1
            # For a person: of these the disk may lose what was said last.
            self.lost_logs += [(log.name, log.read_bytes()) for log in self.disk.root.glob("**/*.log") if log.is_file() and not log.is_symlink()]
            self.disk.off(seed, self.its())
            disks.end(self.its())

    def on(self):
        with self.lock:
            self.disk.on()
            self.is_on.set()


class Run:
    """One seed: its machines and its log."""

    def __init__(self, seed, base, godwit, is_root, logs, more_environment):
        self.seed, self.base, self.godwit, self.is_root, self.logs = seed, pathlib.Path(base), godwit, is_root, pathlib.Path(logs)
        self.more_environment = more_environment
        self.id = f"{os.getpid()}-{seed}"
        self.began = time.monotonic()
        self.log = open(self.logs / "run.log", "a", buffering=1)
        self.machines = {}

    def say(self, *words):
        print(f"{time.monotonic() - self.began:8.3f}", *words, file=self.log)

    def machine(self, name, chance, size_bytes):
        if self.is_root:
            kind = chance.choice([disks.Disk, disks.Logged])
            disk = kind(self.base, name[0], size_bytes)
            self.say(f"{name}: {kind.__name__} of {size_bytes >> 20} MiB")
        else:
            disk = disks.Place(self.base, name[0])
        self.machines[name] = Machine(self, name, disk)
        return self.machines[name]

    def gone(self):
        for machine in self.machines.values():
            disks.end(machine.its())
            machine.disk.gone()


class Door:
    """A destination: a node that the client has joined."""

    kind = "door"

    def __init__(self, machine, clients, name="lab", port=None, more=()):
        self.machine, self.name = machine, name
        at = f"127.0.0.1:{port or DOOR}"
        machine.well("init", name, "--export", machine.export, "--https", at, "--address", at)
        machine.serve("node", "--ftp", "none", "--https", at, "--json", *more)
        for client in clients:
            client.well("join", machine.well("-q", "peers", "invite").strip(), "--name", client.name)

    def url(self, name):
        return f"godwit://{self.name}/{name}"


class Ftp:
    """A destination that speaks FTP and lets anybody write."""

    kind = "ftp"

    def __init__(self, machine, clients):
        self.machine = machine
        machine.serve("node", "--export", machine.export, "--ftp", f"127.0.0.1:{FTP}", "--anonymous", "write",
                      "--state", machine.home / "state", "--json")

    def url(self, name):
        return f"ftp://127.0.0.1:{FTP}/{name}"


def hop(machine, clients, target, keeps):
    """A node whose store is a depot around the next, and keeps what is read, or does not."""
    machine.well("join", target.machine.well("-q", "peers", "invite").strip(), "--name", machine.name)
    caches = ["--cache"] if keeps else []
    return Door(machine, clients, "hop", HOP_DOOR, ["--spool", machine.disk.root / "spool", "--next", target.url(""), *caches])


def line_within(process, limit_s):
    """Reads one line of what a process says; nothing if it ends or takes too long."""
    found = []
    reader = threading.Thread(target=lambda: found.append(process.stdout.readline()), daemon=True)
    reader.start()
    reader.join(limit_s)
    return found[0] if found else ""


# --- what befalls them ---------------------------------------------------------------------------

# Points that only a successor of a dead process reaches, by process and act.
AFTER = {
    ("destination", "append.settled"): ["append.intended", "append.bytes-written", "append.synced"],
    ("hop", "scan-begun"): ["folded-in-part"],
}


class Fate:
    """Draws what happens to one machine, does it, and counts it. Each machine has its own, so that misfortunes meet."""

    def __init__(self, run, chance, seconds, machine, role, points, only=()):
        self.run, self.chance, self.seconds, self.machine, self.role, self.points, self.only = run, chance, seconds, machine, role, points, only
        self.counts = {}
        self.failed = None
        self.thread = threading.Thread(target=self.happens, daemon=True)

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1
        self.run.say("struck:", what)

    def choices(self):
        able = [self.kill, self.kill, self.crash, self.crash, self.freeze]
        if self.role == "client":
            able += [self.kill_program, self.kill_program]
        if self.run.is_root:
            able += [self.cut, self.cut, self.fill]
        return [one for one in able if not self.only or one.__name__ in self.only]

    def happens(self):
        try:
            until = time.monotonic() + self.seconds
            able = self.choices()
            while able and time.monotonic() < until:
                time.sleep(self.chance.choice([0.02, 0.1, 0.3, 0.6]) * self.chance.random() * 2)
                self.chance.choice(able)()
        except Exception as error:  # reported by the thread that joins
            self.failed = error

    @property
    def node_word(self):
        # A fork that becomes the local node has the same command line for a moment.
        return "--local" if self.role == "client" else "node"

    def nodes(self):
        return self.machine.its(self.node_word)

    def again(self):
        """The client's node is started by the next program."""
        if self.machine.words:
            self.machine.serve()

    def kill(self):
        some = self.nodes()
        if some:
            self.machine.kill(some)
            self.count("kill local node" if self.role == "client" else f"kill {self.role}")
        time.sleep(self.chance.choice([0, 0.1, 0.5, 1.0]) if self.role != "client" else 0)
        self.again()

    def kill_program(self):
        some = [pid for word in ("put", "commit", "push", "get", "tee", "deed", "edit") for pid in self.machine.its(word)]
        if some:
            self.machine.kill([self.chance.choice(some)])
            self.count("kill client")

    def freeze(self):
        """Nothing comes back and nothing is refused: what a network does that is gone."""
        some = disks.stop(self.nodes())
        if some:
            self.count("freeze local node" if self.role == "client" else f"freeze {self.role}")
        time.sleep(self.chance.choice([0.1, 0.4, 1.0]))
        for pid in some:
            disks.send(pid, signal.SIGCONT)

    def crash(self):
        """The next node dies at a named point; by itself, or with its machine."""
        point = self.chance.choice(self.points)
        first = AFTER.get((self.role, point))
        if first and not self.dies_at(self.chance.choice(first), 1, with_power=False, is_last=False):
            return
        # A process after that reaches the point for the first time.
        nth = 1 if first else self.chance.choice([1, 1, 1, 2, 3, 7])
        self.dies_at(point, nth, self.run.is_root and self.chance.random() < 0.5)

    def dies_at(self, point, nth, with_power, is_last=True):
        """Returns whether it died. Between two deaths no process lives."""
        machine = self.machine
        machine.kill(self.nodes())
        before = machine.deaths.stat().st_size
        machine.crash = f"{point}:{nth}"
        self.run.say(f"armed at {machine.name}: {machine.crash}{', then a power cut' if with_power else ''}")
        self.again()
        # A process at the point writes so before it dies.
        until, struck = time.monotonic() + self.chance.uniform(0.3, 1.5), False
        while time.monotonic() < until and not struck:
            time.sleep(0.002)
            struck = machine.deaths.stat().st_size > before
        if struck and with_power:
            self.cut(f"crash at {point}, then power cut, {self.role}")
        elif struck:
            self.count(f"crash at {point}, {self.role}")
        if is_last or not struck:
            machine.disarmed(self.node_word)
        return struck

    def cut(self, what=""):
        machine = self.machine
        machine.off(self.chance.randrange(1 << 30))
        self.count(what or f"power cut {self.role}")
        self.run.say(f"power cut at {machine.name}", getattr(machine.disk, "last_cut", ""))
        time.sleep(self.chance.choice([0, 0, 0.3]))
        machine.crash = None
        machine.on()
        self.again()

    def fill(self):
        machine = self.machine
        with machine.lock:
            ballast = machine.disk.fill(self.chance.choice([0, 16 << 10, 1 << 20]))
        self.count(f"full disk {self.role}")
        time.sleep(self.chance.uniform(0.2, 1.5))
        with machine.lock:
            ballast.unlink(missing_ok=True)


def healed(run):
    """Has all run again."""
    for machine in run.machines.values():
        for pid in machine.its():
            disks.send(pid, signal.SIGCONT)
        for ballast in machine.disk.root.glob("ballast-*"):
            ballast.unlink()
        # A program that was told to die at a named point may start the node of its machine only now.
        machine.disarmed()


def owed(text):
    """Returns what `godwit queue --json` lists: an object for each pending file."""
    rows = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if row.get("event") != "summary" and "url" in row:
            rows.append(row)
    return rows
