#!/usr/bin/python3
"""Pretends to be godwit, as far as `depot` asks for it: to see that `depot` runs, and that it finds what is broken.

GODWIT_PRETEND says what is wrong with it: nothing (`honest`), or one of BREAKS. A put is spooled beside the home, a node that is started on
demand delivers; a destination is a socket that takes a name and bytes.
"""

import ctypes
import fcntl
import json
import os
import pathlib
import random
import socket
import struct
import subprocess
import sys
import time

BREAKS = {
    "honest": "nothing",
    "dies-long": "nothing, but at a named point it takes long to die, and says no more who it is",
    "ack-early": "says that it is committed before it is synced",
    "clean-early": "forgets pending files before the destination has synced it",
    "torn": "writes at the destination under the name itself",
    "half": "takes the end of a killed writer for the end of the file",
    "stale": "delivers some generations twice, the second time late",
    "forgets": "drops pending files when it meets a full disk or a refusal",
    "hang": "waits for ever for a lock that a killed one had",
}
KEEPS = ["honest", "dies-long"]
HOW = os.environ.get("GODWIT_PRETEND", "honest")
HOME = pathlib.Path(os.environ["HOME"])
SPOOL = HOME / "spool"


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def durable(path, content):
    """Puts a file in place, whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(content)
    if HOW != "ack-early":
        sync(part)
    part.rename(path)
    if HOW != "ack-early":
        sync(path.parent)


def locked(path, wait=True):
    if HOW == "hang":
        while path.exists():
            time.sleep(0.05)
        path.touch()
        return None
    file = open(path, "a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return file


def unlocked(path, lock):
    if HOW == "hang":
        path.unlink()
    else:
        lock.close()


def die():
    """Dies at the named point that it was told."""
    with open(os.environ["TEST_CRASH_NOTE"], "a") as note:
        print(os.environ["GODWIT_CRASH"].split(":")[0], file=note)
    if HOW == "dies-long":
        # As the kernel does: what a process was told goes first, and for a while it still seems to run.
        fields = pathlib.Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
        begin, end = int(fields[47]), int(fields[48])  # env_start, env_end
        ctypes.memset(begin, 0, end - begin)
        time.sleep(1)
    os.kill(os.getpid(), 9)


# --- the client ----------------------------------------------------------------------------------

def put(words):
    offset = None
    if words[0] == "--offset":
        offset, words = int(words[1]), words[2:]
    source, url = words
    SPOOL.mkdir(exist_ok=True)
    if HOW == "half" and source == "-" and os.fork():
        # The kill hits this process; the other one goes on with the bytes that came.
        status = os.wait()[1]
        os._exit(os.waitstatus_to_exitcode(status))
    content = sys.stdin.buffer.read() if source == "-" else pathlib.Path(source).read_bytes()
    lock = locked(HOME / "lock")
    try:
        known = sorted(int(p.name) for p in SPOOL.iterdir() if p.name.isdigit())
        last = HOME / "last"
        nth = max([*known, int(last.read_text()) if last.exists() else 0]) + 1
        durable(last, str(nth).encode())
        head = json.dumps({"url": url, "offset": offset}).encode()
        durable(SPOOL / str(nth), struct.pack("<I", len(head)) + head + content)
    finally:
        unlocked(HOME / "lock", lock)
    start()


def start():
    """Starts the node of this machine if there is none."""
    lock = locked(HOME / "alive", wait=False) if HOW != "hang" else None
    if lock is False:
        return
    if lock:
        lock.close()
    subprocess.Popen([sys.argv[0], "node", "--local"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open(HOME / "node.log", "a"),
                     start_new_session=True, cwd="/")


def deliver():
    """The node that is started on demand: sends in order, and ends when nothing is pending."""
    lock = locked(HOME / "alive", wait=False) if HOW != "hang" else None
    if lock is False:
        return
    idle = 0
    while idle < 10:
        pending = sorted((p for p in SPOOL.iterdir() if p.name.isdigit()), key=lambda p: int(p.name)) if SPOOL.exists() else []
        idle = 0 if pending else idle + 1
        for path in pending:
            head, content = spooled(path)
            if HOW == "clean-early":
                path.unlink()
            if os.environ.get("GODWIT_CRASH", "").startswith("push-sent"):
                die()
            try:
                sent(head, content)
            except OSError:
                if HOW == "forgets":
                    path.unlink(missing_ok=True)
                break
            path.unlink(missing_ok=True)
            sync(SPOOL)
            if HOW == "stale" and random.random() < 0.5:
                if os.fork() == 0:
                    time.sleep(0.4)
                    try:
                        sent(head, content)
                    finally:
                        os._exit(0)
        time.sleep(0.02)


def spooled(path):
    whole = path.read_bytes()
    (size,) = struct.unpack_from("<I", whole)
    return json.loads(whole[4:4 + size]), whole[4 + size:]


def sent(head, content):
    peer, _, name = head["url"].split("://", 1)[1].partition("/")
    port = int(peer.split(":")[1]) if ":" in peer else int((HOME / "peers" / peer).read_text())
    with socket.create_connection(("127.0.0.1", port), 2) as s:
        s.settimeout(5)
        line = json.dumps({"name": name, "offset": head["offset"], "size": len(content)}).encode() + b"\n"
        s.sendall(line + content)
        if s.recv(2) != b"ok":
            raise OSError("not taken")


# --- the destination -----------------------------------------------------------------------------

def serve(export, port):
    with socket.create_server(("127.0.0.1", port)) as listener:
        print(json.dumps({"https": [f"127.0.0.1:{port}"]}), flush=True)
        while True:
            s, _ = listener.accept()
            with s, s.makefile("rb") as asked:
                try:
                    s.settimeout(5)
                    head = json.loads(asked.readline())
                    content = asked.read(head["size"])
                    if len(content) < head["size"]:
                        continue
                    target = pathlib.Path(export) / head["name"]
                    if head["offset"] is not None:
                        old = target.read_bytes() if target.exists() else b""
                        at = head["offset"]
                        content = old[:at].ljust(at, b"\0") + content + old[at + len(content):]
                    if HOW == "torn":
                        with open(target, "wb") as file:
                            for at in range(0, len(content), 4096):
                                file.write(content[at:at + 4096])
                                time.sleep(0.0005)
                        sync(target)
                    else:
                        durable(target, content)
                    if HOW == "dies-long" and "GODWIT_CRASH" in os.environ:
                        die()
                    s.sendall(b"ok")
                except (OSError, ValueError):
                    pass


def main():
    words = [word for word in sys.argv[1:] if word not in ("-q", "--json")]
    verb = words.pop(0)
    def flag(name):
        return words[words.index(name) + 1] if name in words else None
    if verb == "init":
        durable(HOME / "node", json.dumps({"export": flag("--export"), "port": int(flag("--https").rsplit(":", 1)[1]), "name": words[0]}).encode())
    elif verb == "peers":
        print((HOME / "node").read_text())
    elif verb == "join":
        told = json.loads(words[0])
        (HOME / "peers").mkdir(exist_ok=True)
        durable(HOME / "peers" / told["name"], str(told["port"]).encode())
    elif verb == "node" and "--local" in words:
        deliver()
    elif verb == "node":
        if flag("--export"):
            serve(flag("--export"), int(flag("--ftp").rsplit(":", 1)[1]))
        told = json.loads((HOME / "node").read_text())
        serve(told["export"], told["port"])
    elif verb == "put":
        put(words)
    elif verb in ("push", "commit", "retry"):
        start()
    elif verb == "queue":
        start()
        for path in SPOOL.glob("[0-9]*"):
            try:
                print(json.dumps({"event": "owed", "url": spooled(path)[0]["url"]}))
            except FileNotFoundError:
                pass
        print(json.dumps({"event": "summary"}))
    elif verb == "cp":
        print((HOME / "x").read_bytes())
    else:
        sys.exit(2)


if __name__ == "__main__":
    main()
