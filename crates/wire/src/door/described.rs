//! `openapi.json` against the forms of [`call`]: all that can be said is described, and all that
//! is described can be said.

#[path = "../../tests/schema/mod.rs"]
#[allow(unreachable_pub)] // the node's tests use it too
mod schema;

use super::{
    OPENAPI, REVISION, VERSION,
    call::{self, *},
    catalog::{AskMake, CatalogAnswer, Change, Changes, Question},
    run::{AskRun, Placed, Word},
    staging::{Executable, Staged, StagedPlace, Staging},
};
use godwit_core::{Algorithm, Chain, Digest, Extents, Kind};
use schema::Schemas;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet, ffi::OsStr, num::NonZeroU64, os::unix::ffi::OsStrExt, time::Duration,
};

fn description() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

/// Fails unless a written value agrees with the schema of its name.
fn assert_described(name: &str, sample: &impl Serialize) {
    let (all, written) = (description(), serde_json::to_value(sample).unwrap());
    let all = Schemas(&all);
    if let Err(why) = all.check(all.named(name), &written) {
        panic!("{name}: {why}");
    }
}

fn digest() -> Text<Digest> {
    Text(Digest::of(Algorithm::Blake3, b"x"))
}

fn time() -> Time {
    Time(Duration::new(1 << 40, 7))
}

// All members are named in these, so that who adds one is sent to the description.

fn stat() -> DoorStat {
    DoorStat {
        kind: DoorKind::Link,
        size: u64::MAX,
        mtime: Some(time()),
        mode: Some(0o7777),
        owner: Some("me".into()),
        group: Some("us".into()),
        target: Some(Link("/../a\n%".into())),
        unique: Some("1:2".into()),
        digest: Some(Text(Digest::of(Algorithm::Blake3, b"x"))),
        touched: Some(time()),
    }
}

fn refusal(kind: Kind) -> Refusal {
    let more = Box::new(More {
        url: None,
        differs: Some(("this".into(), "that".into())),
        missing: Some((7, Ranges(Extents::from(3..5)))),
        turn: Some((1, 2, 3)),
        cause: Some(Kind::Missing),
        at: Some(Name("a".into())),
        stranger: true,
    });
    Refusal {
        more,
        ..Refusal::of_kind(kind, "so").next("do so")
    }
}

fn hello() -> Hello {
    Hello {
        name: "godwit".into(),
        version: "0.1.0".into(),
        speaks: (1, 1),
        revision: REVISION,
        key: Some("0".repeat(64)),
        slots: Some(2),
        running: Some(1),
        platform: Some("x86_64-linux".into()),
        who: Some("/CN=me".into()),
        account: None,
        can: DoorCan {
            any_order: true,
            again: true,
            in_place: true,
            append: true,
            attempts: true,
            append_once: true,
            atomic: true,
            resume: true,
            ranges: true,
            write: true,
            set_mtime: true,
            set_mode: true,
            xattrs: Some(true),
            links: true,
            space: true,
            leaves: true,
            passes_on: true,
            digests: vec!["BLAKE3".into()],
        },
    }
}

fn kept() -> Kept {
    Kept {
        url: "godwit://lab/f".into(),
        size: 9,
        present_bytes: 9,
        transfers: 1,
        tags: vec!["night".into()],
        used_s: Some(1 << 40),
        stage: "current".into(),
        why: Some("so".into()),
        timestamp: Some(7),
        path: Some(Link("/var/tmp/a b".into())),
    }
}

fn versions() -> Vec<DoorVersion> {
    vec![
        DoorVersion::None,
        DoorVersion::Strong(digest()),
        DoorVersion::Generation {
            server: "s".into(),
            name: "n".into(),
        },
        DoorVersion::Weak {
            size: 1,
            mtime: time(),
            seen_at: time(),
        },
    ]
}

