//! The dialogues of `wire`, against a node on a socket.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Client, Served, commas, data_to};
use godwit_wire::transcript::{Spoken, SpokenBy, parse};
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
        let text = text
            .replace("USER writer", "USER anonymous")
            .replace("for writer", "for anonymous");
        for line in parse(&text).unwrap() {
            talk.follow(&line, &path.display().to_string());
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
    fn follow(&mut self, line: &Spoken, at: &str) {
        match line.by {
            SpokenBy::Client => {
                let bytes = line.bytes();
                self.client.raw(&[bytes.as_slice(), b"\r\n"].concat());
            }
            SpokenBy::Server => {
                let said = self.client.line();
                assert!(line.is_said_by(&said), "{at}:\n wanted {line}\n but {said}");
                self.learn(&said);
            }
            SpokenBy::Down => {
                let mut found = Vec::new();
                self.connect().read_to_end(&mut found).unwrap();
                assert_eq!(found, line.bytes(), "{at}: {line}");
                self.data = None;
            }
            SpokenBy::Up => {
                self.connect().write_all(&line.bytes()).unwrap();
                self.data = None;
            }
            SpokenBy::Want | SpokenBy::Result | SpokenBy::Bare => {
                panic!("{at}: a server wants nothing: {line}")
            }
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

/// Makes the files that README.md in `transcripts` lists.
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
