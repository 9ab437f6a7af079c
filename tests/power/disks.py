"""Disks that lose power, for tests: ext4 on loop devices, given to an ordinary user, in namespaces that end with their maker.

Two kinds. `Disk` is a plain image: at a cut, EXT4_IOC_SHUTDOWN without a flush of the log has the file system forget what it has not written.
What it had written, in its order, stays. `Logged` lies on recorder.py: at a cut, what was written and not flushed stays in part, in any order. Root
makes them; the tested program runs by `as_user`, without a capability and without a way to get one. Where there is no root, `Place` is a
directory: it can be killed on, and not cut.

`fenced()` comes before all of it. What stopped other ways of logging writes where this was made: a kernel without device mapper (log-writes,
flakey), without nbd and without ublk; FUSE it had.
"""

import fcntl
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
USER = GROUP = 65534  # nobody
EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
KEEP_UNLOGGED = 2  # EXT4_GOING_FLAGS_NOLOGFLUSH: nothing is written any more, not even the log
LOG_FIRST = 1
MIB = 1 << 20
MARK = "TEST_MACHINE"  # in the environment of what belongs to a machine of a test
FENCED = "TEST_FENCED"
NAMESPACES = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


class Broken(Exception):
    """The bed itself failed: nothing can be said about what was tested."""