fn lines() -> Vec<Line> {
    let name = Name("a b/\n\u{e9}".into());
    let whys = kinds().into_iter().map(|kind| Line::Refused(refusal(kind)));
    let finished = versions().into_iter().map(|version| {
        Line::Finished(FinishedUpload {
            version,
            digests: vec![digest()],
            verified: Some("BLAKE3".into()),
            reread_bytes: 1,
            in_place: true,
        })
    });
    let others = [
        Line::Beat(5),
        Line::Hello(hello()),
        Line::Stat(stat()),
        Line::Entry(DoorEntry {
            path: name.clone(),
            stat: stat(),
        }),
        Line::Hidden(name.clone()),
        Line::Unread(name, refusal(Kind::Denied)),
        Line::Digest(digest()),
        Line::Leaves(vec![Text(Chain([7; 32]))]),
        Line::Space(DoorSpace {
            total_bytes: 2,
            free_bytes: 1,
        }),
        Line::Landed(Landed {
            id: "1".into(),
            done: Ranges::default(),
            leaves: vec![(3, Text(Chain([7; 32])))],
            in_place: false,
        }),
        Line::Became(Some(DoorVersion::Strong(digest()))),
        Line::Became(None),
        Line::Grant(Grant { secret: "s".into() }),
        Line::Xattrs(vec![(Link("user.a%".into()), Bytes(vec![0, 0xff]))]),
        Line::Station(Station {
            at: "dest".into(),
            stage: "waiting".into(),
            size: 7,
            owed: 3,
            age_ms: Some(9),
            why: "away".into(),
            waits_for: Some(Name("a".into())),
        }),
        Line::Kept(kept()),
        Line::Count(Count { files: 1, bytes: 9 }),
        Line::Room(DepotRoom {
            quota_bytes: 9,
            used_bytes: 7,
            kept_bytes: 5,
            files: 3,
        }),
        Line::Answer(CatalogAnswer::More),
        Line::Made(vec![7, 0]),
        Line::Out(Bytes(b"a\n".into())),
        Line::Words(Bytes(b"a\n".into())),
        Line::Placed(Placed {
            path: Name("a".into()),
            size: 1,
            digest: Text(Digest::of(Algorithm::Blake3, b"x")),
        }),
        Line::Ended(3),
        Line::Read(stat(), Some(digest())),
        Line::Read(stat(), None),
        Line::Done,
        Line::Error(refusal(Kind::Other)),
        Line::End,
    ];
    whys.chain(finished).chain(others).collect()
}

/// Returns one kind for each word of the door.
fn kinds() -> Vec<Kind> {
    let all = Kind::all().chain([Kind::Other]);
    all.filter(|kind| Kind::of_door_word(kind.door_word()) == *kind)
        .collect()
}

/// Returns the members of a type, from its error about a foreign value.
fn parts_of<T: DeserializeOwned>(stranger: Value) -> BTreeSet<String> {
    let Err(error) = serde_json::from_value::<T>(stranger) else {
        panic!("a stranger is taken in");
    };
    let text = error.to_string();
    let (_, expected) = text
        .split_once("expected")
        .expect("it says what it expects");
    let parts = expected.split('`').skip(1).step_by(2).map(str::to_owned);
    parts.collect()
}

fn tag(value: &Value) -> String {
    match value {
        Value::String(tag) => tag.clone(),
        Value::Object(members) => members.keys().next().unwrap().clone(),
        other => panic!("{other} has no tag"),
    }
}

#[test]
fn it_describes_what_we_speak() {
    let version = &description()["info"]["version"];
    assert_eq!(version, &json!(format!("{VERSION}.{REVISION}")));
}

#[test]
fn every_line_is_described() {
    let all = description();
    let named = Schemas(&all).named("Line")["oneOf"].as_array().unwrap();
    let mut seen = BTreeSet::new();
    for line in lines() {
        assert_described("Line", &line);
        seen.insert(tag(&serde_json::to_value(&line).unwrap()));
    }
    // A kind of line that has no sample is not held against anything.
    assert_eq!(seen, parts_of::<Line>(json!("?")));
    assert_eq!(seen.len(), named.len());
}

#[test]
fn every_reason_is_described_with_its_status() {
    let all = description();
    let described = Schemas(&all).named("Why");
    let listed = described["enum"].as_array().unwrap();
    let listed: BTreeSet<_> = listed.iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(
        listed,
        kinds().iter().map(|kind| kind.door_word()).collect()
    );
    let text = described["description"].as_str().unwrap();
    for kind in kinds() {
        let said = format!("{} {}", kind.door_word(), kind.status());
        assert!(text.contains(&said), "{said}");
        let written = serde_json::to_value(refusal(kind)).unwrap();
        assert_eq!(written["why"], kind.door_word());
    }
}

