//! Runs the written dialogues against the client, which is a value here: no socket.

#![allow(clippy::unwrap_used)] // it is all test

use godwit_core::Algorithm;
use godwit_wire::{address::Passive, marker::Marker};
use godwit_wire::{
    base64,
    client::{ProofPace, Token},
    shield::{Guard, Spoiled},
};
use godwit_wire::{
    client::{
        self, Credentials, Dialogue, FtpPeer, HeardReply, Line, LinesAhead, Looked, Refusal, Talk,
        Unspeakable,
    },
    reply::Reply,
    time::Written,
    transcript::{Spoken, SpokenBy, parse},
};
use std::{collections::VecDeque, fs, path::Path};
use turned::Turned;

#[path = "common/turned.rs"]
mod turned;

/// Checks the client's commands, and answers with the file's replies.
struct Script {
    left: VecDeque<Spoken>,
    dialogue: Dialogue,
    /// The server's guard, after the proof.
    guard: Option<Turned>,
    /// The markers that arrived during the transfer.
    news: Vec<Marker>,
}

#[derive(Debug)]
struct Broken(String);

impl From<godwit_wire::Error> for Broken {
    fn from(error: godwit_wire::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<Unspeakable> for Broken {
    fn from(error: Unspeakable) -> Self {
        Self(error.to_string())
    }
}

impl Script {
    fn next_of(&mut self, by: SpokenBy) -> Option<Spoken> {
        self.left.pop_front_if(|spoken| spoken.by == by)
    }

    fn sealed(&mut self, row: &str) -> String {
        let row = format!("{row}\r\n");
        let Some(guard) = &mut self.guard else {
            return row;
        };
        let text = base64::encode(&guard.wrap(row.as_bytes()).unwrap());
        let is_last = row.as_bytes()[0].is_ascii_digit() && row.as_bytes()[3] == b' ';
        format!("632{}{text}\r\n", if is_last { ' ' } else { '-' })
    }

    fn opened(&mut self, line: &str) -> String {
        let Some(guard) = &mut self.guard else {
            return line.into();
        };
        let text = line.strip_prefix("ENC ").unwrap();
        let plain = guard
            .unwrap(&base64::decode(text.as_bytes()).unwrap())
            .unwrap();
        String::from_utf8(plain)
            .unwrap()
            .strip_suffix("\r\n")
            .unwrap()
            .into()
    }

    /// Proves an identity whose tokens are words.
    fn prove(&mut self) -> String {
        let mut step = |token: &[u8]| match token {
            b"who?" => Ok(Token {
                bytes: Some(b"me".into()),
                done: true,
            }),
            b"fine" => Ok(Token {
                bytes: None,
                done: true,
            }),
            _ => Err(Broken("no such word".into())),
        };
        match client::authenticate(
            self,
            "GSSAPI",
            b"hello".into(),
            ProofPace::StepByStep,
            &mut step,
        ) {
            Ok(Ok(())) => {
                self.dialogue.protect(Box::new(Turned::default())).unwrap();
                self.guard = Some(Turned::default());
                "proved".into()
            }
            Ok(Err(refusal)) => refused(&refusal),
            Err(Broken(why)) => why,
        }
    }

    fn final_reply(&mut self) -> Result<Reply, Broken> {
        loop {
            match self.dialogue.poll_heard()? {
                Some(HeardReply { reply, ticket }) if reply.is_final() => {
                    assert!(ticket.is_some());
                    return Ok(reply);
                }
                Some(HeardReply { reply, .. }) => self.news.extend(Marker::from_reply(&reply)?),
                None => {
                    let line = self.next_of(SpokenBy::Server);
                    let line = line.ok_or_else(|| Broken("the server says nothing".into()))?;
                    // In two pieces, as a network may cut it.
                    let wire = self.sealed(&line.text);
                    let (a, b) = wire.as_bytes().split_at(wire.len() / 2);
                    self.dialogue.on_bytes(a);
                    self.dialogue.on_bytes(b);
                }
            }
        }
    }
}

impl Talk for Script {
    type Error = Broken;

    fn ask(&mut self, lines: &[Line]) -> Result<Vec<Reply>, Broken> {
        for line in lines {
            self.dialogue.ask(line)?;
        }
        let said = String::from_utf8(self.dialogue.poll_send()).unwrap();
        for line in said.lines() {
            let line = self.opened(line);
            match self.next_of(SpokenBy::Client) {
                Some(expected) => assert_eq!(line, expected.text, "line {}", expected.line),
                None => panic!("said {line:?} before {:?}", self.left.front()),
            }
        }
        lines.iter().map(|_| self.final_reply()).collect()
    }

    fn greeting(&mut self) -> Result<Reply, Broken> {
        self.final_reply()
    }

    fn ask_before_greeting(&mut self, lines: &[Line]) -> Result<(Reply, Vec<Reply>), Broken> {
        let greeting = self.dialogue.poll_heard()?.unwrap().reply;
        Ok((greeting, self.ask(lines)?))
    }
}

fn refused(refusal: &Refusal) -> String {
    format!("refused {} {:?}", refusal.code, refusal.kind)
}

fn answered(reply: &Reply) -> String {
    match Refusal::of(reply) {
        Some(refusal) => refused(&refusal),
        None => format!("ok {}", reply.code),
    }
}

fn looked(looked: Looked) -> String {
    let facts = match looked {
        Ok(facts) => facts,
        Err(refusal) => return refused(&refusal),
    };
    let mut text = format!("{:?}", facts.kind.unwrap());
    if let Some(size) = facts.size {
        text += &format!(" size {size}");
    }
    if let Some(modify) = facts.modify {
        text += &format!(" modify {}", Written(modify));
    }
    if let Some(mode) = facts.mode {
        text += &format!(" mode {mode:04o}");
    }
    if let Some(link) = facts.link {
        text += &format!(" link {}", String::from_utf8(link).unwrap());
    }
    text
}

/// Runs a request on the client, and returns its result as text.
fn want(script: &mut Script, peer: &mut FtpPeer, wanted: &str) -> String {
    let (verb, rest) = wanted.split_once(' ').unwrap();
    let name = rest.as_bytes();
    let pair = || {
        let (a, b) = rest.split_once('|').unwrap();
        (a.as_bytes(), b.as_bytes())
    };
    match verb {
        "greet" => match client::greet(script).unwrap() {
            Ok(_) => "greeted".into(),
            Err(refusal) => refused(&refusal),
        },
        "prove" => script.prove(),
        "enter" => match client::enter(script, rest.into(), &Credentials::mapped(), &[]).unwrap() {
            Ok((found, _)) => {
                *peer = found;
                format!("family {:?}", peer.family())
            }
            Err(refusal) => refused(&refusal),
        },
        "login" | "login-again" => {
            let (user, password) = rest.split_once(' ').unwrap();
            let who = Credentials {
                user: user.into(),
                password: password.into(),
            };
            let ahead = LinesAhead {
                is_ours: verb == "login-again",
                lines: &[Line::new("MODE E")],
            };
            match client::log_in(script, &who, ahead).unwrap() {
                Ok((found, _)) => {
                    *peer = found;
                    let home = String::from_utf8(peer.home.clone()).unwrap();
                    format!("family {:?} home {home}", peer.family())
                }
                Err(refusal) => refused(&refusal),
            }
        }
        "look" => looked(client::look(script, peer, name).unwrap()),
        "rename" => answered(&client::rename(script, pair().0, pair().1).unwrap()),
        "symlink" => answered(&client::symlink(script, pair().0, pair().1).unwrap()),
        "say" => {
            let (word, name) = rest.split_once(' ').unwrap();
            let line = Line::new(word).bytes(name.as_bytes()).unwrap();
            answered(&script.ask_one(line).unwrap())
        }
        "stripes" => {
            let reply = script.ask_one(Line::new(rest)).unwrap();
            match Passive::from_reply(&reply).unwrap() {
                Passive::Stripes(all) => all
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(" "),
                other => format!("{other:?}"),
            }
        }
        "news" => {
            let (word, name) = rest.split_once(' ').unwrap();
            let line = Line::new(word).bytes(name.as_bytes()).unwrap();
            let answered = answered(&script.ask_one(line).unwrap());
            let news = script.news.drain(..).map(|marker| match marker {
                Marker::Progress(p) => format!("{}/{}: {}", p.stripe, p.stripes, p.bytes),
                Marker::Ranges(ranges) => ranges.to_string(),
                other => format!("{other:?}"),
            });
            [answered]
                .into_iter()
                .chain(news)
                .collect::<Vec<_>>()
                .join(" ")
        }
        "checksum" => {
            let (by, name) = rest.split_once(' ').unwrap();
            let by: Algorithm = by.parse().unwrap();
            let line = client::checksum(by, None, name.as_bytes()).unwrap();
            let reply = script.ask_one(line).unwrap();
            match Refusal::of(&reply) {
                Some(refusal) => refused(&refusal),
                None => client::checksum_of(&reply, by).unwrap().to_string(),
            }
        }
        _ => panic!("unknown request: {verb}"),
    }
}

fn run(path: &Path) {
    let mut left: VecDeque<_> = parse(&fs::read_to_string(path).unwrap()).unwrap().into();
    // A server sends its greeting before the first request; the login reads it.
    let greeting: Vec<_> =
        std::iter::from_fn(|| left.pop_front_if(|s| s.by == SpokenBy::Server)).collect();
    let mut script = Script {
        left,
        dialogue: Dialogue::new(),
        guard: None,
        news: Vec::new(),
    };
    for line in greeting {
        script
            .dialogue
            .on_bytes(format!("{}\r\n", line.text).as_bytes());
    }
    let mut peer = FtpPeer::default();
    while let Some(wanted) = script.next_of(SpokenBy::Want) {
        let result = want(&mut script, &mut peer, &wanted.text);
        let expected = script.next_of(SpokenBy::Result).unwrap_or_else(|| {
            panic!(
                "{}: {wanted}: expected R: {result}, found {:?}",
                path.display(),
                script.left.front()
            )
        });
        assert_eq!(result, expected.text, "{}: {wanted}", path.display());
    }
    assert!(
        script.left.is_empty(),
        "{}: left over: {:?}",
        path.display(),
        script.left.front()
    );
}

#[test]
fn client_holds_written_dialogues() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut count = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|e| e == "txt") {
            run(&path);
            count += 1;
        }
    }
    assert!(count >= 6, "only {count} dialogues were found");
}