def missing():
    """Says why this machine cannot have such disks, or nothing."""
    if os.getuid():
        return "only root can make disks"
    for program in ("mount", "umount", "losetup", "mke2fs", "e2fsck", "setpriv"):
        if not shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
            return f"{program} is missing"
    for device in ("/dev/loop-control", "/dev/fuse"):
        if not os.path.exists(device):
            return f"{device} is missing"
    tried = subprocess.run(["unshare", *NAMESPACES, "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True, text=True)
    if tried.returncode:
        return f"no namespaces here ({tried.stderr.strip()})"
    return None


def fenced(*more):
    """Runs this program again in namespaces of its own (mounts, processes), so that nothing stays behind, and no process of others is seen."""
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    if os.environ.pop(FENCED, None):
        return
    os.execvpe("unshare", ["unshare", *NAMESPACES, *more, "--", sys.executable, *sys.argv],
               {**os.environ, FENCED: "1"})


def as_user(*command):
    return ["setpriv", f"--reuid={USER}", f"--regid={GROUP}", "--clear-groups", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all",
            "--no-new-privs", "--", *map(str, command)]


def run(*command):
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Broken(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Place:
    """A directory in the place of a disk: nothing on it is ever cut."""

    can_cut = False

    def __init__(self, base, name, size_bytes=0):
        self.name, self.root = name, pathlib.Path(base) / name
        self.root.mkdir(parents=True)

    def gone(self):
        shutil.rmtree(self.root, ignore_errors=True)


class Disk:
    """An ext4 of its own, mounted at `root` and belonging to the user."""

    can_cut = True

    def __init__(self, base, name, size_bytes=64 * MIB):
        self.name, self.size_bytes = name, size_bytes
        self.root, self.image = pathlib.Path(base) / name, pathlib.Path(base) / f"{name}.disk"
        self.root.mkdir(parents=True)
        self.fsck = []  # what it said after each cut: nothing, if the file system was whole
        self.made()
        # Blocks of 4 KiB: what recorder.py tears apart is no smaller.
        run("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", "-J", "size=4", self.image)
        self.mount()
        shutil.rmtree(self.root / "lost+found")
        os.chown(self.root, USER, GROUP)

    def made(self):
        with open(self.image, "wb") as image:
            image.truncate(self.size_bytes)

    def mount(self):
        for last in (False, False, False, False, True):
            try:
                run("mount", "-t", "ext4", "-o", "loop,nodev,nosuid,errors=remount-ro", self.image, self.root)
                break
            except Broken:
                # Another run may have taken the loop device that was free a moment ago.
                if last:
                    raise
                time.sleep(0.1)
        self.device = os.stat(self.root).st_dev

    def unmount(self):
        until = time.monotonic() + 20
        while True:
            try:
                run("umount", self.root)
                break
            except Broken as why:
                if time.monotonic() > until:
                    raise Broken(f"{why}; on it are {self.users()}") from None
                time.sleep(0.02)
        # The loop device goes with its last user, which may be a little later.
        while self.has_loop():
            if time.monotonic() > until:
                raise Broken(f"{self.image} still has a loop device")
            time.sleep(0.02)

    def has_loop(self):
        """Tells whether it has a loop device, or may have one: losetup fails when one goes while it looks."""
        done = subprocess.run(["losetup", "--noheadings", "--list", "--output", "BACK-FILE"], capture_output=True, text=True)
        return done.returncode != 0 or str(self.image) in done.stdout

    def users(self):
        """Returns the processes that have something of it."""
        return [pid for pid in pids() if has(pid, self.device)]

    def fill(self, left_bytes):
        """Takes up what is free but for that; returns what to remove to have it free again."""
        ballast = self.root / f"ballast-{time.monotonic_ns()}"
        space = os.statvfs(self.root)
        size = max(space.f_bavail * space.f_frsize - left_bytes, 0)
        with open(ballast, "wb") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, max(size, 1))
            except OSError:
                pass
        return ballast

    def cut(self, seed=0, also=()):
        """Cuts the power of the disk and its programs (and `also`) at one moment, and then restores the disk."""
        self.off(seed, also)
        self.on()

    def off(self, seed=0, also=()):
        stopped = stop([*self.users(), *also])
        self.lose_power(seed)
        end(stopped)
        end(self.users())
        self.unmount()

    def on(self):
        self.restored()
        # The log is replayed by the mount; after that it has to be a whole file system.
        self.mount()
        self.unmount()
        for _ in range(3):
            said = subprocess.run(["e2fsck", "-f", "-n", str(self.image)], capture_output=True, text=True)
            # Without a message about the file system, the check did not start: another process had the image.
            if not said.returncode or said.stdout.strip():
                break
            time.sleep(0.1)
        if said.returncode:
            self.fsck.append(f"{said.returncode}: {said.stdout[-2000:]} {said.stderr[-500:]}")
        self.mount()

    def lose_power(self, seed):
        self.shut(KEEP_UNLOGGED)

    def shut(self, how):
        place = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(place, EXT4_IOC_SHUTDOWN, struct.pack("I", how))
        finally:
            os.close(place)

    def restored(self):
        pass

    def gone(self):
        end(self.users())
        self.unmount()
        self.image.unlink()


class Logged(Disk):
    """The same on an image that notes writes and flushes: a cut keeps of what was not flushed what the seed says."""

    def made(self):
        self.image.touch()
        self.recorder = subprocess.Popen([sys.executable, str(HERE / "recorder.py"), str(self.image), str(self.size_bytes)],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if "serves" not in self.recorder.stdout.readline():
            raise Broken("recorder.py does not serve")
        self.last_cut = {}

    def tell(self, *words):
        self.recorder.stdin.write(" ".join(map(str, words)) + "\n")
        self.recorder.stdin.flush()
        line = self.recorder.stdout.readline()
        if not line:
            raise Broken("recorder.py has ended")
        return json.loads(line)

    def lose_power(self, seed):
        self.last_cut = self.tell("cut", seed)
        self.shut(KEEP_UNLOGGED)  # so that nobody tries again to write what the image refuses

    def restored(self):
        self.tell("heal")

    def gone(self):
        end(self.users())
        self.unmount()
        run("umount", self.image)
        self.recorder.stdin.close()
        self.recorder.wait(10)
        self.image.unlink()


# --- processes -----------------------------------------------------------------------------------

def pids():
    own = os.getpid()
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != own]


def has(pid, device):
    """Tells whether a process has a file, a directory or a mapping of that device."""
    proc = f"/proc/{pid}"
    try:
        for link in (f"{proc}/cwd", f"{proc}/root", f"{proc}/exe", *(f"{proc}/fd/{fd}" for fd in os.listdir(f"{proc}/fd"))):
            try:
                if os.stat(link).st_dev == device:
                    return True
            except OSError:
                pass
        number = f" {os.major(device):02x}:{os.minor(device):02x} "
        with open(f"{proc}/maps") as maps:
            return any(number in line for line in maps)
    except OSError:
        return False


def marked(machine, kind=""):
    """Returns the processes of that machine, by their environment; `kind` is a word of their command line."""
    found, wanted = [], f"{MARK}={machine}".encode()
    for pid in pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ, open(f"/proc/{pid}/cmdline", "rb") as command:
                if wanted in environ.read().split(b"\0") and (not kind or kind.encode() in command.read().split(b"\0")):
                    found.append(pid)
        except OSError:
            pass
    return found


def told(pid, name):
    """Returns what a process was told by that variable, or nothing."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return next((word.partition(b"=")[2].decode() for word in environ.read().split(b"\0") if word.startswith(f"{name}=".encode())), None)
    except OSError:
        return None


def stop(some):
    """Stops them all before anything else happens, so that none tells anybody what befell another."""
    for pid in some:
        send(pid, signal.SIGSTOP)
    return some


def end(some, within_s=10):
    for pid in some:
        send(pid, signal.SIGKILL)
    until = time.monotonic() + within_s
    for pid in some:
        while alive(pid):
            if time.monotonic() > until:
                raise Broken(f"{pid} does not die: {state(pid)}")
            time.sleep(0.002)


def end_after(process, seconds):
    """Kills a process that has not ended by then."""
    late = threading.Timer(seconds, process.kill)
    late.daemon = True
    late.start()


def send(pid, what):
    try:
        os.kill(pid, what)
    except ProcessLookupError:
        pass


def alive(pid):
    """A zombie is dead: it has no file any more."""
    return state(pid) not in ("", "Z", "X")


def state(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""
