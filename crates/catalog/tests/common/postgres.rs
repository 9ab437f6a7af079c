//! A server of PostgreSQL for tests, in a temporary directory, on a free port, as a user without rights.

use std::{
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
};

/// The server of this test program, or the reason why there is none.
static SERVER: LazyLock<Result<Server, String>> = LazyLock::new(Server::start);

/// A server. It ends with the test program: when its standard input does.
struct Server {
    bin: PathBuf,
    port: u16,
    _shell: Child,
}

/// Returns the URL of a new, empty database, or the reason why there is no server.
pub(crate) fn database() -> Result<String, &'static String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let server = SERVER.as_ref()?;
    let name = format!("test{}", COUNT.fetch_add(1, Relaxed));
    let (bin, port) = (&server.bin, server.port);
    // Several at once are refused: they copy one template.
    let mut made = Command::new(bin.join("psql"));
    made.args(["-qXh127.0.0.1", "-Ugodwit", "postgres", "-p"]);
    made.args([&port.to_string(), "-c", "SELECT pg_advisory_lock(1)", "-c"]);
    made.arg(format!("CREATE DATABASE {name}"));
    let made = made.stdout(Stdio::null()).status().unwrap();
    assert!(made.success(), "CREATE DATABASE {name}");
    Ok(format!("postgres://godwit@127.0.0.1:{port}/{name}"))
}

const SCRIPT: &str = r#"
"$0/initdb" -D "$1/data" -A trust -U godwit --no-sync -E UTF8 --locale=C >/dev/null || exit 1
"$0/postgres" -D "$1/data" -h 127.0.0.1 -p "$2" -k "$1" -c fsync=off -c max_connections=200 & server=$!
cat >/dev/null
kill -QUIT $server; wait $server; rm -rf "$1"
"#;

impl Server {
    fn start() -> Result<Self, String> {
        let bin = bin().ok_or("there is no postgres here; tests/peers/install gets one")?;
        let mut told = String::new();
        for _ in 0..5 {
            let free = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
            let port = free.local_addr().map_err(|error| error.to_string())?.port();
            drop(free);
            let dir = std::env::temp_dir().join(format!("godwit-pg-{}-{port}", std::process::id()));
            std::fs::create_dir(&dir).map_err(|error| error.to_string())?;
            let mut shell = match user()? {
                None => Command::new("sh"),
                Some(id) => {
                    chown(&dir, Some(id), Some(id)).map_err(|error| error.to_string())?;
                    let mut shell = Command::new("setpriv");
                    let id = id.to_string();
                    shell.args(["--reuid", &id, "--regid", &id, "--clear-groups", "sh"]);
                    shell
                }
            };
            shell
                .args(["-c", SCRIPT])
                .arg(&bin)
                .arg(&dir)
                .arg(port.to_string());
            shell
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::piped());
            let mut shell = shell
                .current_dir(&dir)
                .spawn()
                .map_err(|error| error.to_string())?;
            let mut said = BufReader::new(shell.stderr.take().unwrap());
            let mut line = String::new();
            while said.read_line(&mut line).unwrap_or(0) > 0 {
                if line.contains("ready to accept connections") {
                    thread::spawn(move || said.read_to_end(&mut Vec::new()));
                    return Ok(Self {
                        bin,
                        port,
                        _shell: shell,
                    });
                }
                told.push_str(&std::mem::take(&mut line));
            }
        }
        Err(format!("postgres does not start: {told}"))
    }
}

/// Returns the user of the server; `None`: it is ours.
fn user() -> Result<Option<u32>, String> {
    use std::os::unix::fs::MetadataExt;
    let own = std::fs::metadata("/proc/self").map_err(|error| error.to_string())?;
    Ok((own.uid() == 0).then_some(NOBODY))
}

const NOBODY: u32 = 65534;

/// Finds the programs of the newest server.
fn bin() -> Option<PathBuf> {
    let all = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let all = all.filter_map(|one| Some(one.ok()?.path().join("bin")));
    let debian = all.filter(|bin| bin.join("postgres").exists()).max();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).find(|bin| bin.join("initdb").exists());
    debian
        .or(in_path)
        .filter(|bin| Path::new(bin).join("psql").exists())
}
