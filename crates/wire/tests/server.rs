//! The dialogues in `transcripts/server`, against the pure session.

#![allow(clippy::unwrap_used)]

use godwit_core::{Hashing, Kind};
use godwit_wire::{
    base64,
    server::{
        Ask, Change, FtpAnswer, FtpOutcome, Give, ListedKind, ListedStat, Mechanism, Profile,
        Refusal, Removed, Session, SessionStep, UploadPlace, Want, Welcome,
    },
    shield::{Cover, Guard, Spoiled},
    transcript::{Spoken, SpokenBy, parse},
};
use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    time::Duration,
};

#[path = "common/turned.rs"]
mod turned;
use turned::Turned;

#[test]
fn session_holds_written_dialogues() {
    assert!(hold_dialogues_in("server") >= 8);
}

#[test]
fn shielded_dialogues_match_pure_session() {
    assert!(hold_dialogues_in("guarded") >= 3);
}

fn hold_dialogues_in(folder: &str) -> usize {
    let mut count = 0;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/transcripts")
        .join(folder);
    for file in std::fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut talk = Talk::with(folder.ends_with("guarded"));
        for line in parse(&text).unwrap() {
            talk.follow(&line, &path.display().to_string());
        }
        assert!(
            talk.said.is_empty(),
            "{}: unexpected {:?}",
            path.display(),
            talk.said
        );
        count += 1;
    }
    count
}

#[test]
fn commands_before_proof_are_not_obeyed() {
    let mut talk = Talk::with(true);
    talk.session.on_bytes(b"AUTH GSSAPI\r\n");
    talk.drive();
    let token = base64::encode(b"me");
    let ahead = format!("ADAT {token}\r\nUSER writer\r\nPASS x\r\n");
    talk.session.on_bytes(ahead.as_bytes());
    talk.drive();
    assert!(talk.closed);
    assert!(talk.session.spoiled().is_some());
    assert!(
        talk.said.back().unwrap().starts_with("235 "),
        "{:?}",
        talk.said
    );
}

fn under_tls() -> Session {
    let mut session = Session::new(Profile {
        offers_tls: true,
        ..Profile::default()
    });
    session.on_bytes(b"AUTH TLS\r\n");
    begin_tls(&mut session);
    assert_eq!(session.poll(), None);
    let said = String::from_utf8(std::mem::take(session.output())).unwrap();
    assert!(said.ends_with("\r\n234 AUTH TLS: begin.\r\n"), "{said}");
    session
}

/// A guard of the whole flow, which leaves empty input empty.
#[derive(Debug, Default)]
struct Around(Turned);

impl Guard for Around {
    fn wrap(&mut self, plain: &[u8]) -> Result<Vec<u8>, Spoiled> {
        match plain {
            [] => Ok(Vec::new()),
            plain => self.0.wrap(plain),
        }
    }

    fn unwrap(&mut self, wrapped: &[u8]) -> Result<Vec<u8>, Spoiled> {
        self.0.unwrap(wrapped)
    }
}

fn begin_tls(session: &mut Session) {
    let wanted = Ask::Authenticate { by: Mechanism::Tls };
    assert_eq!(session.poll(), Some(SessionStep::Ask(wanted)));
    session.guard_with(Box::new(Around::default()));
    session.on_answer(FtpAnswer::Done);
}

#[test]
fn clear_commands_after_auth_are_refused() {
    for ahead in [
        "USER writer\r\nPASS x\r\n",
        "USER wri",
        "\r\nNOOP\r\n",
        "\u{16}",
    ] {
        let mut session = Session::new(Profile {
            offers_tls: true,
            ..Profile::default()
        });
        session.on_bytes(format!("AUTH TLS\r\n{ahead}").as_bytes());
        begin_tls(&mut session);
        assert_eq!(session.poll(), Some(SessionStep::Close), "{ahead:?}");
        let said = String::from_utf8(session.output().clone()).unwrap();
        assert!(said.contains("\r\n421 Something came in clear"), "{said}");
        assert!(!said.contains("\r\n234"), "{said}");
    }
}