#[test]
fn every_choice_is_described() {
    let all = description();
    let hows = [
        How::New,
        How::InPlace,
        How::Replace(None),
        How::Replace(Some(DoorVersion::None)),
        How::Append { writer: 1, seq: 2 },
    ];
    let tags = |values: &[Value]| values.iter().map(tag).collect::<BTreeSet<_>>();
    let written: Vec<Value> = hows.iter().map(|how| json!(how)).collect();
    hows.iter().for_each(|how| assert_described("How", how));
    assert_eq!(tags(&written), parts_of::<How>(json!("?")));
    let written: Vec<Value> = versions().iter().map(|version| json!(version)).collect();
    versions()
        .iter()
        .for_each(|version| assert_described("Version", version));
    assert_eq!(tags(&written), parts_of::<DoorVersion>(json!("?")));
    let kinds = Schemas(&all).named("Kind")["enum"].as_array().unwrap();
    assert_eq!(tags(kinds), parts_of::<DoorKind>(json!("?")));
    let verbs = Schemas(&all).named("OfDepot")["enum"].as_array().unwrap();
    assert_eq!(tags(verbs), parts_of::<OfDepot>(json!("?")));
    for ended in [
        PackedEnd::Read(stat(), None),
        PackedEnd::Refused(refusal(Kind::Lost)),
    ] {
        assert_described("Ended", &ended);
    }
    assert_eq!(
        parts_of::<PackedEnd>(json!("?")),
        ["read", "refused"].map(String::from).into()
    );
}

