#!/usr/bin/python3
"""A disk image that notes every write and every flush, and can lose power: after it, the disk has what was flushed, and any part of what was not.

    recorder.py IMAGE BYTES      serves until IMAGE is unmounted; IMAGE is an empty file, over which a file system of one file is mounted

The kernel sends what a loop device on IMAGE is told: a write when it is written, a flush as fsync. A line on standard input is a
command, its answer one line of JSON:

    cut SEED     from here on everything fails; what the disk keeps of the writes since the last flush is drawn from SEED
    heal         serves again, what the cut has left
    stats        writes, flushes, and the writes since the last flush
    state SEED PATH   a copy of the disk as a cut would leave it now; it goes on as before
    break WORD   no longer keeps what it promises (`flushes`: forgets that it was flushed), so that a test can be seen to fail

A disk may keep any of its sectors that were not flushed, in any order; so for each write since the last flush it is drawn whether all of it, none
or some of its sectors of 4 KiB stay. What this cannot show: a write that is still under way when a flush begins, since there is one at a time; and disks that
lie about flushes. Standard library only: the protocol is that of /dev/fuse (linux/fuse.h, 7.31).
"""

import ctypes
import errno
import json
import os
import random
import stat
import struct
import sys
import tempfile
import threading

SECTOR = 4096
WRITE_MAX = 1 << 20
IN, OUT, ATTR = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ"), struct.Struct("<QQQQQQIIIIIIIIII")
FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT, INTERRUPT, DESTROY, BATCH_FORGET = (
    2, 3, 4, 14, 15, 16, 17, 18, 20, 25, 26, 36, 38, 42)
ASYNC_READ, BIG_WRITES, MAX_PAGES = 1 << 0, 1 << 5, 1 << 22


class Disk:
    """Two files: what was written, and what was flushed; and what lies between, in order."""

    def __init__(self, size_bytes):
        self.size_bytes = size_bytes
        self.now, self.durable = (tempfile.TemporaryFile(dir="/dev/shm", buffering=0) for _ in range(2))
        for file in (self.now, self.durable):
            file.truncate(size_bytes)
        self.pending = []  # (offset, bytes) since the last flush
        self.writes = self.flushes = 0
        self.is_dead = self.forgets_flushes = False
        self.lock = threading.Lock()

    def read(self, offset, size_bytes):
        with self.lock:
            self.alive()
            return os.pread(self.now.fileno(), size_bytes, offset)

    def write(self, offset, data):
        with self.lock:
            self.alive()
            os.pwrite(self.now.fileno(), data, offset)
            self.pending.append((offset, data))
            self.writes += 1

    def flush(self):
        with self.lock:
            self.alive()
            self.flushes += 1
            if self.forgets_flushes:
                return
            for offset, data in self.pending:
                os.pwrite(self.durable.fileno(), data, offset)
            self.pending.clear()

    def alive(self):
        if self.is_dead:
            raise OSError(errno.EIO, "no power")

    def cut(self, seed):
        with self.lock:
            self.is_dead = True
            kept = drawn(self.pending, seed)
            for offset, data in kept:
                os.pwrite(self.durable.fileno(), data, offset)
            # Where something was written, what is there now is what the disk has kept.
            for offset, data in self.pending:
                os.pwrite(self.now.fileno(), os.pread(self.durable.fileno(), len(data), offset), offset)
            told = {"pending": len(self.pending), "pending_bytes": sum(len(d) for _, d in self.pending), "kept_bytes": sum(len(d) for _, d in kept)}
            self.pending.clear()
            return told

    def heal(self):
        with self.lock:
            self.is_dead = False
            return {"healed": True}

    def state(self, seed, path):
        with self.lock, open(path, "wb") as copy:
            copy.truncate(self.size_bytes)
            at = 0
            while True:
                try:
                    at = os.lseek(self.durable.fileno(), at, os.SEEK_DATA)
                except OSError:
                    break
                end = os.lseek(self.durable.fileno(), at, os.SEEK_HOLE)
                while at < end:
                    at += os.pwrite(copy.fileno(), os.pread(self.durable.fileno(), min(end - at, WRITE_MAX), at), at)
            for offset, data in drawn(self.pending, seed):
                os.pwrite(copy.fileno(), data, offset)
            return {"pending": len(self.pending)}

    def stats(self):
        with self.lock:
            return {"writes": self.writes, "flushes": self.flushes, "pending": len(self.pending)}


