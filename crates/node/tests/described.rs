//! The description of the door (`wire::door::OPENAPI`) against a node: every call is described, answers as described,
//! and refuses anything else.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../../wire/tests/schema/mod.rs"]
#[allow(unreachable_pub)] // wire's tests use it too
mod schema;

use common::{
    Scratch, Served,
    asking::{Answer, Asking},
};
use godwit_catalog::Change;
use godwit_core::{Algorithm, Digest};
use godwit_trust::PeersDir;
use godwit_wire::door::{
    OPENAPI, PACK_TYPE, ROOT,
    call::{self, How, Name, PackedFile, Text},
    pack::{self, Decoder, Frame, FrameKind},
};
use schema::Schemas;
use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};

/// One call of the description.
#[derive(Clone, Copy)]
struct Call<'a> {
    all: Schemas<'a>,
    method: &'a str,
    path: &'a str,
    said: &'a Value,
}

fn description() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

fn calls(all: &Value) -> Vec<Call<'_>> {
    let paths = all["paths"].as_object().unwrap();
    let each = paths.iter().flat_map(|(path, methods)| {
        methods
            .as_object()
            .unwrap()
            .iter()
            .map(move |(method, said)| Call {
                all: Schemas(all),
                method,
                path,
                said,
            })
    });
    each.collect()
}

impl<'a> Call<'a> {
    fn name(&self) -> &'a str {
        self.path
            .strip_prefix(ROOT)
            .expect("only our own calls are described")
    }

    /// Returns the schema of a request in JSON, and an example.
    fn asked(&self) -> Option<(&'a Value, &'a Value)> {
        let json = self.said.get("requestBody")?["content"].get("application/json")?;
        Some((&json["schema"], &json["example"]))
    }

    fn ask(&self, asking: &Asking, id: &str, kind: &str, body: Vec<u8>) -> Answer {
        let target = self.path.replace("{id}", id).replace("{path}", "up");
        asking.ask(
            &self.method.to_uppercase(),
            &target,
            &[("content-type", kind)],
            body,
        )
    }

    /// Checks an answer against the description.
    fn check(&self, answer: &Answer) {
        let (name, status) = (self.path, answer.status.to_string());
        let responses = &self.said["responses"];
        let wide = format!("{}XX", &status[..1]);
        let described = responses.get(&status).or_else(|| responses.get(&wide));
        let described = described.unwrap_or_else(|| panic!("{name}: {status} is not described"));
        let described = self.all.follow(described);
        for (header, said) in described["headers"].as_object().unwrap() {
            let text = answer
                .header(header)
                .unwrap_or_else(|| panic!("{name}: no {header}"));
            let said = &self.all.follow(said)["schema"];
            self.all
                .check(said, &json!(text))
                .unwrap_or_else(|why| panic!("{name}: {why}"));
        }
        let kind = answer.header("content-type").expect("a body has a type");
        let schema = described["content"].get(kind);
        let schema = &schema.unwrap_or_else(|| panic!("{name}: {kind} is not described"))["schema"];
        match kind {
            PACK_TYPE => self.check_pack(answer),
            "application/json" => drop(serde_json::from_slice::<Value>(&answer.body).unwrap()),
            _ => {
                let lines = answer.lines();
                for line in &lines {
                    let checked = self.all.check(schema, line);
                    checked.unwrap_or_else(|why| panic!("{name}: {why}"));
                }
                let is_last = |line: &Value| line == "end" || line.get("error").is_some();
                let count = lines.iter().filter(|line| is_last(line)).count();
                assert!(
                    count == 1 && is_last(lines.last().unwrap()),
                    "{name}: {lines:?}"
                );
            }
        }
    }

    fn check_pack(&self, answer: &Answer) {
        let (mut decoder, mut input) = (Decoder::new(), &answer.body[..]);
        let mut ends = 0;
        while !input.is_empty() {
            let (taken, frame) = decoder.next(input).unwrap();
            match frame {
                Some(Frame::File(_, text)) => assert_eq!(text, "{}"),
                Some(Frame::End(_, text)) => {
                    let ended = serde_json::from_str(text).unwrap();
                    let checked = self.all.check(self.all.named("Ended"), &ended);
                    checked.unwrap_or_else(|why| panic!("{}: {why}", self.path));
                    ends += 1;
                }
                _ => {}
            }
            input = &input[taken..];
        }
        assert!(decoder.is_over() && ends > 0, "{}", self.path);
    }
}

/// A node with the files of the examples, and a peer that has joined it.
struct World {
    served: Served,
    asking: Asking,
    state: PeersDir,
    _scratch: Scratch,
}

