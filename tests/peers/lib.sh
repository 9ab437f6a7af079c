# What the scripts beside this file share. Sourced, not run.
#
# A peer lives in one directory: DIR/pid, DIR/watch, DIR/log. Its *-up script prints one JSON line
# when the peer answers, and `down DIR` stops it by those pids.

HERE=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
CACHE=${GODWIT_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/godwit-peers}
ME=$(basename "$0")

# Exit status of a script that cannot run its peer here; the reason is on standard error.
SKIP=77

die() { echo "$ME: $*" >&2; exit 1; }
skip() { echo "$ME: $*" >&2; exit $SKIP; }

# options [--port N] [--owner PID] DIR -> PORT OWNER DIR
options() {
    PORT=0 OWNER='' DIR='' MORE=()
    while [ $# -gt 0 ]; do
        case $1 in
            --port) PORT=$2; shift 2 ;;
            --owner) OWNER=$2; shift 2 ;;
            --) shift; MORE=("$@"); break ;;
            -*) die "unknown option $1 (usage: $ME [--port N] [--owner PID] DIR [-- SERVER-OPTIONS])" ;;
            *) DIR=$1; shift ;;
        esac
    done
    [ -n "$DIR" ] || die "usage: $ME [--port N] [--owner PID] DIR [-- SERVER-OPTIONS]"
    mkdir -p "$DIR"
    DIR=$(cd "$DIR" && pwd)
    [ ! -e "$DIR/pid" ] || "$HERE/down" "$DIR"
    [ "$PORT" != 0 ] || PORT=$(free_port)
}

# A port below those that the kernel gives out, so that no other program gets it first.
free_port() {
    python3 - <<'P'
import random, socket
while True:
    port = random.randrange(10000, 32000)
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            continue
    print(port)
    break
P
}

# launch COMMAND...: in a session of its own, so that `down` can end its children too.
launch() {
    setsid "$@" </dev/null >>"$DIR/log" 2>&1 &
    echo $! >"$DIR/pid"
    if [ -n "$OWNER" ]; then
        # A test that is killed cannot clean up: then this does.
        ( tail --pid="$OWNER" -f /dev/null; rm -f "$DIR/watch"; "$HERE/down" "$DIR" ) </dev/null >/dev/null 2>&1 &
        echo $! >"$DIR/watch"
    fi
}

# as_ftp COMMAND...: launches it where an account "ftp" (that is nobody, at home in DIR/root) exists: in a
# mount namespace of its own with another /etc/passwd. The machine's is left alone. Needs root.
as_ftp() {
    { grep -v '^ftp:' /etc/passwd; echo "ftp:x:$(id -u nobody):$(id -g nobody)::$DIR/root:/bin/sh"; } >"$DIR/passwd"
    launch unshare -m --propagation private bash -c 'mount --bind "$1/passwd" /etc/passwd && shift && exec "$@"' bash "$DIR" "$@"
}

# answered KIND ROOT WHERE [BANNER]: waits for the banner, 220 if nothing else is told, prints the JSON line. ROOT is the directory that
# the peer calls /, WHERE a directory below it that may be written.
answered() {
    python3 - "$(cat "$DIR/pid")" "$PORT" "${4:-220}" <<'P' || { tail -n 5 "$DIR/log" >&2; "$HERE/down" "$DIR"; die "$1 did not answer on port $PORT"; }
import os, socket, sys, time
pid, port = map(int, sys.argv[1:3])
for _ in range(200):
    try:
        os.kill(pid, 0)
        with socket.create_connection(("127.0.0.1", port), 2) as s:
            s.settimeout(5)
            if s.recv(400).startswith(sys.argv[3].encode()):
                sys.exit(0)
    except ConnectionError:
        pass
    except OSError:
        sys.exit(1)
    time.sleep(0.05)
sys.exit(1)
P
    printf '{"kind":"%s","port":%d,"pid":%d,"root":"%s","where":"%s","log":"%s"}\n' "$1" "$PORT" "$(cat "$DIR/pid")" "$2" "$3" "$DIR/log"
}
