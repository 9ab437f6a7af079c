#!/usr/bin/env python3
"""Does random things to a file, and compares it with what it should be, after each.

    tests/ways/fsx.py FILE MODEL SECONDS [SEED]

MODEL gets the bytes that FILE should have at the end. If it is there, FILE has its bytes at first, and stays large. It ends
with 1 at the first difference, which it prints.
"""

import mmap
import os
import random
import sys
import time

SIZE_MAX = 400_000


class Tried:
    def __init__(self, path, seed, model):
        self.path, self.random = path, random.Random(seed)
        self.model, self.steps = bytearray(model), []
        self.least, self.most = len(model) // 2, len(model) + SIZE_MAX
        self.fd = os.open(path, os.O_RDWR | (0 if model else os.O_CREAT | os.O_TRUNC), 0o644)

    def bytes(self, most):
        return self.random.randbytes(self.random.randint(1, most))

    def place(self):
        return self.random.randint(0, max(len(self.model), 1))

    def put(self, at, data):
        if at > len(self.model):
            self.model += bytes(at - len(self.model))
        self.model[at:at + len(data)] = data

    def write(self):
        at, data = self.place() + self.random.choice([0, 0, 0, 5000]), self.bytes(60_000)
        if at + len(data) <= self.most:
            os.pwrite(self.fd, data, at)
            self.put(at, data)

    def append(self):
        data = self.bytes(10_000)
        if len(self.model) + len(data) <= self.most:
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND)
            os.write(fd, data)
            os.close(fd)
            self.model += data

    def read(self):
        at, size = self.place(), self.random.randint(1, 80_000)
        self.same(at, os.pread(self.fd, size, at), self.model[at:at + size])

    def read_again(self):
        with open(self.path, "rb") as file:
            self.same(0, file.read(), self.model)

    def same(self, at, found, wanted):
        if found != wanted:
            first = next((n for n, (a, b) in enumerate(zip(found, wanted)) if a != b), min(len(found), len(wanted)))
            print(f"{len(found)} bytes at {at}, {len(wanted)} wanted; the first that differs is {at + first}")
            print("\n".join(self.steps[-12:]))
            sys.exit(1)

    def cut(self):
        size = self.random.randint(self.least, min(2 * len(self.model) + 1, self.most))
        os.ftruncate(self.fd, size)
        self.model = self.model[:size] + bytes(max(0, size - len(self.model)))

    def map_read(self):
        if self.model:
            with mmap.mmap(self.fd, len(self.model), prot=mmap.PROT_READ) as shown:
                self.same(0, shown[:], self.model)

    def map_write(self):
        if self.model:
            at = self.random.randrange(len(self.model))
            data = self.bytes(20_000)[:len(self.model) - at]
            with mmap.mmap(self.fd, len(self.model)) as shown:
                shown[at:at + len(data)] = data
                shown.flush()
            self.put(at, data)

    def sync(self):
        os.fsync(self.fd)

    def open_again(self):
        os.close(self.fd)
        self.fd = os.open(self.path, os.O_RDWR)

    def size(self):
        found = os.stat(self.path).st_size
        self.same(0, b"", b"" if found == len(self.model) else bytes(1))

    def rename(self):
        os.rename(self.path, self.path + ".other")
        os.rename(self.path + ".other", self.path)

    def replace(self):
        os.close(self.fd)
        data = self.bytes(100_000)
        with open(self.path, "wb") as file:
            file.write(data)
        self.model = bytearray(data)
        self.fd = os.open(self.path, os.O_RDWR)


def main():
    path, model, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else random.randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    start = open(model, "rb").read() if os.path.exists(model) else b""
    tried = Tried(path, seed, start)
    often = [tried.write] * 6 + [tried.read] * 6 + [tried.append, tried.cut, tried.map_read, tried.map_write, tried.size] * 2
    rarely = [tried.sync, tried.open_again, tried.rename]
    rarely += [] if start else [tried.read_again, tried.replace]
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        act = tried.random.choice(often if tried.random.random() < 0.9 else rarely)
        tried.steps.append(f"{act.__name__}, {len(tried.model)} bytes before")
        act()
        count += 1
    os.close(tried.fd)
    with open(model, "wb") as file:
        file.write(tried.model)
    print(f"{count} steps")


main()