def drawn(pending, seed):
    """Returns which of these writes the disk has kept, in the order they were made, as (offset, bytes)."""
    chance = random.Random(seed)
    # Each cut has a temper: between nearly all and nearly nothing, whole writes or torn ones.
    keep, tear = chance.choice([0.02, 0.2, 0.5, 0.8, 0.98]), chance.choice([0.0, 0.1, 0.5])
    kept = []
    for offset, data in pending:
        if chance.random() < tear:
            for at in range(0, len(data), SECTOR):
                if chance.random() < keep:
                    kept.append((offset + at, data[at:at + SECTOR]))
        elif chance.random() < keep:
            kept.append((offset, data))
    return kept


class Served:
    """The one file, as the kernel asks for it."""

    def __init__(self, disk, fuse):
        self.disk, self.fuse = disk, fuse

    def run(self):
        while True:
            try:
                asked = os.read(self.fuse, WRITE_MAX + 8192)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return  # unmounted
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                raise
            _, what, unique, *_ = IN.unpack_from(asked)
            if what in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            try:
                self.answer(unique, 0, self.one(what, memoryview(asked)[IN.size:]))
            except OSError as error:
                self.answer(unique, -(error.errno or errno.EIO), b"")

    def answer(self, unique, error, body):
        try:
            os.write(self.fuse, OUT.pack(OUT.size + len(body), error, unique) + body)
        except OSError as failed:
            if failed.errno != errno.ENOENT:  # nobody waits for it any more
                raise

    def one(self, what, body):
        if what == INIT:
            major, minor, ahead, flags = struct.unpack_from("<IIII", body)
            return struct.pack("<IIIIHHIIHHII24x", 7, 31, ahead, flags & (ASYNC_READ | BIG_WRITES | MAX_PAGES), 64, 48, WRITE_MAX, 1, WRITE_MAX // 4096, 0, 0, 0)
        if what in (GETATTR, SETATTR):
            blocks = self.disk.size_bytes // 512
            return struct.pack("<QII", 3600, 0, 0) + ATTR.pack(
                1, self.disk.size_bytes, blocks, 0, 0, 0, 0, 0, 0, stat.S_IFREG | 0o600, 1, 0, 0, 0, SECTOR, 0)
        if what == OPEN:
            return struct.pack("<QIi", 1, 0, 0)  # without FOPEN_KEEP_CACHE: who opens it after a cut reads anew
        if what == READ:
            _, offset, size_bytes = struct.unpack_from("<QQI", body)
            return self.disk.read(offset, size_bytes)
        if what == WRITE:
            _, offset, size_bytes = struct.unpack_from("<QQI", body)
            self.disk.write(offset, bytes(body[40:40 + size_bytes]))
            return struct.pack("<II", size_bytes, 0)
        if what == FSYNC:
            self.disk.flush()
            return b""
        if what == STATFS:
            return struct.pack("<QQQQQIIII24x", 0, 0, 0, 1, 0, SECTOR, 255, SECTOR, 0)
        if what in (FLUSH, RELEASE, DESTROY):
            return b""
        # fallocate too: a loop device then neither discards nor has zeros written for it.
        raise OSError(errno.ENOSYS, "not spoken")


def mount(image):
    fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={fuse},rootmode=100000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"recorder", os.fsencode(image), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), f"cannot mount over {image}")
    return fuse


def commands(disk):
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "cut":
            told = disk.cut(int(rest[0]))
        elif word == "heal":
            told = disk.heal()
        elif word == "stats":
            told = disk.stats()
        elif word == "state":
            told = disk.state(int(rest[0]), rest[1])
        elif word == "break" and rest == ["flushes"]:
            disk.forgets_flushes = True
            told = {"broken": "flushes"}
        else:
            told = {"unknown": line.strip()}
        print(json.dumps(told), flush=True)


def main():
    image, size_bytes = sys.argv[1], int(sys.argv[2])
    disk = Disk(size_bytes)
    fuse = mount(image)
    threading.Thread(target=commands, args=(disk,), daemon=True).start()
    print(json.dumps({"serves": image}), flush=True)
    Served(disk, fuse).run()


if __name__ == "__main__":
    main()
