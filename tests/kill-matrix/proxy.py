"""An FTP proxy that counts, and that lets a test strike at a chosen byte.

Control connections pass through it line by line; the addresses in 227 and 229 replies are replaced by its own, so
that data connections pass through it too. Payload is counted in MODE E without its headers. Buffers are kept
small on both sides: few bytes are then in flight at a death, and resent bytes can be counted.
"""

import re
import socket
import struct
import threading

BUFFER_BYTES = 64 << 10


class Proxy:
    def __init__(self, server_port, is_door=False):
        """`is_door`: every connection is one of HTTPS, and all in it is payload but for what TLS adds."""
        self.server_port = server_port
        self.is_door = is_door
        self.payload_bytes = 0  # in both directions, all sessions
        self.strike_at, self.strike = None, None
        self.lock = threading.Lock()
        self.controls = []
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(64)
        self.port = self.listener.getsockname()[1]
        start(self._accept)

    def arm(self, at_bytes, strike):
        """Calls `strike` once, when that many bytes of payload have passed in all."""
        with self.lock:
            self.strike_at, self.strike = at_bytes, strike

    def cut_controls(self):
        """Resets every control connection; data connections live on."""
        for pair in self.controls:
            for s in pair:
                try:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self.controls.clear()

    def count(self, payload_bytes):
        strike = None
        with self.lock:
            self.payload_bytes += payload_bytes
            if self.strike_at is not None and self.payload_bytes >= self.strike_at:
                strike, self.strike_at = self.strike, None
        if strike:
            strike()

    def _accept(self):
        while True:
            # The connection is reset when its server is done, whatever is in flight.
            start(self._visit if self.is_door else self._session, self.listener.accept()[0])

    def _visit(self, near):
        far = socket.socket()
        for s in (near, far):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        try:
            far.connect(("127.0.0.1", self.server_port))
        except OSError:
            near.close()
            return
        start(self._relay, near, far)
        self._relay(far, near)

    def _relay(self, source, target):
        while True:
            try:
                data = source.recv(BUFFER_BYTES)
                if not data:
                    break
                target.sendall(data)
            except OSError:
                break
            self.count(len(data))
        end(target)

    def _session(self, client):
        try:
            server = socket.create_connection(("127.0.0.1", self.server_port), 5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        pair = (client, server)
        self.controls.append(pair)
        session = {"mode": "S"}
        start(self._commands, client, server, session)
        self._replies(client, server, session)
        if pair in self.controls:
            self.controls.remove(pair)

    def _commands(self, client, server, session):
        for line in lines(client):
            words = line.upper().split()
            if words[:1] == [b"MODE"] and len(words) > 1:
                session["mode"] = words[1].decode()
            try:
                server.sendall(line)
            except OSError:
                break
        end(server)

    def _replies(self, client, server, session):
        for line in lines(server):
            found = re.match(rb"229 (.*)\(\|\|\|(\d+)\|\)", line)
            if found:
                line = b"229 %s(|||%d|)\r\n" % (found[1], self._door(int(found[2]), session["mode"]))
            found = re.match(rb"227 (.*)\(?(\d+),(\d+),(\d+),(\d+),(\d+),(\d+)\)?", line)
            if found:
                n = [int(x) for x in re.findall(rb"\d+", line)[-6:]]
                port = self._door(n[4] << 8 | n[5], session["mode"])
                line = b"227 Entering Passive Mode (127,0,0,1,%d,%d)\r\n" % (port >> 8, port & 255)
            try:
                client.sendall(line)
            except OSError:
                break
        end(client)

    def _door(self, port, mode):
        """Opens a port that leads to a data port of the server."""
        door = socket.socket()
        door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        door.bind(("127.0.0.1", 0))
        door.listen(64)
        door.settimeout(120)
        start(self._data, door, port, mode)
        return door.getsockname()[1]

    def _data(self, door, port, mode):
        while True:
            try:
                near, _ = door.accept()
            except OSError:
                door.close()
                return
            far = socket.socket()
            far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            near.settimeout(None)
            try:
                far.connect(("127.0.0.1", port))
            except OSError:
                near.close()
                continue
            start(self._pump, near, far, mode)
            start(self._pump, far, near, mode)

    def _pump(self, source, target, mode):
        counter = Blocks() if mode == "E" else None
        buffer = bytearray(256 << 10)
        view = memoryview(buffer)
        try:
            while n := source.recv_into(buffer):
                target.sendall(view[:n])
                self.count(counter.feed(view[:n]) if counter else n)
        except OSError:
            pass
        end(target)


class Blocks:
    """Tells payload from headers in MODE E."""

    def __init__(self):
        self.left, self.head = 0, b""

    def feed(self, piece):
        payload = 0
        while len(piece):
            if self.left:
                n = min(self.left, len(piece))
                payload, self.left, piece = payload + n, self.left - n, piece[n:]
                continue
            need = 17 - len(self.head)
            self.head += bytes(piece[:need])
            piece = piece[need:]
            if len(self.head) == 17:
                flags, count, _ = struct.unpack("!BQQ", self.head)
                self.left, self.head = (0 if flags & 0x40 else count), b""
        return payload


def lines(stream):
    kept = b""
    while True:
        try:
            came = stream.recv(65536)
        except OSError:
            return
        if not came:
            return
        kept += came
        *whole, kept = kept.split(b"\n")
        for line in whole:
            yield line + b"\n"


def end(stream):
    try:
        stream.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def start(function, *arguments):
    threading.Thread(target=function, args=arguments, daemon=True).start()
