//! The dialogues of `wire`, against a node on a socket.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Client, Served, commas, data_to};
use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    time::{Duration, SystemTime},
};

#[test]
fn dialogues_are_held_by_a_node() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/transcripts/server");
    let mut count = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        // Who writes is anonymous too; what he may is the node's to say.
        let access = if text.contains("USER writer") {
            "write"
        } else {
            "read"
        };
        let served = Served::with(&[("anonymous.access", access)]);
        lay_out(&served);
        let mut talk = Talk {
            client: Client::connect(served.address),
            at: None,
            data: None,
        };
        for (i, line) in text.lines().enumerate() {
            talk.follow(line, &format!("{}:{}", path.display(), i + 1));
        }
        count += 1;
    }
    assert!(count >= 8, "only {count} dialogues were found");
}

struct Talk {
    client: Client,
    at: Option<SocketAddr>,
    data: Option<TcpStream>,
}

impl Talk {
    fn follow(&mut self, line: &str, at: &str) {
        if line.is_empty() || line.starts_with('#') {
            return;
        }
        let (mark, text) = (&line[..2], line.get(3..).unwrap_or(""));
        match mark {
            "C:" => {
                let text = text.replace("USER writer", "USER anonymous");
                self.client
                    .raw(&[unescaped(&text).as_slice(), b"\r\n"].concat());
            }
            "S:" => {
                let said = self.client.line();
                let text = text.replace("for writer", "for anonymous");
                assert!(
                    matches(&text, &said),
                    "{at}:\n wanted {text}\n but    {said}"
                );
                self.learn(&said);
            }
            "D<" => {
                let mut found = Vec::new();
                self.connect().read_to_end(&mut found).unwrap();
                assert_eq!(found, unescaped(text), "{at}");
                self.data = None;
            }
            "D>" => {
                self.connect().write_all(&unescaped(text)).unwrap();
                self.data = None;
            }
            _ => panic!("{at}: what is {line:?}?"),
        }
    }

    fn learn(&mut self, said: &str) {
        if said.starts_with("227") {
            self.at = Some(commas(said));
        } else if said.starts_with("229 Entering Ext") {
            let port = said.split('|').nth(3).unwrap().parse().unwrap();
            self.at = Some(SocketAddr::new(common::HERE, port));
        }
    }

    fn connect(&mut self) -> &mut TcpStream {
        let at = self.at.expect("an address was told");
        self.data.get_or_insert_with(|| data_to(at))
    }
}

/// What README.md in `transcripts` tells of.
fn lay_out(served: &Served) {
    fs::create_dir_all(served.file("sub/deep")).unwrap();
    fs::create_dir(served.file("empty")).unwrap();
    for (name, bytes) in [("f1", "hello\n"), ("sp ace", ""), ("sub/deep/b", "b\n")] {
        served.put(name, bytes.as_bytes());
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_882_096);
        let file = File::options().write(true).open(served.file(name)).unwrap();
        file.set_modified(time).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        file.set_permissions(mode).unwrap();
    }
}

/// `*` in the pattern stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut open = false;
    for part in parts {
        let Some(at) = rest.find(part.trim_end()) else {
            return false;
        };
        rest = &rest[at + part.trim_end().len()..];
        open = part.trim_end().is_empty();
    }
    open || rest.is_empty()
}

fn unescaped(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next().unwrap() {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'0' => 0,
            other => other,
        });
    }
    bytes
}
