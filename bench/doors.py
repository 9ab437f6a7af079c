"""What benches of the door share: an authority, nodes with FTP and a door, and nginx that serves the same files by HTTPS."""

import json
import os
import pathlib
import subprocess
import sys

import lib

CACHE = pathlib.Path(os.environ.get("GODWIT_PEERS", pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "godwit-peers"))
# Tuned for large files: two workers as there are two cores, no temporary file is copied, no log, sessions are resumed. The
# kernel here has no TLS of its own, so that sendfile has nothing to do for HTTPS; it stands where it would.
NGINX = """
daemon off; master_process on; worker_processes 2; pid {run}/pid; error_log {run}/error.log;
{user}
events {{ worker_connections 1024; multi_accept on; }}
http {{
    access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; aio threads; output_buffers 2 1m; types {{ }} default_type application/octet-stream;
    client_max_body_size 0; client_body_buffer_size 1m; client_body_temp_path {run}/body;
    proxy_temp_path {run}/proxy; fastcgi_temp_path {run}/fastcgi; uwsgi_temp_path {run}/uwsgi; scgi_temp_path {run}/scgi;
    ssl_certificate {cert}; ssl_certificate_key {key}; ssl_protocols TLSv1.3; ssl_session_cache shared:s:4m; ssl_buffer_size 16k;
    server {{ listen {host}:{port} ssl; root {root}; location / {{ dav_methods PUT; }} }}
}}
"""


class Doors:
    """An authority, a host it vouches for, and a user; RSA 2048, as with GSI."""

    def __init__(self, asked, base, hosts=("localhost", "127.0.0.1")):
        self.asked, self.dir = asked, base / "trust"
        ca = self.dir / "ca"
        self.authorities, self.ca_file = ca / "certificates", ca / "ca.pem"
        self.dir.mkdir()
        self.say("ca", "init", ca)
        self.say("ca", "issue", ca, "bench", "--out", self.dir)
        self.say("ca", "issue", ca, *(word for host in hosts for word in ("--host", host)), "--out", self.dir)
        self.gridmap = self.dir / "gridmap"
        self.gridmap.write_text(f'"/O=Lab/CN=bench" {subprocess.check_output(["id", "-un"], text=True)}')
        self.environment = {"X509_CERT_DIR": str(self.authorities), "X509_USER_CERT": str(self.dir / "usercert.pem"),
                            "X509_USER_KEY": str(self.dir / "userkey.pem")}

    def say(self, *words):
        subprocess.run([self.asked.godwit, "-q", *map(str, words)], check=True, stdout=subprocess.DEVNULL)

    def node(self, export, state, prefix=(), host="127.0.0.1", settings=None, environment=None):
        """A node with FTP at `port` and a door at `https`. `settings` are keys of the configuration."""
        keys = {"GODWIT_" + name.upper().replace(".", "_"): str(value) for name, value in (settings or {}).items()}
        process = subprocess.Popen(
            [*prefix, self.asked.godwit, "node", "--export", export, "--ftp", f"{host}:0", "--https", f"{host}:0", "--anonymous", "write",
             "--state", state, "--json", "--host-cert", self.dir / "hostcert.pem", "--host-key", self.dir / "hostkey.pem",
             "--ca-dir", self.authorities, "--gridmap", self.gridmap],
            start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, **keys, **(environment or {})})
        line = process.stdout.readline()
        if not line:
            sys.exit(f"godwit node ended with {process.wait()} before it served")
        ready = json.loads(line)
        server = lib.Server(process, port_of(ready["ftp"][0]))
        server.https = port_of(ready["https"][0])
        return server

    def nginx(self, root, run, prefix=(), host="127.0.0.1"):
        program = CACHE / "usr/sbin/nginx"
        if not program.exists():
            sys.exit("nginx is missing: bench/install")
        run.mkdir()
        port = lib.free_port()
        (run / "conf").write_text(NGINX.format(
            run=run, root=root, host=host, port=port, cert=self.dir / "hostcert.pem", key=self.dir / "hostkey.pem",
            user="user root;" if os.getuid() == 0 else ""))
        process = subprocess.Popen([*prefix, program, "-c", run / "conf", "-p", run, "-e", run / "error.log"], start_new_session=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        server = Nginx(process, port)
        while not subprocess.run([*prefix, "ss", "-Hltn", f"sport = :{port}"], capture_output=True).stdout:
            if process.poll() is not None:
                sys.exit(f"nginx did not start: {(run / 'error.log').read_text()}")
            lib.time.sleep(0.02)
        return server

    def curl(self, *words):
        return ["curl", "-sS", "--fail", "--tlsv1.3", "--cacert", str(self.ca_file), *map(str, words)]


def port_of(address):
    return int(str(address).rsplit("/", 1)[0].rsplit(":", 1)[1]) if str(address).endswith("/") else int(str(address).rsplit(":", 1)[1])


class Nginx(lib.Server):
    """Its workers stay, so that nobody has to be waited for."""

    def cpu_s(self):
        total = 0
        for entry in os.scandir("/proc"):
            try:
                fields = open(f"/proc/{entry.name}/stat").read().rsplit(")", 1)[1].split() if entry.name.isdigit() else None
            except OSError:
                continue
            if fields and int(fields[3]) == self.pid:
                total += sum(map(int, fields[11:13]))
        return total / lib.TICKS