#[test]
fn tls_session_has_two_levels() {
    let mut session = under_tls();
    let (mut client, mut ours) = (Turned::default(), Turned::default());
    let mut ask = |session: &mut Session, line: &str| {
        let sealed = client.wrap(format!("{line}\r\n").as_bytes()).unwrap();
        session.on_bytes(&sealed);
        while let Some(step) = session.poll() {
            match step {
                SessionStep::Ask(Ask::Login { user, .. }) => {
                    let welcome = Welcome {
                        user,
                        may_write: true,
                        home: PathBuf::new(),
                    };
                    session.on_answer(FtpAnswer::Welcome(welcome));
                }
                other => panic!("{line}: {other:?}"),
            }
        }
        let said = ours.unwrap(&std::mem::take(session.output())).unwrap();
        String::from_utf8(said).unwrap()
    };
    for (line, begins) in [
        ("PBSZ 0", "200 PBSZ=0"),
        ("PROT S", "536 "),
        ("PROT P", "200 "),
        ("AUTH TLS", "503 "),
        ("AUTH GSSAPI", "503 "),
        ("ADAT bWU=", "503 "),
        ("CCC", "534 "),
        ("USER writer", "331 "),
        ("PASS x", "230 "),
        ("DCAU A", "504 "),
        ("PBSZ 16384", "200 PBSZ=0"),
        ("PROT E", "536 "),
        ("PROT C", "200 "),
        ("PROT P", "200 "),
        ("REIN", "502 "),
    ] {
        let said = ask(&mut session, line);
        assert!(said.starts_with(begins), "{line}: {said}");
    }
}

#[test]
fn password_is_refused_in_clear() {
    let mut session = Session::new(Profile {
        passwords_need_tls: true,
        ..Profile::default()
    });
    session.on_bytes(b"USER alice\r\nPASS secret\r\nUSER anonymous\r\n");
    assert_eq!(session.poll(), None);
    let said = String::from_utf8(session.output().clone()).unwrap();
    let codes: Vec<&str> = said.lines().map(|line| &line[..3]).collect();
    assert_eq!(codes, ["220", "530", "503", "331"]);
    assert!(said.contains("say AUTH TLS first"), "{said}");
}

#[test]
fn wrapped_abort_is_recognized() {
    use godwit_wire::server::Urgent;
    let mut talk = Talk::with(true);
    for line in ["AUTH GSSAPI\r\n", "ADAT bWU=\r\n"] {
        talk.session.on_bytes(line.as_bytes());
        talk.drive();
    }
    for line in ["USER anonymous", "PASS ", "EPSV", "RETR f1", "NOOP", "ABOR"] {
        let sealed = talk.sealed(format!("{line}\r\n").into_bytes());
        talk.session.on_bytes(&sealed);
        talk.drive();
    }
    assert_eq!(talk.session.urgent(), Some(Urgent::Abort));
}

#[test]
fn many_commands_may_be_sent_ahead() {
    let mut talk = Talk::new();
    let all = "USER anonymous\r\nPASS x\r\n".to_owned() + &"NOOP\r\nSIZE f1\r\n".repeat(200);
    talk.session.on_bytes(all.as_bytes());
    talk.drive();
    let ok = talk
        .said
        .iter()
        .filter(|line| line.starts_with("213 6"))
        .count();
    assert_eq!(ok, 200);
    assert!(talk.session.wants_bytes());
}

#[test]
fn impatient_client_is_not_read_forever() {
    let mut session = Session::new(Profile {
        pipeline_max: 64,
        ..Profile::default()
    });
    session.on_bytes(&b"NOOP\r\n".repeat(64));
    assert!(!session.wants_bytes());
}

/// A session that has logged in and listens, and is about to ask for a transfer.
fn begun(transfer: &str) -> Session {
    let mut session = Session::new(Profile::default());
    session.on_bytes(
        format!("USER writer\r\nPASS x\r\nSITE CLIENTINFO x\r\nEPSV\r\n{transfer}\r\n").as_bytes(),
    );
    let answers = [
        FtpAnswer::Welcome(Welcome {
            user: "writer".into(),
            may_write: true,
            home: PathBuf::new(),
        }),
        FtpAnswer::Listening(vec!["127.0.0.1:2000".parse().unwrap()]),
    ];
    for answer in answers {
        assert!(matches!(session.poll(), Some(SessionStep::Ask(_))));
        session.on_answer(answer);
    }
    session
}

