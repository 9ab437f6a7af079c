"""What the benches share: running a command and counting what it cost, pairs, intervals, servers.

Standard library only. Every bench answers the question in its first line, runs the candidates
interleaved (A B A B ...), prints medians and ratios with an interval, and appends one row a run
to a TSV with date and commit. Loopback or private namespaces only.
"""

import argparse
import atexit
import datetime
import json
import math
import mmap
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
PEERS = ROOT / "tests" / "peers"
GIB = 1 << 30
TICKS = os.sysconf("SC_CLK_TCK")


# --- the command line ---------------------------------------------------------------------------

def options(doc, pairs=9, **more):
    """Parses what all benches take. `more` adds options: name=default."""
    parser = argparse.ArgumentParser(description=doc.strip().splitlines()[0])
    parser.add_argument("--pairs", type=int, default=pairs, help="rounds; each runs every candidate once")
    parser.add_argument("--godwit", default=os.environ.get("GODWIT", str(find_godwit())), help="the release binary")
    parser.add_argument("--out", default=str(ROOT / "bench" / "results"), help="where the TSV goes")
    parser.add_argument("--quick", action="store_true", help="small sizes and three rounds: does it still run?")
    parser.add_argument("--only", default="", help="only questions whose name contains this")
    for name, default in more.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(default, bool):
            parser.add_argument(flag, action="store_true", default=default)
        else:
            parser.add_argument(flag, type=type(default), default=default)
    asked = parser.parse_args()
    if asked.quick:
        asked.pairs = min(asked.pairs, 3)
    return asked


def find_godwit():
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / "godwit"


def have_godwit(asked):
    """Tells whether our binary is there and does more than start."""
    try:
        return subprocess.run([asked.godwit, "cp", "--help"], capture_output=True, timeout=10).stdout != b""
    except (OSError, subprocess.TimeoutExpired):
        return False


# Ended from outside: still stop what was started.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def say(*words):
    print(*words, flush=True)


# --- places -------------------------------------------------------------------------------------

def scratch(kind):
    """A directory on tmpfs or on the disk that this repository's target is on; gone at the end."""
    parent = pathlib.Path("/dev/shm") if kind == "tmpfs" else pathlib.Path(os.environ.get("TMPDIR", "/var/tmp"))
    path = pathlib.Path(tempfile.mkdtemp(prefix="godwit-bench-", dir=parent))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def random_file(path, size_bytes):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        left = size_bytes
        while left:
            left -= file.write(os.urandom(min(left, 1 << 24)))
    return path


def random_tree(path, files, size_bytes, directories):
    each = files // directories
    for d in range(directories):
        for f in range(each):
            random_file(path / f"d{d:02}" / f"f{f:05}", size_bytes)
    return path


# What is left free beside the ballast: for a target, and for the programs.
LEFT_FREE = 5 * GIB
# What have_memory does not touch, so that nothing has to be evicted for it.
KEPT_BACK = 300 << 20
ballast = []


def have_memory():
    """Has this machine own all of its free memory.

    A virtual machine may give what is free back to its host, and the first touch of what it gets again
    costs up to 2.8 s/GiB (0.15 s when it still owns it): more than what is measured, and by chance.
    So most of the memory is held while a bench runs, and what remains free is touched before each run.
    """
    if not ballast:
        ballast.append(touched(free_bytes() - LEFT_FREE, mmap.MADV_HUGEPAGE))
        if os.getuid() == 0:
            # With so little left free, one target would be enough to be written out while it is measured.
            for name, value in [("dirty_bytes", 3 * GIB), ("dirty_background_bytes", 2 * GIB)]:
                set_until_exit(name, value)
    # A file on tmpfs takes single pages.
    touched(free_bytes() - KEPT_BACK, mmap.MADV_NOHUGEPAGE).close()


