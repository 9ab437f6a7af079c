"""A grid for benches: an authority, a user's proxy, servers of Globus and nodes of ours that prove who they are."""

import atexit
import base64
import os
import pathlib
import socket
import ssl
import subprocess

import lib


class Grid:
    """Made by tests/peers/gct-secure-up: two servers of Globus, and what a node of ours needs to stand beside them."""

    def __init__(self, base):
        self.dir = base / "grid"
        environment = {**os.environ, "GCT_PORT": "0", "GCT_SECOND": "1", "GCT_USER": "root" if os.getuid() == 0 else ""}
        up = subprocess.run([lib.PEERS / "gct-secure-up", self.dir], env=environment, capture_output=True, text=True)
        if up.returncode:
            raise SystemExit(up.stderr)
        atexit.register(subprocess.run, [lib.PEERS / "gct-secure-down", self.dir])
        self.servers = [Started(self.dir, name) for name in ("main", "second")]
        self.proxy = self.dir / "proxy"
        self.environment = {"X509_CERT_DIR": str(self.dir / "certs"), "X509_USER_PROXY": str(self.proxy), "GLOBUS_HOSTNAME": "localhost"}

    def node(self, asked, export, state):
        return lib.node(asked, export, state, more=[
            "--host-cert", self.dir / "host1cert.pem", "--host-key", self.dir / "host1key.pem",
            "--ca-dir", self.dir / "certs", "--gridmap", self.dir / "grid-mapfile"])


class Started(lib.Server):
    """A server that a script started."""

    def __init__(self, directory, name):
        self.pid = int((directory / f"{name}.pid").read_text())
        self.port = int((directory / f"{name}.port").read_text())

    def stop(self):
        pass  # the script does, at the end


def session(port, proxy):
    """Logs in by GSI, as a client without delegation does, and returns the idle socket with what guards it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # who the server is does not matter here
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(proxy)
    control = socket.create_connection(("127.0.0.1", port), 30)
    replies = control.makefile("rb")
    replies.readline()
    said(control, replies, b"AUTH GSSAPI", b"334")
    came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(came, goes)
    over = False
    while not over:
        try:
            tls.do_handshake()
            over = True
        except ssl.SSLWantReadError:
            pass
        if goes.pending:
            token(control, replies, came, goes.read())
    tls.write(b"0")  # nothing is delegated
    token(control, replies, came, goes.read())
    for line in (b"USER :globus-mapping:", b"PASS dummy"):
        tls.write(line + b"\r\n")
        control.sendall(b"ENC " + base64.b64encode(goes.read()) + b"\r\n")
        reply = replies.readline()
        assert reply[:1] == b"6", reply
        came.write(base64.b64decode(reply[4:]))
        reply = tls.read(1000)
        assert reply[:1] in b"23", reply
    return control, tls, replies


def said(control, replies, line, code):
    control.sendall(line + b"\r\n")
    reply = replies.readline()
    assert reply.startswith(code), reply
    return reply


def token(control, replies, came, bytes_):
    reply = said(control, replies, b"ADAT " + base64.b64encode(bytes_), b"")
    assert reply[:3] in (b"335", b"235"), reply
    if b"ADAT=" in reply:
        came.write(base64.b64decode(reply.split(b"ADAT=", 1)[1].strip()))


def memory_bytes(server):
    """Resident memory of a node and of what it forked."""
    total = 0
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int((entry / "stat").read_text().rsplit(")", 1)[1].split()[3]) == server.pid:
                total += next(int(line.split()[1]) * 1024 for line in (entry / "status").read_text().splitlines()
                              if line.startswith("VmRSS"))
        except (OSError, StopIteration):
            pass
    return total
