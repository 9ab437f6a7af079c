#!/usr/bin/python3
"""Writes as it is told and says when it has, one line each; then it waits to be killed. For `prove`.

    witness.py synced PATH | unsynced PATH | ordered PATH BLOCKS | fenced PATH BLOCKS | who
"""

import ctypes
import os
import sys
import time

BLOCK = 4096
BYTES = b"w" * 100_000


def write(path, synced):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(fd, BYTES)
    if synced:
        os.fsync(fd)
        place = os.open(os.path.dirname(path), os.O_RDONLY)
        os.fsync(place)


def blocks(path, count, fenced):
    """Writes one block after the other; each goes to the disk before the next, `fenced` with a flush between them."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(path, os.O_WRONLY)
    for nth in range(count):
        os.pwrite(fd, b"n" * BLOCK, nth * BLOCK)
        if fenced:
            os.fdatasync(fd)
        elif libc.sync_file_range(fd, ctypes.c_long(nth * BLOCK), ctypes.c_long(BLOCK), 7):  # before, write, after: no flush
            raise OSError(ctypes.get_errno(), "sync_file_range")


def who():
    said = {line.split(":")[0]: line.split()[1] for line in open("/proc/self/status") if line.startswith(("Uid", "CapEff", "CapBnd", "CapPrm", "NoNewPrivs"))}
    return " ".join(f"{name}={value}" for name, value in sorted(said.items()))


if __name__ == "__main__":
    words = sys.argv[1:]
    done = "done"
    if words[0] == "who":
        done = who()
    elif words[0] in ("synced", "unsynced"):
        write(words[1], words[0] == "synced")
    else:
        blocks(words[1], int(words[2]), words[0] == "fenced")
    print(done, flush=True)
    time.sleep(3600)