impl World {
    fn new() -> Self {
        let scratch = Scratch::new();
        let state = scratch.path().join("state");
        std::fs::create_dir(&state).unwrap();
        let place = state.display().to_string();
        let catalog = format!("sqlite:{}", scratch.path().join("names").display());
        let tables = godwit_catalog::open(&catalog, true).unwrap();
        let run = Change::Collect {
            name: Name("run7".into()),
            parents: false,
        };
        tables.change(&run.into()).unwrap();
        let served = Served::with(&[
            ("https.listen", "127.0.0.1:0"),
            ("node.state", &*place),
            ("catalog.url", &*catalog),
        ]);
        std::fs::create_dir(served.file("dir")).unwrap();
        served.put("dir/a file", b"0123456789");
        let ours = PeersDir::at(&scratch.path().join("ours"))
            .key_or_new()
            .unwrap();
        let asking = Asking::with(served.node().addresses().https[0], ours);
        Self {
            served,
            asking,
            state: PeersDir::at(&state),
            _scratch: scratch,
        }
    }

    fn call<'a>(&self, all: &'a Value, name: &str) -> Call<'a> {
        let mut all = calls(all).into_iter();
        all.find(|call| call.name() == name).unwrap()
    }

    /// An invite, as the example of `join` brings one back.
    fn invited(&self, example: &Value) -> Value {
        self.state
            .call_myself("lab", &["localhost:1".into()])
            .unwrap();
        let invite = self
            .state
            .invite(Duration::from_secs(60), None, false)
            .unwrap();
        let mut asked = example.clone();
        asked["secret"] = invite.secret.into();
        asked
    }

    fn join(&self, all: &Value) {
        let join = self.call(all, "join");
        let asked = self.invited(join.asked().unwrap().1).to_string();
        assert_eq!(join.ask(&self.asking, "", JSON, asked.into()).status, 200);
    }

    /// Begins the upload of the example; returns its name.
    fn begin(&self, all: &Value) -> String {
        let uploads = self.call(all, "uploads");
        let asked = uploads.asked().unwrap().1.to_string();
        let answer = uploads.ask(&self.asking, "", JSON, asked.into());
        uploads.check(&answer);
        answer.lines()[0]["landed"]["id"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Asks as the description says one can.
    fn ask(&self, all: &Value, call: Call<'_>) -> Answer {
        let example = call.asked().map(|(_, example)| example.clone());
        let id = match call.name().contains("{id}") {
            true => self.begin(all),
            false => String::new(),
        };
        let ask = |asked: Value| call.ask(&self.asking, &id, JSON, asked.to_string().into());
        match (call.name(), example) {
            ("join", Some(example)) => ask(self.invited(&example)),
            ("leave", None) => ask(Value::Null),
            ("uploads/{id}/draw", Some(example)) => {
                let other = World::new();
                other.join(all);
                let grant = other.call(all, "grant");
                let asked = grant.asked().unwrap().1.to_string();
                let granted = grant.ask(&other.asking, "", JSON, asked.into()).lines();
                let mut asked = example;
                asked["from"] = json!([other.asking.at.to_string()]);
                asked["key"] = other.asking.key().to_string().into();
                asked["secret"] = granted[0]["grant"]["secret"].clone();
                ask(asked)
            }
            ("uploads/{id}/finish", Some(example)) => {
                let put = self.call(all, "uploads/{id}/{path}");
                put.check(&put.ask(&self.asking, &id, PACK_TYPE, pack_of_data()));
                ask(example)
            }
            ("uploads/{id}/{path}", None) => call.ask(&self.asking, &id, PACK_TYPE, pack_of_data()),
            ("write", None) => call.ask(&self.asking, &id, PACK_TYPE, pack_of_files()),
            (_, Some(example)) => ask(example),
            (_, None) => call.ask(&self.asking, &id, JSON, Vec::new()),
        }
    }
}

fn pack_of_data() -> Vec<u8> {
    [
        pack::frame(FrameKind::Data, 0, b"012345678"),
        pack::frame(FrameKind::Last, 0, b""),
    ]
    .concat()
}

/// One that can be written, and one that cannot.
fn pack_of_files() -> Vec<u8> {
    let mut pack = Vec::new();
    for (nth, (path, how)) in [(0, ("small", How::New)), (1, ("dir/a file", How::New))] {
        let given = PackedFile {
            path: Name(path.into()),
            how,
            size: 4,
            mtime: None,
            mode: None,
            digest: Some(Text(Digest::of(Algorithm::Blake3, b"tiny"))),
        };
        pack.extend(pack::frame(FrameKind::File, nth, &call::write(&given)));
        pack.extend(pack::frame(FrameKind::Data, 0, b"tiny"));
    }
    pack.extend(pack::frame(FrameKind::Last, 2, b""));
    pack
}

#[test]
fn calls_and_descriptions_match() {
    let all = description();
    let described: BTreeSet<_> = calls(&all)
        .iter()
        .map(|call| (call.method.to_uppercase(), call.name().to_owned()))
        .collect();
    let known: BTreeSet<_> = godwit_node::calls()
        .map(|(method, name)| (method.to_owned(), name.to_owned()))
        .collect();
    assert_eq!(described, known);
}

#[test]
fn every_call_answers_as_it_is_described() {
    let all = description();
    for call in calls(&all) {
        let world = World::new();
        if call.name() != "join" {
            world.join(&all);
        }
        let answer = world.ask(&all, call);
        // A parked connection is tested in relay.rs; without Upgrade it is refused. No rule lets this peer use the
        // depot: its answers are tested with a real one.
        let expected = match call.name() {
            "park" => 400,
            "depot" => 403,
            // Programs run only at a node with slots: godwit/tests/farm.rs.
            "run" => 403,
            // The catalog has no such name: godwit/tests/farm.rs loses one.
            "catalog/make" => 404,
            // Nothing is held at a node that passes nothing on.
            "decide" => 404,
            _ => 200,
        };
        assert_eq!(
            answer.status,
            expected,
            "{}: {}",
            call.path,
            String::from_utf8_lossy(&answer.body)
        );
        call.check(&answer);
        drop(world.served);
    }
}

#[test]
fn examples_are_as_their_schemas_say() {
    let all = description();
    for call in calls(&all) {
        if let Some((schema, example)) = call.asked() {
            call.all
                .check(schema, example)
                .unwrap_or_else(|why| panic!("{}: {why}", call.path));
        }
    }
}

/// Returns broken variants of a request: a member more, a member less, another type.
fn broken(all: Schemas<'_>, schema: &Value, right: &Value) -> Vec<Value> {
    let strange = [
        json!(null),
        json!(true),
        json!(7),
        json!(-1),
        json!(1.5),
        json!(1_u64 << 40),
        json!("\t"),
        json!("a//b"),
        json!("/a"),
        json!("%zz"),
        json!([]),
        json!({}),
        json!([1, 2, 3]),
    ];
    let mut versions: Vec<Value> = strange.into();
    match right {
        Value::Object(members) => {
            let with = |name: &str, value: Value| {
                let mut members = members.clone();
                members.insert(name.into(), value);
                Value::Object(members)
            };
            versions.push(with("unheard_of", json!(1)));
            for (name, member) in members {
                let mut without = members.clone();
                without.remove(name);
                versions.push(Value::Object(without));
                let schema = all.follow(schema)["properties"]
                    .get(name)
                    .unwrap_or(&Value::Null);
                if all.follow(schema).get("oneOf").is_none() {
                    versions.extend(
                        broken(all, schema, member)
                            .into_iter()
                            .map(|v| with(name, v)),
                    );
                }
            }
        }
        Value::Array(items) => {
            for (nth, item) in items.iter().enumerate() {
                let each = all
                    .follow(schema)
                    .get("items")
                    .filter(|each| each.is_object());
                for version in each.map_or(Vec::new(), |each| broken(all, each, item)) {
                    let mut items = items.clone();
                    items[nth] = version;
                    versions.push(Value::Array(items));
                }
            }
        }
        _ => {}
    }
    versions
}

#[test]
fn what_is_not_described_is_refused() {
    let (all, world) = (description(), World::new());
    world.join(&all);
    let before = std::fs::read(world.served.file("dir/a file")).unwrap();
    let mut count = 0;
    for call in calls(&all) {
        let Some((schema, example)) = call.asked() else {
            continue;
        };
        let is_wrong = |asked: &Value| call.all.check(schema, asked).is_err();
        for asked in broken(call.all, schema, example)
            .iter()
            .filter(|asked| is_wrong(asked))
        {
            let answer = call.ask(&world.asking, "0", JSON, asked.to_string().into());
            let why = answer.refusal()["why"].clone();
            assert_eq!(
                (answer.status, why),
                (400, json!("bad_request")),
                "{}: {asked}",
                call.path
            );
            call.check(&answer);
            count += 1;
        }
        // Invalid JSON, and the members without their names.
        let members = example.as_object().into_iter().flat_map(|o| o.values());
        let list = json!(members.collect::<Vec<_>>()).to_string();
        for asked in [&b"{"[..], b"\xff", list.as_bytes()] {
            let answer = call.ask(&world.asking, "0", JSON, asked.into());
            assert_eq!(answer.status, 400, "{}", call.path);
            call.check(&answer);
        }
    }
    let stat = world.call(&all, "stat");
    let long = vec![b' '; call::LINE_BYTES_MAX + 1];
    let answer = stat.ask(&world.asking, "", JSON, long);
    assert_eq!(answer.status, 400);
    stat.check(&answer);
    assert!(count > 200, "only {count} were tried");
    assert_eq!(world.served.bytes("dir/a file"), before);
}

#[test]
fn wrong_method_names_right_one() {
    let (all, world) = (description(), World::new());
    for call in calls(&all)
        .into_iter()
        .filter(|call| !call.name().ends_with("{path}"))
    {
        let target = call.path.replace("{id}", "0");
        let answer = world.asking.ask("DELETE", &target, &[], Vec::new());
        assert_eq!(answer.status, 405, "{target}");
        assert_eq!(
            answer.header("allow"),
            Some(&*call.method.to_uppercase()),
            "{target}"
        );
    }
}

#[test]
fn a_node_shows_its_description_to_everybody() {
    let served = Served::with(&[
        ("https.listen", "127.0.0.1:0"),
        ("anonymous.access", "none"),
    ]);
    let asking = Asking::at(served.node().addresses().https[0]);
    let answer = asking.ask("GET", &format!("{ROOT}openapi.json"), &[], Vec::new());
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body, OPENAPI.as_bytes());
}

const JSON: &str = "application/json";