#[test]
fn login_begins_at_home() {
    let mut session = Session::new(Profile::default());
    session.on_bytes(b"USER me\r\nPASS x\r\nPWD\r\nCWD /\r\nSIZE ~/f\r\n");
    assert!(matches!(session.poll(), Some(SessionStep::Ask(_))));
    session.on_answer(FtpAnswer::Welcome(Welcome {
        user: "me".into(),
        may_write: true,
        home: "home/me".into(),
    }));
    assert!(matches!(
        session.poll(),
        Some(SessionStep::Ask(Ask::Stat { .. }))
    ));
    session.on_answer(FtpAnswer::Stat(stat(ListedKind::Directory, 0)));
    let path = "home/me/f".into();
    assert_eq!(session.poll(), Some(SessionStep::Ask(Ask::Size { path })));
    let said = String::from_utf8(session.output().clone()).unwrap();
    assert!(said.contains("257 \"/home/me\" "), "{said}");
}

#[test]
fn abort_and_status_work_during_transfer() {
    use godwit_wire::server::Urgent;
    let mut session = begun("RETR f1");
    assert!(matches!(
        session.poll(),
        Some(SessionStep::Ask(Ask::Retrieve { .. }))
    ));
    session.on_open(false);
    assert_eq!(session.urgent(), None);
    session.on_bytes(b"STAT\r\n");
    assert_eq!(session.urgent(), Some(Urgent::Status));
    session.on_status(17);
    assert_eq!(session.urgent(), None);
    // A status behind other commands waits; an abort does not.
    session.on_bytes(b"RETR f1\r\nSTAT\r\n");
    assert_eq!(session.urgent(), None);
    session.on_bytes(b"\xff\xf4\xff\xf2ABOR\r\n");
    assert_eq!(session.urgent(), Some(Urgent::Abort));
    session.output().clear();
    session.on_answer(FtpAnswer::Failed(Refusal::of_kind(
        Kind::Canceled,
        "Aborted.",
    )));
    assert_eq!(session.poll(), None);
    let said = String::from_utf8(session.output().clone()).unwrap();
    let codes: Vec<&str> = said.lines().map(|line| &line[..4]).collect();
    assert_eq!(codes, ["426 ", "426 ", "426 ", "226 "]);
}

#[test]
fn abort_cancels_commands_sent_ahead() {
    let mut talk = Talk::new();
    talk.session
        .on_bytes(b"USER writer\r\nPASS x\r\nMKD d\r\nNOOP\r\nCWD /\r\nABOR\r\nNOOP\r\n");
    talk.drive();
    let codes: Vec<&str> = talk.said.iter().map(|line| &line[..3]).collect();
    assert_eq!(
        codes,
        ["220", "331", "230", "426", "426", "426", "226", "200"]
    );
}

#[test]
fn rename_without_name_forgets_its_source() {
    let mut talk = Talk::new();
    let lines = b"USER writer\r\nPASS x\r\nRNFR f1\r\nRNTO\r\nRNTO f2\r\n";
    talk.session.on_bytes(lines);
    talk.drive();
    let codes: Vec<&str> = talk.said.iter().map(|line| &line[..3]).collect();
    assert_eq!(codes[3..], ["350", "501", "503"]);
}

#[test]
fn a_full_disk_is_met_in_write() {
    let mut session = begun("STOR f1");
    assert!(matches!(
        session.poll(),
        Some(SessionStep::Ask(Ask::Store { .. }))
    ));
    session.on_open(false);
    session.on_answer(FtpAnswer::Failed(Refusal::of_kind(
        Kind::NoSpace,
        "No space left on device",
    )));
    let said = String::from_utf8(session.output().clone()).unwrap();
    assert!(said.contains("Cannot write it to its end\r\n"), "{said}");
}

#[test]
fn foreign_protocol_is_refused() {
    let mut talk = Talk::new();
    talk.session.on_bytes(&b"GET / HTTP/1.1\r\n".repeat(100));
    talk.drive();
    assert!(talk.closed);
    assert!(talk.said.back().unwrap().starts_with("421 "));
}