/// Fails unless the schema describes every member of a request, and which members may be missing.
fn asks<T: Serialize + DeserializeOwned>(name: &str, sample: &T) {
    assert_described(name, sample);
    let all = description();
    let schema = Schemas(&all).named(name);
    let described: BTreeSet<String> = schema["properties"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    assert_eq!(described, parts_of::<T>(json!({ "?": 0 })), "{name}");
    let written = serde_json::to_value(sample).unwrap();
    for member in &described {
        let mut without = written.clone();
        let was = without.as_object_mut().unwrap().remove(member);
        assert!(was.is_some(), "the sample of {name} has no {member}");
        let is_required = schema["required"]
            .as_array()
            .unwrap()
            .contains(&json!(member));
        let is_read = call::read::<T>(without.to_string().as_bytes()).is_ok();
        assert_eq!(is_read, !is_required, "{name} without {member}");
    }
    assert_eq!(schema["additionalProperties"], json!(false), "{name}");
}

fn staging() -> Staging {
    let staged = |place| Staged {
        name: Name("sorted".into()),
        place,
        digest: Some(Text(Digest::of(Algorithm::Blake3, b"x"))),
    };
    Staging {
        executable: Some(Executable::Kept(Text(Digest::of(Algorithm::Blake3, b"x")))),
        inputs: vec![staged(StagedPlace::Path(Name(
            ".farm/tasks/job-1f/in-0".into(),
        )))],
        outputs: vec![staged(StagedPlace::Url("godwit://lab/o".into()))],
        reads: Some(StagedPlace::Url("godwit://lab/i".into())),
        out: Some("godwit://lab/out".into()),
        words: Some("godwit://lab/err".into()),
    }
}

#[test]
fn everything_that_is_asked_is_described() {
    let path = Name("a b".into());
    let (size, mode, mtime) = (Some(9), Some(0o640), Some(time()));
    asks(
        "AskStat",
        &AskStat {
            paths: vec![path.clone()],
        },
    );
    asks(
        "AskList",
        &AskList {
            path: path.clone(),
            deep: true,
        },
    );
    asks("AskPath", &AskPath { path: path.clone() });
    asks(
        "AskPush",
        &AskPush {
            path: path.clone(),
            within_ms: Some(1),
        },
    );
    asks(
        "AskTrace",
        &AskTrace {
            path: path.clone(),
            passed: vec!["0".repeat(64)],
        },
    );
    for what in [Remedy::Retry, Remedy::Release, Remedy::Drop] {
        let (path, passed) = (path.clone(), vec!["0".repeat(64)]);
        asks("AskDecide", &AskDecide { path, what, passed });
    }
    asks("AskMake", &AskMake { name: path.clone() });
    asks(
        "AskRun",
        &AskRun {
            program: vec![Word("grep".into()), Word(OsStr::from_bytes(b"\xff").into())],
            path: path.clone(),
            fragment: 0,
            fragments: u64::MAX,
            job: "1f".into(),
            variables: vec![Word("TZ=UTC".into())],
            digest: Some(Text(Digest::of(Algorithm::Adler32, b"x"))),
            out: Some(path.clone()),
            printed: Some(path.clone()),
            staging: staging(),
        },
    );
    asks("Staging", &staging());
    asks(
        "AskDepot",
        &AskDepot {
            what: OfDepot::Stage,
            url: Some("godwit://lab/f".into()),
            tag: Some("night".into()),
            lasts_s: size,
            bytes_per_s: size.and_then(NonZeroU64::new),
            timestamp: Some(-7),
            give_up: true,
        },
    );
    asks(
        "AskBecame",
        &AskBecame {
            path: path.clone(),
            id: "1f.7".into(),
        },
    );
    asks(
        "AskDigest",
        &AskDigest {
            path: path.clone(),
            by: "BLAKE3".into(),
            range: Some((1, 2)),
        },
    );
    let wanted = WantedFile {
        path: path.clone(),
        ranges: Ranges(Extents::from(1..2)),
    };
    asks("Wanted", &wanted);
    asks(
        "AskRead",
        &AskRead {
            files: vec![wanted],
            digests: true,
        },
    );
    asks(
        "Given",
        &PackedFile {
            path: path.clone(),
            how: How::New,
            size: 9,
            mtime,
            mode,
            digest: Some(digest()),
        },
    );
    asks(
        "AskUpload",
        &AskUpload {
            path: path.clone(),
            id: Some("mine".into()),
            attempt: 7,
            how: How::New,
            size,
            origin: Some(("file:///x".into(), DoorVersion::None)),
            mode,
            checks: (true, false),
            resume: true,
            passed: vec!["0".repeat(64)],
        },
    );
    let whole = AskFinish {
        size,
        digest: Some(digest()),
        mtime,
        mode,
    };
    asks("AskFinish", &whole);
    asks(
        "AskPublish",
        &AskPublish {
            path: path.clone(),
            whole,
        },
    );
    asks(
        "AskGrant",
        &AskGrant {
            path: path.clone(),
            seconds: 60,
        },
    );
    asks(
        "AskDraw",
        &AskDraw {
            path: path.clone(),
            from: vec!["fermi:13560".into()],
            key: "0".repeat(64),
            secret: "s".into(),
            source: path.clone(),
            ranges: Ranges::default(),
            streams: 4,
            digests: true,
        },
    );
    asks(
        "AskJoin",
        &AskJoin {
            secret: "s".into(),
            name: "me".into(),
            addresses: Vec::new(),
        },
    );
    asks(
        "AskRekey",
        &AskRekey {
            key: "0".repeat(64),
        },
    );
    asks(
        "AskRemove",
        &AskRemove {
            path: path.clone(),
            directory: true,
        },
    );
    asks(
        "AskRename",
        &AskRename {
            from: path.clone(),
            to: path.clone(),
        },
    );
    asks(
        "AskMkdir",
        &AskMkdir {
            paths: vec![path.clone()],
        },
    );
    let link_to = Some(Link("/..".into()));
    asks(
        "AskSet",
        &AskSet {
            path,
            length: size,
            mode,
            mtime,
            atime: mtime,
            link_to,
            xattrs: vec![(Link("user.a".into()), None)],
        },
    );
}

#[test]
fn every_form_of_question_is_asked() {
    let all = description();
    let schemas = all["components"]["schemas"].as_object().unwrap();
    let source = include_str!("described.rs");
    for name in schemas.keys().filter(|name| name.starts_with("Ask")) {
        assert!(
            source.contains(&format!("\"{name}\"")),
            "{name} has no sample here"
        );
    }
    let forms = include_str!("call.rs").lines();
    let forms = forms.chain(include_str!("depot.rs").lines());
    for form in forms.filter_map(|line| line.strip_prefix("pub struct Ask")) {
        let name = format!("Ask{}", form.split(' ').next().unwrap_or_default());
        assert!(schemas.contains_key(&name), "{name} is not described");
    }
}

/// Samples of the catalog, with all members.
const QUESTIONS: &str = r#"[
    {"locate":{"names":["a"]}}, {"list":{"name":"a","deep":true,"homes":true,"after":"b"}},
    {"locations":{"name":"a","count":true}}, {"holdings":{"location":1,"after":"b"}},
    {"intents":{"ended":true,"name":"a"}}, {"weather":{}}, {"rules":{"name":"a"}}, {"todo":{"name":"a"}},
    {"history":{"name":"a"}}
]"#;
const CHANGES: &str = r#"[
    {"collect":{"name":"a","parents":true}},
    {"register":{"name":"a","size":1,"digests":["adler32:00000001"],"mtime":"1.000000007","mode":420,"home":
        {"location":1,"path":"b","range":[1,2],"offset":3,"verified_s":4,"ours":true}}},
    {"unregister":{"location":1,"path":"b","last":true}},
    {"discard":{"location":1,"path":"b","last":true,"data":true,"holder":"h"}},
    {"intend":{"deed":"copy","name":"a","location":1,"path":"b","base":2,"holder":"h","size":3,"digest":"adler32:00000001"}},
    {"land":{"intent":1,"size":2,"digest":"adler32:00000001"}}, {"renew":{"intent":1,"holder":"h"}},
    {"publish":{"intent":1,"digests":["adler32:00000001"],"mtime":"1.000000007","mode":420,"verified":true,"adopted":true}},
    {"settle":{"intent":1,"home":"damaged"}}, {"mark":{"location":1,"path":"b","state":"lost","verified_s":1}},
    {"remove":{"name":"a","collection":true,"data":true}}, {"rename":{"from":"a","to":"b"}}, {"link":{"from":"a","to":"b"}},
    {"set":{"name":"a","mtime":"1.000000007","mode":420}}, {"attribute":{"name":"a","site":"s","key":"k","value":"v"}},
    {"add_location":{"name":"a","site":"s","url":"u","whole":true}}, {"set_location":{"name":"a","site":"s","url":"u"}},
    {"remove_location":{"name":"a","site":"s","last":true}},
    {"measured":{"to":"s","from":"t","bytes":1,"took_ms":2,"fault":true,"at_s":3}},
    {"load":{"name":"a","file":0,"version":2}}, {"add_rule":{"name":"a","text":"copies=2"}}, {"remove_rule":{"rule":1}},
    {"scanned":{"rule":1,"due_s":2}}, {"did":{"file":1,"seq":2,"said":"s","again_s":3}}, {"lease":{"what":"w","holder":"h","over":true}},
    {"draft":{"name":"a","base":1,"holder":"h"}}, {"proved":{"recipe":"r"}},
    {"assemble":{"intent":1,"count":2,"digests":["adler32:00000001"],"mtime":"1.000000007","mode":420,"made":["job",0]}},
    {"ran":{"run":"job","recipe":{"argv":["a",{"bytes":"/wo="}],"program":"adler32:00000001","programs":{"p":"adler32:00000001"},"platform":"p","environment":{"k":"v"},
        "umask":18,"ranks":2,"inputs":[{"name":"a","version":1,"whole":true,"digests":["adler32:00000001"]}],"outputs":["b"],
        "printed":true},"who":"w","at_s":1,"engine":"own","ranks":[{"fragment":1,"node":"n","exit_status":0,"took_ms":2,
        "digests":["adler32:00000001"]}]}}
]"#;
const ANSWERS: &str = r#"[
    {"entry":{"name":"a","collection":true,"file":1,"version":2,"size":3,"digests":["adler32:00000001"],"mtime":"1.000000007",
        "mode":420,"homes":[{"location":1,"site":"s","url":"u","path":"b","version":2,"range":[1,2],"fragment":4,"offset":3,
        "state":"filling","verified_s":4,"ours":true}],"attributes":{"k":"v"},"fragments":[{"file":5,"version":1,"start":0,
        "size":3,"digests":["adler32:00000001"]}]}},
    {"missing":"a"}, {"location":{"location":1,"name":"a","site":"s","url":"u","whole":true,"homes":2,"attributes":{"k":"v"}}},
    {"intent":{"intent":1,"deed":"delete","name":"a","location":1,"path":"b","url":"u","base":2,"size":3,
        "digest":"adler32:00000001","holder":"h","ended":true}},
    {"weather":{"to":"s","from":"t","bytes":1,"took_ms":2,"fault":true,"at_s":3}},
    {"rule":{"rule":1,"name":"a","text":"copies=2","due_s":2}},
    {"todo":{"entry":{"name":"a","file":1,"version":0},"seq":1,"tries":2,"again_s":3,"said":"s"}},
    {"made":{"name":"a","version":1,"output":0,"ran":{"run":"job","recipe":{"argv":[],"platform":"p","umask":18,"ranks":1,"inputs":[],
        "outputs":[]},"who":"w","at_s":1,"engine":"own","ranks":[]},"is_proved":true}}, "more"
]"#;

/// Fails unless every variant has a sample that is described and reads back unchanged.
fn all_are_described<T: Serialize + DeserializeOwned>(name: &str, samples: &str) {
    let samples: Vec<Value> = serde_json::from_str(samples).unwrap();
    let sampled: BTreeSet<_> = samples.iter().map(tag).collect();
    assert_eq!(sampled, parts_of::<T>(json!("?")), "{name}");
    for sample in samples {
        let read: T =
            serde_json::from_value(sample.clone()).unwrap_or_else(|e| panic!("{sample}: {e}"));
        assert_eq!(serde_json::to_value(&read).unwrap(), sample);
        assert_described(name, &read);
    }
}

#[test]
fn all_of_the_catalog_is_described() {
    all_are_described::<Question>("Question", QUESTIONS);
    all_are_described::<Change>("Change", CHANGES);
    all_are_described::<CatalogAnswer>("Answer", ANSWERS);
    let once = Some(("w".to_owned(), 1));
    asks(
        "Changes",
        &Changes {
            changes: serde_json::from_str(CHANGES).unwrap(),
            once,
        },
    );
}