def touched(size_bytes, advice):
    memory = mmap.mmap(-1, max(size_bytes, 1 << 20) & ~0xFFFFF, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(advice)
    some = b"\1" * (1 << 20)
    for offset in range(0, len(memory), len(some)):
        memory[offset:offset + len(some)] = some
    return memory


def free_bytes():
    with open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemFree"))


def set_until_exit(name, value):
    """Sets a bound of /proc/sys/vm. Writing a share unsets its bytes, and the reverse, so the share is put back."""
    share = pathlib.Path("/proc/sys/vm", name.replace("_bytes", "_ratio"))
    before = share.read_text()
    if before.strip() != "0":
        atexit.register(share.write_text, before)
        pathlib.Path("/proc/sys/vm", name).write_text(str(value))


def gone(path):
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()


def same_file(a, b):
    return subprocess.run(["cmp", "-s", a, b]).returncode == 0


def same_tree(a, b):
    return subprocess.run(["diff", "-rq", a, b], stdout=subprocess.DEVNULL).returncode == 0


# --- servers ------------------------------------------------------------------------------------

class Server:
    """A server and everything it forked: its CPU time, its peak memory, its end."""

    def __init__(self, process, port):
        self.process, self.pid, self.port = process, process.pid, port
        atexit.register(self.stop)

    def cpu_s(self):
        """Seconds of CPU of the whole process session, ended children included."""
        deadline = time.monotonic() + 2
        while True:
            total, alive = 0, 0
            for entry in os.scandir("/proc"):
                if not entry.name.isdigit():
                    continue
                try:
                    fields = open(f"/proc/{entry.name}/stat").read().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                if int(fields[3]) != self.pid:
                    continue
                alive += 1
                total += sum(map(int, fields[11:13]))
                if int(entry.name) == self.pid:
                    total += sum(map(int, fields[13:15]))
            # A server that forks counts a session only when it has ended.
            if alive <= 1 or time.monotonic() > deadline:
                return total / TICKS
            time.sleep(0.01)

    def peak_bytes(self):
        for line in open(f"/proc/{self.pid}/status"):
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
        return 0

    def rss_bytes(self):
        for line in open(f"/proc/{self.pid}/status"):
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024
        return 0

    def stop(self):
        if self.process.poll() is None:
            try:
                os.killpg(self.pid, signal.SIGTERM)
                self.process.wait(3)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def gct(prefix=(), host="127.0.0.1", environment=None):
    """globus-gridftp-server, anonymous, as this user."""
    port = free_port() if not prefix else 2811
    user = ["-anonymous-user", "root", "-anonymous-group", "root", "-allow-root"] if os.getuid() == 0 else []
    process = subprocess.Popen(
        [*prefix, "globus-gridftp-server", "-c", "/dev/null", "-no-detach", "-s", "-aa", "-auth-level", "0", *user,
         "-p", str(port), "-d", "error", "-control-interface", host, "-data-interface", host],
        start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": "/", **(environment or {})})
    server = Server(process, port)
    if not prefix:
        wait_for_banner(port)
    else:
        while not subprocess.run([*prefix, "ss", "-Hltn", f"sport = :{port}"], capture_output=True).stdout:
            time.sleep(0.02)
    return server


def node(asked, export, state, prefix=(), listen="127.0.0.1:0", more=(), environment=None):
    """godwit node on a directory; its port is read from the line it prints."""
    process = subprocess.Popen(
        [*prefix, asked.godwit, "node", "--export", str(export), "--ftp", listen, "--anonymous", "write",
         "--state", str(state), "--json", *more],
        start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, **(environment or {})})
    line = process.stdout.readline()
    host = listen.rsplit(":", 1)[0]
    _, found, rest = line.partition(host + ":")
    digits = "".join(c for c in rest[:6] if c.isdigit() or c == " ").strip()
    if not found:
        process.kill()
        sys.exit(f"godwit node did not say where it serves: {line!r}")
    port = ""
    for c in rest:
        if not c.isdigit():
            break
        port += c
    return Server(process, int(port))


def wait_for_banner(port, host="127.0.0.1"):
    for _ in range(200):
        try:
            with socket.create_connection((host, port), 2) as s:
                if s.recv(300).startswith(b"220"):
                    return
        except OSError:
            pass
        time.sleep(0.05)
    sys.exit(f"nothing answers on port {port}")


# --- one run ------------------------------------------------------------------------------------

def run(command, servers=(), limit_s=300, environment=None):
    """Runs a command: seconds, its CPU and peak memory, the servers' CPU. Exits if it fails."""
    before = [s.cpu_s() for s in servers]
    start = time.monotonic()
    with tempfile.TemporaryFile() as words:
        pid = os.posix_spawnp(command[0], [str(c) for c in command], {**os.environ, **(environment or {})}, file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, words.fileno(), 1), (os.POSIX_SPAWN_DUP2, words.fileno(), 2)])
        while True:
            ended, status, usage = os.wait4(pid, os.WNOHANG) if limit_s else os.wait4(pid, 0)
            if ended:
                break
            if time.monotonic() - start > limit_s:
                os.kill(pid, signal.SIGKILL)
                os.wait4(pid, 0)
                return {"seconds": math.nan, "cut": limit_s}
            time.sleep(0.001)
        seconds = time.monotonic() - start
        if status:
            words.seek(0)
            raise RuntimeError(f"{' '.join(map(str, command))}\n{words.read().decode(errors='replace')[-2000:]}")
    return {
        "seconds": seconds,
        "client_cpu_s": usage.ru_utime + usage.ru_stime,
        "server_cpu_s": sum(s.cpu_s() for s in servers) - sum(before),
        "client_peak_bytes": usage.ru_maxrss * 1024,
    }


# --- pairs --------------------------------------------------------------------------------------