/// A session, and a small world for it.
struct Talk {
    session: Session,
    world: World,
    said: VecDeque<String>,
    received: Vec<u8>,
    sent: Option<Vec<u8>>,
    open: Option<(Want, PathBuf)>,
    give: Option<(Give, PathBuf)>,
    closed: bool,
    /// The client's, once it proved who it is.
    guard: Option<Turned>,
    offers_gsi: bool,
}

impl Talk {
    fn new() -> Self {
        Self::with(false)
    }

    fn with(offers_gsi: bool) -> Self {
        let mut talk = Self {
            guard: None,
            offers_gsi,
            session: Session::new(Profile {
                offers_gssapi: offers_gsi,
                ..Profile::default()
            }),
            world: World::new(),
            said: VecDeque::new(),
            received: Vec::new(),
            sent: None,
            open: None,
            give: None,
            closed: false,
        };
        talk.drive();
        talk
    }

    fn follow(&mut self, line: &Spoken, at: &str) {
        match line.by {
            SpokenBy::Client => {
                assert!(self.said.is_empty(), "{at}: unexpected {:?}", self.said);
                let line = [line.bytes().as_slice(), b"\r\n"].concat();
                let sealed = self.sealed(line);
                self.session.on_bytes(&sealed);
                self.drive();
            }
            SpokenBy::Bare => {
                assert!(!self.closed, "{at}: closed already");
                self.session
                    .on_bytes(&[line.bytes().as_slice(), b"\r\n"].concat());
                self.drive();
                assert!(self.closed && self.said.is_empty(), "{at}: {:?}", self.said);
                assert!(self.session.spoiled().is_some(), "{at}");
            }
            SpokenBy::Server => {
                let said = self.said.pop_front();
                let said = said.unwrap_or_else(|| panic!("{at}: {line}: silence"));
                assert!(line.is_said_by(&said), "{at}:\n wanted {line}\n but {said}");
            }
            SpokenBy::Down => {
                self.transfer();
                assert_eq!(self.received, line.bytes(), "{at}: {line}");
            }
            SpokenBy::Up => {
                self.sent = Some(line.bytes());
                self.transfer();
            }
            SpokenBy::Want | SpokenBy::Result => panic!("{at}: a server wants nothing: {line}"),
        }
    }

    fn drive(&mut self) {
        while let Some(step) = self.session.poll() {
            match step {
                SessionStep::Close => {
                    self.closed = true;
                    break;
                }
                SessionStep::Ask(Ask::Retrieve { path, want, .. }) => {
                    match self.world.file(&path) {
                        Ok(_) => {
                            self.open = Some((want, path));
                            break;
                        }
                        Err(failure) => self.session.on_answer(FtpAnswer::Failed(failure)),
                    }
                }
                SessionStep::Ask(Ask::Store { path, give, .. }) => {
                    self.give = Some((give, path));
                    break;
                }
                SessionStep::Ask(Ask::List { path, listing, .. }) => {
                    self.received.clear();
                    for (name, stat) in self.world.list(&path) {
                        let now = Duration::from_secs(1_600_000_000);
                        listing.write(&name, &stat, now, &mut self.received);
                    }
                    self.session.on_open(false);
                    self.session
                        .on_answer(FtpAnswer::Sent(FtpOutcome::default()));
                }
                SessionStep::Ask(Ask::Show { path, listing }) => {
                    let mut all = vec![
                        (".".into(), stat(ListedKind::Current, 0)),
                        ("..".into(), stat(ListedKind::Parent, 0)),
                    ];
                    all.extend(self.world.list(&path));
                    for (name, stat) in all {
                        self.session
                            .on_entry(&listing, &name, &stat, Duration::ZERO);
                    }
                    self.session.on_answer(FtpAnswer::Done);
                }
                SessionStep::Ask(Ask::Authenticate { .. }) if !self.offers_gsi => {
                    let failure = Refusal::of_login("there is no certificate.");
                    self.session.on_answer(FtpAnswer::Failed(failure));
                }
                SessionStep::Ask(Ask::Prove { token }) => {
                    let answer = match token.as_slice() {
                        b"hello" => FtpAnswer::Token(b"who?".into()),
                        b"me" | b"me, ahead" => {
                            self.session.guard_with(Box::new(Turned::default()));
                            let token = (token == b"me, ahead").then(|| b"fine".into());
                            let cover = Cover::Proofs;
                            FtpAnswer::Proved { token, cover }
                        }
                        _ => FtpAnswer::Failed(Refusal::of_login("Who is that?")),
                    };
                    self.session.on_answer(answer);
                }
                SessionStep::Ask(ask) => {
                    let answer = self.world.answer(ask);
                    self.session.on_answer(answer);
                }
            }
        }
        self.hear();
    }

