//! Programs that bytes of files go through, on their way out (`ERET`) and in (`ESTO`).
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Client, PATIENCE, Scratch, Served, block, bytes, read_blocks, until};
use std::{
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Command, Stdio},
    time::Instant,
};

/// A node with modules, and a directory beside its export.
struct Reducing {
    served: Served,
    beside: Scratch,
}

impl Reducing {
    fn new() -> Self {
        Self::with("", &[])
    }

    /// With these settings, and more of the configuration file.
    fn with(more: &str, settings: &[(&'static str, &str)]) -> Self {
        let beside = Scratch::new();
        let file = beside.path().join("node.toml");
        let text = format!("{MODULES}{more}").replace("BESIDE", beside.path().to_str().unwrap());
        std::fs::write(&file, text).unwrap();
        let served = Served::configured(Scratch::new(), Some(&file), settings);
        Self { served, beside }
    }

    fn client(&self) -> Client {
        self.served.client()
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.beside.path().join(name)
    }
}

const MODULES: &str = r#"
[modules.first]
command = ["/usr/bin/head", "-c", "{}"]
parameters = "[0-9]"
about = "the first bytes, as many as told"

[modules.columns]
command = ["/usr/bin/awk", "{ print $2 }"]

[modules.pack]
command = ["/bin/gzip", "-c", "-n"]

[modules.unpack]
command = ["/bin/gzip", "-dc"]
direction = "write"

[modules.keep]
command = ["/bin/cat"]
direction = "write"

[modules.say]
command = ["/bin/sh", "-c", "echo \"$GODWIT_PARAMETERS\""]
parameters = "*"

[modules.fails]
command = ["/bin/sh", "-c", "head -c 100000; echo so far; echo 'the third column is missing' >&2; exit 3"]

[modules.refuses]
command = ["/bin/sh", "-c", "cat; echo 'that is no such file' >&2; exit 1"]
direction = "write"

[modules.sleeps]
command = ["/bin/sh", "-c", "echo begun; exec sleep 1000"]
seconds = 1

[modules.floods]
command = ["/bin/cat", "/dev/zero"]
out_bytes = 3000000

[modules.waits]
command = ["/bin/sh", "-c", "echo $$ >BESIDE/pid; sleep 1000 & echo $! >BESIDE/child; wait"]
confined = false
at_once = 1
"#;

/// Returns the output of a local program for these bytes.
fn made_here(program: &[&str], bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new(program[0])
        .args(&program[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    output.stdout
}

/// Asks for blocks on one connection, which this side makes; without a word of ours.
fn get_blocks(client: &mut Client, command: &str) -> (TcpStream, String) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    client.port(listener.local_addr().unwrap());
    client.send(command);
    let data = common::accept(&listener);
    (data, client.reply())
}

fn is_alive(id: &str) -> bool {
    match std::fs::read_to_string(format!("/proc/{}/stat", id.trim())) {
        Ok(stat) => !stat.contains(") Z "),
        Err(_) => false,
    }
}

#[test] //= GRIDFTP-70
fn stream_is_output_of_the_module() {
    let node = Reducing::new();
    let text: String = (0..100_000).map(|i| format!("{i} {} x\n", i * 7)).collect();
    node.served.put("table", text.as_bytes());
    let mut client = node.client();
    assert_eq!(
        client.get(r#"ERET first="5" table"#).unwrap(),
        &text.as_bytes()[..5]
    );
    let columns: String = (0..100_000).map(|i| format!("{}\n", i * 7)).collect();
    assert_eq!(
        client.get("ERET columns table").unwrap(),
        columns.as_bytes()
    );
    let packed = client.get("ERET pack table").unwrap();
    assert!(packed.len() < text.len() / 2);
    assert_eq!(made_here(&["gzip", "-dc"], &packed), text.as_bytes());
    // The old file is unchanged.
    assert_eq!(
        client.get("ERET P 2 3 table").unwrap(),
        &text.as_bytes()[2..5]
    );
}

#[test]
fn blocks_carry_offsets_and_end() {
    let node = Reducing::new();
    let file = bytes(3_000_000);
    node.served.put("file", &file);
    let mut client = node.client();
    client.ok("MODE E");
    let (mut data, begun) = get_blocks(&mut client, r#"ERET first="2500000" file"#);
    assert!(begun.starts_with("150"), "{begun}");
    let (blocks, announced) = read_blocks(&mut data);
    assert_eq!(announced, Some(1));
    let mut next = 0;
    for (offset, bytes) in &blocks {
        assert_eq!(*offset, next);
        next += bytes.len() as u64;
    }
    let all: Vec<u8> = blocks.into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert!(all == file[..2_500_000]);
    assert!(client.reply().starts_with("226"));
}

#[test]
fn godwit_clients_receive_size_and_digest() {
    let node = Reducing::new();
    node.served.put("file", &bytes(1000));
    let mut client = node.client();
    client.ok("OPTS GODWIT 1");
    client.ok("MODE E");
    let mut data = client.begin(r#"ERET first="10" file"#);
    read_blocks(&mut data);
    let told = client.reply();
    let digest = godwit_core::Digest::of(godwit_core::Algorithm::Blake3, &bytes(1000)[..10]);
    assert!(
        told.contains(&format!("GODWIT size=10;blake3={};", digest.hex())),
        "{told}"
    );
    assert!(!told.contains("modify"), "{told}");
}

#[test]
fn module_may_ignore_its_input() {
    let node = Reducing::new();
    node.served.put("file", &bytes(5_000_000));
    let mut client = node.client();
    let said = client.get(r#"ERET say="a b; $(rm -rf /) 'x' -z" file"#);
    assert_eq!(said.unwrap(), b"a b; $(rm -rf /) 'x' -z\n");
}

#[test]
fn only_modules_that_are_configured_run() {
    let node = Reducing::new();
    node.served.put("file", b"x");
    let mut client = node.client();
    let refused = client.get("ERET reduce file").unwrap_err();
    let names = "columns, fails, first, floods, pack, say, sleeps, waits for ERET";
    let wanted =
        format!("501 Unknown module reduce: there are {names}, and ERET P offset length name.");
    assert_eq!(refused, wanted);
    // Each on its own way only.
    for command in ["ERET keep file", "ERET /bin/cat file", "ERET cat file"] {
        client.passive();
        client.expect(command, "501");
    }
    client.passive();
    client.expect("ESTO first new", "501");
    assert!(!node.served.has("new"));
    let told = client.expect("SITE GODWIT MODULES", "250");
    assert!(
        told.contains("\n ERET first the first bytes, as many as told\n"),
        "{told}"
    );
    assert!(told.contains("\n ESTO unpack\n"), "{told}");
    let plain = Served::new();
    plain.put("file", b"x");
    let mut client = plain.client();
    client.passive();
    client.expect("ERET first file", "501");
    assert_eq!(client.ok("SITE GODWIT MODULES"), "250-Modules\n250 End");
}

#[test]
fn parameters_are_those_that_are_allowed() {
    let node = Reducing::new();
    node.served.put("file", b"hello");
    let mut client = node.client();
    for (command, why) in [
        (r#"ERET first="5k" file"#, "no k may stand there"),
        (r#"ERET first="-5" file"#, "begin with a dash"),
        (r#"ERET columns="2" file"#, "it takes none"),
    ] {
        let refused = client.get(command).unwrap_err();
        assert!(
            refused.starts_with("504") && refused.contains(why),
            "{refused}"
        );
    }
    assert_eq!(client.get(r#"ERET first="2" file"#).unwrap(), b"he");
}

#[test]
fn module_reads_no_unreadable_file() {
    let node = Reducing::new();
    std::fs::create_dir(node.served.file("directory")).unwrap();
    std::os::unix::fs::symlink(node.beside("node.toml"), node.served.file("out")).unwrap();
    let mut client = node.client();
    for (name, code) in [
        ("directory", "550"),
        ("missing", "550"),
        ("out", "553"),
        ("../x", "55"),
    ] {
        client.passive();
        client.expect(&format!("ERET pack {name}"), code);
    }
    let reading = Reducing::with("", &[("anonymous.access", "read")]);
    let mut client = reading.client();
    client.passive();
    client.expect("ESTO keep new", "550");
}

#[test]
fn module_sees_no_other_file() {
    let scratch = Scratch::new();
    let secret = scratch.path().join("secret");
    let more = format!(
        "[modules.peeks]\ncommand = [\"/bin/sh\", \"-c\", \"cat {0}; echo seen >{0}; cat\"]\n",
        secret.display()
    );
    let beside = Scratch::new();
    let file = beside.path().join("node.toml");
    std::fs::write(&file, more).unwrap();
    let served = Served::configured(scratch, Some(&file), &[]);
    served.put("secret", b"secret");
    served.put("file", b"file");
    assert_eq!(served.client().get("ERET peeks file").unwrap(), b"file");
    assert_eq!(served.bytes("secret"), b"secret");
}

#[test]
fn failed_module_breaks_the_stream() {
    let node = Reducing::new();
    node.served.put("file", &bytes(1_000_000));
    let mut client = node.client();
    let mut data = client.begin("ERET fails file");
    let end = client.reply();
    assert!(end.starts_with("426"), "{end}");
    assert!(
        end.ends_with("fails failed: the third column is missing (exit status 3)"),
        "{end}"
    );
    let error = data.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    // The session continues.
    assert_eq!(client.get(r#"ERET first="3" file"#).unwrap().len(), 3);
}

#[test]
fn failed_module_sends_no_end_of_file() {
    let node = Reducing::new();
    node.served.put("file", &bytes(1_000_000));
    for module in ["fails", "floods", "sleeps"] {
        let mut client = node.client();
        client.ok("SITE CLIENTINFO x");
        client.ok("MODE E");
        let (mut data, begun) = get_blocks(&mut client, &format!("ERET {module} file"));
        assert!(begun.starts_with("150"), "{begun}");
        let mut came = Vec::new();
        let mut some = [0; 100_000];
        while let Ok(count @ 1..) = data.read(&mut some) {
            came.extend_from_slice(&some[..count]);
        }
        let end = client.reply();
        assert!(
            end.starts_with("550-GlobusError: v=1 c=MODULE_FAILED"),
            "{end}"
        );
        let mut at = 0;
        while came.len() >= at + 17 {
            assert_eq!(came[at] & 0x48, 0, "{module}: an end was told");
            at += 17 + u64::from_be_bytes(came[at + 1..at + 9].try_into().unwrap()) as usize;
        }
    }
}

#[test]
fn module_above_limits_is_ended() {
    let node = Reducing::new();
    node.served.put("file", b"x");
    let mut client = node.client();
    for (module, why) in [
        ("sleeps", "sleeps was ended: it took longer than 1 s"),
        (
            "floods",
            "floods was ended: it made more than 3000000 bytes",
        ),
    ] {
        let mut data = client.begin(&format!("ERET {module} file"));
        let drained = std::thread::spawn(move || {
            let mut some = [0; 100_000];
            while let Ok(1..) = data.read(&mut some) {}
        });
        let end = client.reply();
        drained.join().unwrap();
        assert!(end.starts_with("426") && end.ends_with(why), "{end}");
    }
}

#[test]
fn client_disconnect_ends_module_and_children() {
    let node = Reducing::new();
    node.served.put("file", b"x");
    let mut client = node.client();
    let data = client.begin("ERET waits file");
    let told = |name: &str| std::fs::read_to_string(node.beside(name)).unwrap_or_default();
    until("two processes", || told("child").ends_with('\n'));
    let (shell, child) = (told("pid"), told("child"));
    assert!(is_alive(&shell) && is_alive(&child));
    // One at once is allowed.
    let mut second = node.client();
    second.passive();
    let busy = second.expect("ERET waits file", "450");
    assert!(busy.contains("1 of waits run already"), "{busy}");
    drop((client, data));
    until("an end of both", || !is_alive(&shell) && !is_alive(&child));
    // There is room for the next one.
    until("an end of the session", || {
        node.served.node().sessions() == 1
    });
    let _data = second.begin("ERET waits file");
    second.expect("ABOR", "426");
}

#[test]
fn abor_ends_it_and_nothing_looks_whole() {
    let node = Reducing::new();
    node.served.put("file", b"x");
    let mut client = node.client();
    let mut data = client.begin("ERET waits file");
    let began = Instant::now();
    client.send("ABOR");
    assert!(client.reply().starts_with("426"));
    assert!(client.reply().starts_with("226"));
    assert!(data.read_to_end(&mut Vec::new()).is_err());
    assert!(began.elapsed() < PATIENCE);
}

#[test] //= GRIDFTP-70
fn upload_becomes_output_of_module() {
    let node = Reducing::new();
    let file = bytes(3_000_000);
    let packed = made_here(&["gzip", "-c"], &file);
    let mut client = node.client();
    let end = client.put("ESTO unpack new", &packed);
    assert!(end.starts_with("226"), "{end}");
    assert!(node.served.bytes("new") == file);
    // In blocks that come in no order.
    client.ok("MODE E");
    let (front, back) = packed.split_at(1000);
    client.store_blocks("226", "ESTO unpack other", &[(1000, back), (0, front)]);
    assert!(node.served.bytes("other") == file);
    let left: Vec<_> = std::fs::read_dir(node.served.scratch.path())
        .unwrap()
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn upload_refused_by_module_changes_nothing() {
    let node = Reducing::new();
    node.served.put("old", b"as it was");
    let mut client = node.client();
    client.ok("SITE CLIENTINFO x");
    for command in ["ESTO refuses old", "ESTO unpack old"] {
        let end = client.put(command, b"this is not packed");
        assert!(
            end.starts_with("550-GlobusError: v=1 c=MODULE_FAILED"),
            "{end}"
        );
    }
    let end = client.put("ESTO refuses new", b"x");
    assert!(
        end.contains("refuses failed: that is no such file (exit status 1)"),
        "{end}"
    );
    assert_eq!(node.served.bytes("old"), b"as it was");
    let left: Vec<_> = std::fs::read_dir(node.served.scratch.path())
        .unwrap()
        .collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn an_upload_goes_through_only_whole() {
    let node = Reducing::new();
    let mut client = node.client();
    client.ok("SITE CLIENTINFO x");
    client.ok("ALLO 10");
    let end = client.put("ESTO keep new", b"hello");
    assert!(end.starts_with("426"), "{end}");
    client.ok("MODE E");
    let (_, end) = client.put_blocks("ESTO keep new", &[(0, b"hel"), (4, b"o")]);
    assert!(end.starts_with("426 1 of 5 bytes are missing"), "{end}");
    client.ok("REST 0-2");
    client.passive();
    client.expect("ESTO keep new", "501");
    client.ok("MODE S");
    let digest = godwit_core::Digest::of(godwit_core::Algorithm::Md5, b"hello").hex();
    client.ok(&format!("SCKS MD5 {digest}"));
    let end = client.put("ESTO keep new", b"hullo");
    assert!(end.contains("c=INCORRECT_CHECKSUM"), "{end}");
    assert!(!node.served.has("new"));
    client.ok(&format!("SCKS MD5 {digest}"));
    assert!(client.put("ESTO keep new", b"hello").starts_with("226"));
    assert_eq!(node.served.bytes("new"), b"hello");
    assert!(client.put("ESTO keep empty", b"").starts_with("226"));
    assert_eq!(node.served.bytes("empty"), b"");
}

#[test]
fn upload_of_killed_client_is_dropped() {
    let node = Reducing::new();
    let mut client = node.client();
    let mut data = client.begin("ESTO keep new");
    data.write_all(b"hello").unwrap();
    drop(client);
    drop(data);
    until("an end of the session", || {
        node.served.node().sessions() == 0
    });
    let left: Vec<_> = std::fs::read_dir(node.served.scratch.path())
        .unwrap()
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn blocks_of_an_upload_need_their_end() {
    let node = Reducing::new();
    let mut client = node.client();
    client.ok("MODE E");
    let mut data = client.begin("ESTO keep new");
    data.write_all(&block(0, 5, 0)).unwrap();
    data.write_all(b"hello").unwrap();
    drop(data);
    let (_, end) = client.last_reply();
    assert!(end.starts_with("426"), "{end}");
    assert!(!node.served.has("new"));
}

#[test]
fn rights_are_asked_as_without_a_module() {
    let beside = Scratch::new();
    let rules = beside.path().join("rights.toml");
    let text = "[[rule]]\nwho = \"anonymous\"\nmay = [\"read\", \"create\"]\nunder = \"/open\"\n";
    std::fs::write(&rules, text).unwrap();
    let node = Reducing::with("", &[("node.rights", rules.to_str().unwrap())]);
    for directory in ["open", "closed"] {
        std::fs::create_dir(node.served.file(directory)).unwrap();
        node.served.put(&format!("{directory}/file"), b"hello");
    }
    std::os::unix::fs::symlink("../closed/file", node.served.file("open/way")).unwrap();
    let mut client = node.client();
    client.ok("SITE CLIENTINFO x");
    assert_eq!(client.get(r#"ERET first="2" open/file"#).unwrap(), b"he");
    assert!(client.put("ESTO keep open/new", b"x").starts_with("226"));
    for command in [
        r#"ERET first="2" closed/file"#,
        r#"ERET first="2" open/way"#,
        "ESTO keep open/file",
        "ESTO keep closed/new",
    ] {
        client.passive();
        let refused = client.expect(command, "550");
        assert!(
            refused.contains("PERMISSION_DENIED"),
            "{command}: {refused}"
        );
    }
    assert_eq!(node.served.bytes("open/file"), b"hello");
}
