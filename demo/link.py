#!/usr/bin/env python3
"""A bad link to an FTP server: slow, or one that turns a bit of what it carries.

Prints `PORT` where it listens and forwards to --to. Reads the replies on the control
connection and puts itself between the data connections as well (227 and 229). Ends with
the process that started it.

    demo/link.py --to 127.0.0.1:2811 [--rate 50M] [--flip 3000000]

--rate  bytes a second over all data connections together
--flip  turns one bit, once: of the byte that is so many bytes into a data connection
"""

import argparse
import os
import re
import socket
import sys
import threading
import time


def main():
    options = parse()
    host, port = options.to.rsplit(":", 1)
    link = Link((host, int(port)), options.rate, options.flip)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=end_with_parent, daemon=True).start()
    while True:
        client, _ = listener.accept()
        threading.Thread(target=link.control, args=(client,), daemon=True).start()


class Link:
    def __init__(self, server, rate, flip):
        self.server, self.rate, self.flip = server, rate, flip
        self.lock = threading.Lock()
        self.free_at = time.monotonic()

    def control(self, client):
        server = socket.create_connection(self.server)
        threading.Thread(target=pump, args=(client, server), daemon=True).start()
        try:
            for line in server.makefile("rb"):
                client.sendall(self.replace_port(line))
        except OSError:
            pass
        shut(client)

    def replace_port(self, line):
        if found := re.match(rb"229[ -].*\(\|\|\|(\d+)\|\)", line):
            port = self.data_port(int(found[1]))
            return re.sub(rb"\|\|\|\d+\|", b"|||%d|" % port, line)
        if found := re.match(rb"227[ -].*?\((?:\d+,){4}(\d+),(\d+)\)", line):
            port = self.data_port(int(found[1]) * 256 + int(found[2]))
            return b"227 Entering Passive Mode (127,0,0,1,%d,%d)\r\n" % divmod(port, 256)
        return line

    def data_port(self, port):
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.data, args=(listener, port), daemon=True).start()
        return listener.getsockname()[1]

    def data(self, listener, port):
        listener.settimeout(600)
        try:
            while True:
                client, _ = listener.accept()
                client.settimeout(None)
                server = socket.create_connection((self.server[0], port))
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=pump, args=(*ends, self), daemon=True).start()
        except OSError:
            listener.close()

    def carry(self, data, offset):
        """Returns the bytes as they arrive, when they arrive."""
        with self.lock:
            if self.flip is not None and offset <= self.flip < offset + len(data):
                data = bytearray(data)
                data[self.flip - offset] ^= 0x10
                self.flip = None
                print("the link turned a bit", file=sys.stderr, flush=True)
            if self.rate:
                self.free_at = max(self.free_at, time.monotonic()) + len(data) / self.rate
            wait = self.free_at - time.monotonic()
        if self.rate and wait > 0:
            time.sleep(wait)
        return data


def pump(source, target, link=None):
    offset = 0
    try:
        while data := source.recv(1 << 16):
            sent = link.carry(data, offset) if link else data
            offset += len(data)
            target.sendall(sent)
    except OSError:
        pass
    shut(target)


def shut(end):
    try:
        end.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def end_with_parent():
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


def size(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", required=True)
    parser.add_argument("--rate", type=size, default=0)
    parser.add_argument("--flip", type=size)
    return parser.parse_args()


if __name__ == "__main__":
    main()