    /// The data connection is there.
    fn transfer(&mut self) {
        if let Some((want, path)) = self.open.take() {
            let bytes = self.world.file(&path).unwrap();
            let start = want.part.start + want.have.prefix();
            let end = want.part.end.min(bytes.len() as u64);
            self.received = bytes[start as usize..end as usize].to_vec();
        } else if let Some((give, path)) = self.give.take() {
            let mut bytes = match give.place {
                UploadPlace::End => self.world.file(&path).unwrap(),
                _ => Vec::new(),
            };
            bytes.extend(self.sent.take().unwrap());
            self.world.0.insert(path, Node::File(bytes, TIME));
        } else {
            return; // a listing, which is there already
        }
        self.session.on_open(false);
        self.session
            .on_answer(FtpAnswer::Sent(FtpOutcome::default()));
        self.drive();
    }

    fn sealed(&mut self, line: Vec<u8>) -> Vec<u8> {
        match &mut self.guard {
            None => line,
            Some(guard) => {
                let text = base64::encode(&guard.wrap(&line).unwrap());
                format!("ENC {text}\r\n").into_bytes()
            }
        }
    }

    /// Rows of a reply end as those of GCT do: the last one with a blank.
    fn opened(guard: &mut Turned, output: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        for row in output.split(|&b| b == b'\n').filter(|row| !row.is_empty()) {
            let (head, text) = row.split_at(4);
            let row = guard.unwrap(&base64::decode(text).unwrap()).unwrap();
            let is_last = row[..3].is_ascii() && row[0].is_ascii_digit() && row[3] == b' ';
            assert_eq!(head, if is_last { b"632 " } else { b"632-" });
            plain.extend(row);
        }
        plain
    }

    fn hear(&mut self) {
        let mut output = std::mem::take(self.session.output());
        if let Some(guard) = &mut self.guard {
            output = Self::opened(guard, &output);
        }
        if output.starts_with(b"235 ") {
            self.guard = Some(Turned::default());
        }
        let text = String::from_utf8_lossy(&output);
        self.said
            .extend(text.split_terminator("\r\n").map(Into::into));
    }
}

/// The files that README.md in `transcripts` tells of.
struct World(BTreeMap<PathBuf, Node>);

#[derive(Clone)]
enum Node {
    File(Vec<u8>, Duration),
    Directory,
    Link(PathBuf),
}

impl World {
    fn new() -> Self {
        let nodes = [
            ("", Node::Directory),
            ("f1", Node::File(b"hello\n".into(), TIME)),
            ("sp ace", Node::File(b"".into(), TIME)),
            ("sub", Node::Directory),
            ("sub/deep", Node::Directory),
            ("sub/deep/b", Node::File(b"b\n".into(), TIME)),
            ("empty", Node::Directory),
        ];
        Self(
            nodes
                .into_iter()
                .map(|(path, node)| (path.into(), node))
                .collect(),
        )
    }

    fn file(&self, path: &Path) -> Result<Vec<u8>, Refusal> {
        match self.0.get(path) {
            Some(Node::File(bytes, _)) => Ok(bytes.clone()),
            Some(Node::Link(to)) => self.file(to),
            Some(Node::Directory) => Err(Refusal::of_kind(Kind::IsDirectory, "Is a directory")),
            None => Err(missing()),
        }
    }

    fn stat(&self, path: &Path) -> Result<ListedStat, Refusal> {
        match self.0.get(path) {
            Some(Node::File(bytes, time)) => Ok(ListedStat {
                modify: Some(*time),
                ..stat(ListedKind::File, bytes.len())
            }),
            Some(Node::Link(to)) => self.stat(to),
            Some(Node::Directory) => Ok(stat(ListedKind::Directory, 4096)),
            None => Err(missing()),
        }
    }

