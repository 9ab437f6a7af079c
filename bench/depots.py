"""What benches of the depot share: a client with a depot behind a link, a destination, and rclone as a peer."""

import atexit
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import doors
import lib
import link

DOOR = 13560


def have_put(asked):
    """Tells whether our binary has a depot."""
    try:
        return b"put" in subprocess.run([asked.godwit, "put", "--help"], capture_output=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False


class Client:
    """A home with a depot on the disk, on the near side of a link; and a node with a door on the far side, which it has joined."""

    def __init__(self, asked, wire, base, export):
        self.asked, self.wire, self.base, self.export = asked, wire, base, export
        export.mkdir(parents=True, exist_ok=True)
        self.home, self.far_home = base / "home", base / "far-home"
        # What a user reads and writes, and what the depot keeps, lies on one disk, as where nobody thinks about it.
        self.mark = f"BENCH_CLIENT={os.getpid()}.{base.name}"
        for home in (self.home, self.far_home):
            home.mkdir(mode=0o700)
        at = f"{link.FAR}:{DOOR}"
        self.say("b", self.far_home, "init", "lab", "--export", export, "--https", at, "--address", at)
        self.served = None
        self.serve()
        self.say("a", self.home, "join", self.say("b", self.far_home, "-q", "peers", "invite").strip(), "--name", "laptop")
        atexit.register(self.gone)

    def environment(self, home):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "GODWIT_"))}
        name, _, value = self.mark.partition("=")
        return {**kept, "HOME": str(home), "GODWIT_PEERS_ACCOUNT": "root", "GODWIT_SOCKET": str(home / "socket"), "GODWIT_BIN": self.asked.godwit, name: value}

    def say(self, side, home, *words):
        done = subprocess.run(self.wire.at(side, self.asked.godwit, *words), env=self.environment(home), capture_output=True, text=True, timeout=120)
        if done.returncode:
            sys.exit(f"{words}: {done.stderr}")
        return done.stdout

    def serve(self):
        """Starts the destination, where it was."""
        process = subprocess.Popen(self.wire.at("b", self.asked.godwit, "node", "--ftp", f"{link.FAR}:2811", "--https", f"{link.FAR}:{DOOR}", "--anonymous",
                                                "write", "--json"),
                                   env=self.environment(self.far_home), start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True)
        if not process.stdout.readline():
            sys.exit(f"the destination ended with {process.wait()} before it served")
        self.served = lib.Server(process, DOOR)

    def kill(self):
        os.killpg(self.served.pid, signal.SIGKILL)
        self.served.process.wait()

    def command(self, *words):
        # `ip netns exec` mounts things as well, which takes longer than a small put.
        return ["nsenter", f"--net=/run/netns/{self.wire.name}-a", self.asked.godwit, *map(str, words)]

    def say_near(self, program, environment, *words):
        """Runs another program of ours on the near side; returns what it tells as JSON."""
        command = ["nsenter", f"--net=/run/netns/{self.wire.name}-a", program, *words]
        done = subprocess.run(list(map(str, command)), env=self.environment(self.home) | environment, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise RuntimeError(f"{words}: {done.stderr[-600:]}")
        return told(done.stdout)

    def run(self, *words, limit_s=600):
        return lib.run(self.command(*words), limit_s=limit_s, environment=self.environment(self.home))

    def url(self, name):
        return f"godwit://lab/{name}"

    def ftp(self, name):
        return f"ftp://{link.FAR}:2811/{name}"

    def processes(self):
        """The node that was started on demand, and whatever else carries the mark on this side."""
        found, home = [], f"HOME={self.home}".encode()
        for entry in os.listdir("/proc"):
            try:
                words = open(f"/proc/{entry}/environ", "rb").read().split(b"\0") if entry.isdigit() else []
            except OSError:
                continue
            if self.mark.encode() in words and home in words:
                found.append(int(entry))
        return found

    def cpu_s(self):
        """CPU of the node that was started on demand, children included."""
        total = 0
        for pid in self.processes():
            try:
                total += sum(map(int, open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[11:15]))
            except OSError:
                pass
        return total / lib.TICKS

    def forget(self):
        """Ends the client's node and takes its depot away, so that nothing is known here."""
        self.end()
        for place in (".cache/godwit", ".local/state/godwit/depot", ".local/share/godwit/depot"):
            shutil.rmtree(self.home / place, ignore_errors=True)
        for place in self.home.glob("socket*"):
            if place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink()

    def end(self):
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        while self.processes():
            time.sleep(0.01)

    def gone(self):
        self.end()


class Rclone:
    """rclone mount over the link, with a cache on the same disk; its server is rclone as well."""

    def __init__(self, wire, base, export, write_back, mode="writes", port=8080):
        self.wire, self.base, self.export, self.point = wire, base, export, base / f"mount-{write_back}"
        export.mkdir(parents=True, exist_ok=True)
        self.point.mkdir(parents=True)
        self.cache = base / f"rclone-cache-{write_back}"
        path = f"{doors.CACHE / 'bin'}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "RCLONE_CONFIG": "/dev/null"}
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": open(base / "rclone.log", "ab"), "start_new_session": True}
        far = subprocess.Popen(wire.at("b", "rclone", "serve", "webdav", export, "--addr", f"{link.FAR}:{port}"), env=environment, **quiet)
        self.server = lib.Server(far, port)
        while not subprocess.run(wire.at("b", "ss", "-Hltn", f"sport = :{port}"), capture_output=True).stdout:
            time.sleep(0.05)
        # In the namespace of the link, but not in a mount namespace of its own: others have to see the mount.
        inside = ["nsenter", f"--net=/run/netns/{wire.name}-a"]
        near = subprocess.Popen([*inside, "rclone", "mount", f":webdav,url='http://{link.FAR}:{port}':", self.point, "--vfs-cache-mode", mode, "--vfs-write-back",
                                 write_back, "--cache-dir", self.cache, "--dir-cache-time", "1h", "--poll-interval", "0"], env=environment, **quiet)
        self.client = lib.Server(near, 0)
        until = time.monotonic() + 10
        while not os.path.ismount(self.point):
            if near.poll() is not None or time.monotonic() > until:
                sys.exit(f"rclone does not mount: {(base / 'rclone.log').read_text()[-500:]} (bench/install gets what it needs)")
            time.sleep(0.05)
        atexit.register(self.stop)

    def stop(self):
        subprocess.run(["umount", "-l", self.point], stderr=subprocess.DEVNULL)
        self.client.stop()
        self.server.stop()


def have_rclone():
    return shutil.which("rclone") and (doors.CACHE / "bin/fusermount3").exists()


def program(asked, base):
    """Builds depot.c against libgodwit beside our binary, or without it if that is asked; returns the program and what it needs to find the library."""
    built, beside = base / "depot", pathlib.Path(asked.godwit).resolve().parent
    include = lib.ROOT / "crates" / "capi" / "include"
    if getattr(asked, "pretend", False):
        words = ["-DPRETEND"]
    elif (include / "godwit.h").exists() and (beside / "libgodwit.so").exists():
        # Where it is installed, its soname is a link to it.
        place = base / "lib"
        place.mkdir(exist_ok=True)
        for name in ("libgodwit.so", "libgodwit.so.0"):
            (place / name).symlink_to(beside / "libgodwit.so")
        words = [f"-I{include}", f"-L{place}", "-lgodwit"]
    else:
        sys.exit(f"there is no godwit.h in {include} or no libgodwit.so in {beside} (cargo build --release -p godwit-capi)")
    subprocess.run(["cc", "-O2", "-Wall", "-o", built, lib.HERE / "depot.c", *words], check=True)
    return built, {"LD_LIBRARY_PATH": str(base / "lib")}


def plain(base):
    """Builds depot.c without the library: what the same program takes of plain files."""
    built = base / "depot-plain"
    subprocess.run(["cc", "-O2", "-Wall", "-DPRETEND", "-o", built, lib.HERE / "depot.c"], check=True)
    return built


def write_local(source, target, sync):
    """What the disk of this machine takes, to the program that writes: copy, and perhaps fsync."""
    began = time.monotonic()
    with open(source, "rb") as read, open(target, "wb") as write:
        while piece := read.read(1 << 20):
            write.write(piece)
        if sync:
            write.flush()
            os.fsync(write.fileno())
    return time.monotonic() - began


def wait_whole(path, size_bytes, limit_s=600):
    """Waits until somebody else's file is as long as it will be."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        try:
            if path.stat().st_size == size_bytes:
                return
        except OSError:
            pass
        time.sleep(0.005)
    raise RuntimeError(f"{path} is not there after {limit_s} s")


def told(text):
    """The last object of what is told as JSON lines."""
    return json.loads(text.strip().splitlines()[-1])