class Bench:
    """Candidates run in turns. `add` them, `measure`, then ask for ratios."""

    def __init__(self, asked, question, size_bytes=0, files=0):
        self.asked, self.question, self.size_bytes, self.files = asked, question, size_bytes, files
        self.candidates, self.rows = {}, {}

    def add(self, name, once):
        """`once()` does one run and returns what `run` does."""
        self.candidates[name] = once

    def measure(self, warm=1):
        names = list(self.candidates)
        for name in names:
            self.rows[name] = []
        for turn in range(-warm, self.asked.pairs):
            # Who always follows the same neighbour pays for what that one left behind.
            for name in random.Random(turn).sample(names, len(names)):
                row = self.candidates[name]()
                row["load"] = os.getloadavg()[0]
                if turn >= 0:
                    self.rows[name].append(row)
                    record(self.asked, self.question, name, turn, self.size_bytes, self.files, row)
        self.show()

    def median(self, name, key="seconds"):
        values = [r[key] for r in self.rows[name] if not math.isnan(r.get(key, math.nan))]
        return statistics.median(values) if values else math.nan

    def best(self, prefix):
        """The fastest candidate whose name starts so."""
        named = [n for n in self.rows if n.startswith(prefix) and not math.isnan(self.median(n))]
        return min(named, key=self.median) if named else None

    def show(self):
        say(f"\n{self.question}  ({self.asked.pairs} rounds, load {os.getloadavg()[0]:.1f})")
        for name in self.rows:
            s = self.median(name)
            seconds = [r["seconds"] for r in self.rows[name]]
            line = f"  {name:34} {s:8.3f} s ({min(seconds):.3f}..{max(seconds):.3f})"
            if self.size_bytes:
                gib = self.size_bytes / GIB
                line += f"  {self.size_bytes / s / 1e9:6.3f} GB/s"
                if "client_cpu_s" in self.rows[name][0]:
                    line += f"  CPU s/GiB {self.median(name, 'client_cpu_s') / gib:.2f} + {self.median(name, 'server_cpu_s') / gib:.2f}"
            if self.files:
                line += f"  {self.files / s:8.0f} files/s"
                if "client_cpu_s" in self.rows[name][0]:
                    line += f"  CPU s {self.median(name, 'client_cpu_s'):.2f} + {self.median(name, 'server_cpu_s'):.2f}"
            say(line)

    def compare(self, ours, theirs, bound, key="seconds", higher=True):
        """Prints how many times as fast (or, for CPU, how many times the cost) ours is, and whether that is enough."""
        if ours not in self.rows or theirs not in self.rows:
            return None
        def value(row):
            return row["client_cpu_s"] + row["server_cpu_s"] if key == "cpu" else row[key]
        pairs = [(value(a), value(b)) for a, b in zip(self.rows[ours], self.rows[theirs])]
        ratios = sorted((b / a if higher else a / b) for a, b in pairs if a and b and not math.isnan(a + b))
        if not ratios:
            return None
        low, middle, high = interval(ratios)
        met = high >= bound if higher else low <= bound  # the interval touches it
        what = "speed" if higher else "CPU" if key == "cpu" else key
        say(f"  {what} of {ours} against {theirs}: {middle:.2f} [{low:.2f}, {high:.2f}]"
            f"  asked {'≥' if higher else '≤'} {bound}: {'met' if met else 'MISSED'}")
        record(self.asked, self.question, f"{ours} / {theirs} {what}", -1, self.size_bytes, self.files,
               {"ratio": middle, "low": low, "high": high, "bound": bound, "met": met})
        return middle


def interval(ordered):
    """Median with the order-statistic (sign test) interval of at least 95 %, or all there is."""
    n = len(ordered)
    k, tail = 0, 0.0
    while True:
        tail += math.comb(n, k) / 2 ** n
        if tail > 0.025:
            break
        k += 1
    k = max(k, 0)
    low = ordered[k - 1] if k else ordered[0]
    high = ordered[n - k] if k else ordered[-1]
    return low, statistics.median(ordered), high


_commit = None


def commit():
    global _commit
    if _commit is None:
        def git(*words):
            return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()
        dirty = "+" if git("status", "--porcelain", "--untracked-files=no", "--", "crates") else ""
        _commit = git("rev-parse", "--short", "HEAD") + dirty
    return _commit


def record(asked, question, name, turn, size_bytes, files, row):
    out = pathlib.Path(asked.out)
    out.mkdir(parents=True, exist_ok=True)
    path = out / (pathlib.Path(sys.argv[0]).stem + ".tsv")
    new = not path.exists()
    with open(path, "a") as file:
        if new:
            file.write("date\tcommit\tquestion\tcandidate\tround\tbytes\tfiles\tmeasured\n")
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        rounded = {k: round(v, 5) if isinstance(v, float) else v for k, v in row.items()}
        file.write("\t".join(map(str, [now, commit(), question, name, turn, size_bytes, files, json.dumps(rounded)])) + "\n")