    fn list(&self, path: &Path) -> Vec<(PathBuf, ListedStat)> {
        let inside = self.0.keys().filter(|p| p.parent() == Some(path));
        inside
            .map(|p| (p.file_name().unwrap().into(), self.stat(p).unwrap()))
            .collect()
    }

    fn answer(&mut self, ask: Ask) -> FtpAnswer {
        self.try_answer(ask).unwrap_or_else(FtpAnswer::Failed)
    }

    fn try_answer(&mut self, ask: Ask) -> Result<FtpAnswer, Refusal> {
        Ok(match ask {
            Ask::Login { user, .. } => match user.as_str() {
                "anonymous" | "writer" => {
                    let may_write = user == "writer";
                    FtpAnswer::Welcome(Welcome {
                        user: "anonymous".into(),
                        may_write,
                        home: PathBuf::new(),
                    })
                }
                _ => return Err(Refusal::of_kind(Kind::Login, "No.")),
            },
            Ask::Listen { .. } => FtpAnswer::Listening(vec!["127.0.0.1:2000".parse().unwrap()]),
            Ask::Aim { to } if to.iter().any(|to| to.port() < 1024) => {
                return Err(Refusal::of_kind(Kind::Denied, "Not there."));
            }
            Ask::Stat { path } | Ask::Look { path } | Ask::Name { path } => {
                FtpAnswer::Stat(self.stat(&path)?)
            }
            Ask::Size { path } => FtpAnswer::Size(self.stat(&path)?.size),
            Ask::Hidden { .. } => FtpAnswer::Names(vec!["d/.godwit-0.part".into()]),
            Ask::Space { .. } => FtpAnswer::Space {
                total_bytes: 2,
                free_bytes: 1,
            },
            Ask::Flush { .. } => FtpAnswer::Done,
            Ask::Landed { .. } => return Err(missing()),
            Ask::Digest {
                path, by, range, ..
            } => {
                let bytes = self.file(&path)?;
                let range = range.unwrap_or(0..bytes.len() as u64);
                let mut hashing = Hashing::new(by);
                hashing.update(&bytes[range.start as usize..range.end as usize]);
                FtpAnswer::Digest(hashing.finish().hex())
            }
            Ask::MakeDir { path } => {
                if self.0.contains_key(&path) {
                    return Err(Refusal::of_kind(Kind::Exists, "File exists"));
                }
                self.0.insert(path, Node::Directory);
                FtpAnswer::Done
            }
            Ask::Remove { path, what } => {
                self.stat(&path)?;
                if what == Removed::Directory && !self.list(&path).is_empty() {
                    return Err(Refusal::of_kind(Kind::NotEmpty, "Directory not empty"));
                }
                self.0.retain(|p, _| !p.starts_with(&path));
                FtpAnswer::Done
            }
            Ask::Rename { from, to } => {
                let node = self.0.remove(&from).unwrap();
                self.0.insert(to, node);
                FtpAnswer::Done
            }
            Ask::Change { path, change } => {
                let Some(Node::File(bytes, time)) = self.0.get_mut(&path) else {
                    panic!()
                };
                match change {
                    Change::Length(length) => bytes.resize(length as usize, 0),
                    Change::Modify(modify) => *time = modify,
                    _ => {}
                }
                FtpAnswer::Done
            }
            Ask::Link { path, target } => {
                self.0.insert(path, Node::Link(target));
                FtpAnswer::Done
            }
            _ => FtpAnswer::Done,
        })
    }
}

fn stat(kind: ListedKind, size: usize) -> ListedStat {
    ListedStat {
        kind,
        size: size as u64,
        modify: Some(TIME),
        mode: Some(0o644),
        owner: None,
        group: None,
        owner_name: None,
        group_name: None,
        target: None,
        unique: None,
        touched: None,
    }
}

fn missing() -> Refusal {
    Refusal::of_kind(Kind::Missing, "No such file or directory")
}

const TIME: Duration = Duration::from_secs(1_577_882_096); // 2020-01-01 12:34:56
