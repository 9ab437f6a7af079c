#!/usr/bin/python3
"""A program that speaks with the node of its machine by itself (docs/formats/local-socket.md), for what no verb of godwit does. For `depot`.

    speaks.py deed rename URL TO | unlink URL | truncate URL BYTES | set URL MODE
    speaks.py edit URL OFFSET FILE      writes the file by a descriptor that the node passed, and waits until that is committed

Exits with 0 if it was done, with 1 if it was refused, with 5 without an answer.
"""

import json
import os
import socket
import struct
import subprocess
import sys


class Broke(Exception):
    """The outcome of the request is unknown."""


class Here:
    """A conversation."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.n, self.came = 0, b""
        try:
            self.socket.connect(os.environ["GODWIT_SOCKET"])
        except OSError:
            # Any verb starts the node.
            subprocess.run([os.environ["GODWIT_BIN"], "queue"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(os.environ["GODWIT_SOCKET"])
        self.asks({"hello": {"version": 1, "program": "speaks.py"}})

    def asks(self, ask):
        """Returns what was told last, and the descriptors that came with it."""
        self.n += 1
        head = json.dumps({"n": self.n, "ask": ask}).encode()
        self.socket.sendall(struct.pack("<II", len(head), 0) + head)
        fds = []
        while True:
            told = self.frame(fds)
            if told["n"] == self.n and not told["tell"].keys() & {"row", "progress"}:
                break
        if "refused" in told["tell"]:
            why = told["tell"]["refused"]
            raise SystemExit(f"cannot {why['wanted']}: {why['because']}")
        return told["tell"], fds

    def frame(self, fds):
        lengths = struct.unpack("<II", self.read(8, fds))
        head = json.loads(self.read(lengths[0], fds))
        self.read(lengths[1], fds)
        return head

    def read(self, size, fds):
        while len(self.came) < size:
            piece, more, _, _ = socket.recv_fds(self.socket, 1 << 16, 4)
            fds += more
            if not piece:
                raise Broke("the node ended the conversation")
            self.came += piece
        taken, self.came = self.came[:size], self.came[size:]
        return taken


def deed(words):
    what, url, *more = words
    asked = {"url": url} | ({"to": more[0]} if what == "rename" else {"size": int(more[0])} if what == "truncate"
                            else {"mode": int(more[0], 8)} if what == "set" else {})
    Here().asks({"deed": {what: asked}})


def edit(words):
    url, offset, source = words
    with open(source, "rb") as file:
        data = file.read()
    here = Here()
    told, (fd,) = here.asks({"open": {"url": url, "read": True, "write": True}})
    at = int(offset)
    while data:
        written = os.pwrite(fd, data[:65536], at)
        data, at = data[written:], at + written
    os.close(fd)
    here.asks({"close": {"handle": told["opened"]["handle"], "wait": "commit"}})


try:
    {"deed": deed, "edit": edit}[sys.argv[1]](sys.argv[2:])
except (OSError, Broke) as error:
    print(f"speaks.py: {error}", file=sys.stderr)
    sys.exit(5)
