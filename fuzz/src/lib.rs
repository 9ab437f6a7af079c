//! One function for each parser, which is fed with bytes that a peer may send.
//!
//! Used twice: by the targets of `cargo fuzz` beside this file, and by the
//! bounded run in `crates/wire/tests/hostile.rs`, which `make test` includes.
//! A feed panics if its parser does, or if what was read is not what it was.

mod door;
mod local;

use godwit_core::{
    AdlerPart, AdlerParts, Algorithm, Block, Chain, Digest, Extents, Leaves, Piece, Url,
};
use godwit_wire::{
    address, client,
    command::Command,
    facts::NamedFacts,
    features::Features,
    listing::{Form, Listing, Reach},
    marker::Marker,
    mode_e::{BlockContent, HEADER_BYTES, Header, StreamEnds},
    reply::{Inner, Replies, Reply},
    server::{
        Ask, FtpAnswer, FtpOutcome, ListedKind, ListedStat, ModuleDirection, ModuleName, Profile,
        Refusal, Session, SessionStep, Welcome,
    },
    time,
};
use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Component, Path},
    time::Duration,
};

/// A feed, and inputs from which mutations begin.
pub struct Feed {
    /// As the target is called.
    pub name: &'static str,
    /// Takes any bytes.
    pub take: fn(&[u8]),
    /// Inputs that get far.
    pub seeds: &'static [&'static [u8]],
}

pub use door::{door_calls, door_packs, door_paths, door_ranges};
pub use local::{local_frames, local_heads};

/// All of them.
pub const FEEDS: [Feed; 16] = [
    Feed {
        name: "url",
        take: url,
        seeds: &[
            b"ftp://me:pw@fermi:2121/%2Fdata/run%207;type=i",
            b"/godwit/ftp:[::1]:2121/%2Fa/b",
            b"file://localhost/a%FF",
            b"grid:/hep/run7.root",
            b"./a b",
        ],
    },
    Feed {
        name: "extents",
        take: extents,
        seeds: &[b"0-10,11-20", b"0-18446744073709551615", b"5-5, 7-9"],
    },
    Feed {
        name: "digest",
        take: digest,
        seeds: &[
            b"adler32:024d0127",
            b"MD5:900150983cd24fb0d6963f7d28e17f72",
            b"6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
        ],
    },
    Feed {
        name: "leaves",
        take: leaves,
        seeds: &[b"\x00\x00\x10\x01\x00\x20", b"\xff\x01\x02\x03\x04\x05\x06\x07"],
    },
    Feed {
        name: "mode_e",
        take: mode_e,
        seeds: &[
            b"\x03\x00\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x00hello\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            b"\x00\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x00hello\x48\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01",
            b"\x00\0\0\0\0\0\0\0\x05\xff\xff\xff\xff\xff\xff\xff\xf0hello",
        ],
    },
    Feed {
        name: "replies",
        take: replies,
        seeds: &[
            b"220 ready\r\n331 name ok\r\n230 in\r\n",
            b"211-Extensions\r\n SIZE\r\n GODWIT 1\r\n CKSM MD5:10;BLAKE3:1;\r\n211 End.\r\n",
            b"227 Entering Passive Mode (127,0,0,1,4,210)\r\n229 ok (|||2000|)\r\n",
            b"229-Entering\r\n 127,0,0,1,4,210\r\n [::1]:5\r\n229 End\r\n",
            b"111 Range Marker 0-10,20-30\r\n150 go\r\n",
            b"112-Perf Marker\r\n Timestamp: 12.5\r\n Stripe Index: 0\r\n Stripe Bytes Transferred: 7\r\n Total Stripe Count: 1\r\n112 End.\r\n",
            b"115 Leaves 3 6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85\r\n",
            b"226-Transfer Complete.\r\n GODWIT size=5;modify=20261121020036.5;done=0-5;published=1\r\n226 End.\r\n",
            b"550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n550 End.\r\n213 20261121020036\r\n257 \"/a\"\"b\" is\r\n",
        ],
    },
    Feed {
        name: "listings",
        take: listings,
        seeds: &[
            b"Type=file;Size=5;Modify=20261121020036; name\r\nType=dir; a b\r\n",
            b"UNIX.mode=0644;UNIX.slink=../x;Type=slink;Unique=1-2; l\r\n\r\n",
            b"-rw-r--r--   1 root     root          5 Nov 21 02:00 name\r\nlrwxrwxrwx 1 a b 3 Jan  1  2020 l -> x\r\n",
            b"11-21-26  02:00PM       <DIR>          sub\r\n",
            b"a\nb/../c\n../d\n",
        ],
    },
    Feed {
        name: "addresses",
        take: addresses,
        seeds: &[
            b"127,0,0,1,4,210",
            b"|2|::1|2000|",
            b"|1|10.0.0.1|65536|",
            b"127,0,0,1,4,210 |2|::1|2000|",
        ],
    },
    Feed {
        name: "commands",
        take: commands,
        seeds: &[
            b"RETR a b",
            b"REST 0-10,20-30",
            b"OPTS RETR Parallelism=4,4,4;StripeLayout=Blocked;BlockSize=1048576;",
            b"ERET P 5 10 file",
            b"ERET reduce=\"5 10\" file",
            b"ESTO A 5 file",
            b"ESTO GODWIT=\"size=5;modify=20261121020036;mode=0644;id=x.1;hold=1;how=new\" file",
            b"SITE GODWIT LEAVES id=x;from=0;count=65536 file",
            b"CKSM BLAKE3 0 -1 file",
            b"MFMT 20261121020036 file",
            b"SPOR 127,0,0,1,4,210 127,0,0,1,4,211",
            b"EPRT |2|::1|2000|",
            b"SITE CHMOD 644 file",
            b"TREV PERF Frequency=5;",
        ],
    },
    Feed {
        name: "server",
        take: server,
        seeds: &[
            b"\x01USER anonymous\r\nPASS x\r\nTYPE I\r\nMODE E\r\nPASV\r\nOPTS GODWIT 1\r\nRETR a\r\nQUIT\r\n",
            b"\x00USER a\r\nPASS b\r\nCWD /a/../b\r\nMLST a\r\nMLSD\r\nRNFR a\r\nRNTO b\r\nDELE c\r\n",
            b"\x01USER a\r\nPASS b\r\nEPSV\r\nREST 5\r\nSTOR a\r\nABOR\r\nSTAT\r\nLIST -la x*\r\n",
            b"\x01AUTH GSSAPI\r\nADAT QUJD\r\nADAT =\r\nUSER a\r\nPASS b\r\nEPSV\r\nERET reduce=\"5\" a\r\nESTO unpack a\r\n",
            b"\x01USER a\r\nPASS b\r\nEPSV\r\nALLO 5\r\nSCKS MD5 00\r\nESTO A 5 a\r\nSITE GODWIT FINISH size=5 a\r\n",
        ],
    },
    Feed {
        name: "door_ranges",
        take: door_ranges,
        seeds: &[
            b"bytes=0-9",
            b"bytes=-5",
            b"Bytes = 3-",
            b"bytes 0-9/10",
            b"bytes 18446744073709551600-18446744073709551614/*",
        ],
    },
    Feed {
        name: "door_packs",
        take: door_packs,
        seeds: &[
            b"F\0\0\0\0\0\0\0\0\0\0\0\x02{}D\0\0\0\0\0\0\0\x05\0\0\0\x05helloE\0\0\0\0\0\0\0\0\0\0\0\x02{}Z\0\0\0\0\0\0\0\x01\0\0\0\0",
            b"D\xff\xff\xff\xff\xff\xff\xff\xf0\0\0\0\x05helloZ\0\0\0\0\0\0\0\0\0\0\0\0",
            b"L\0\0\0\0\0\0\0\x07\0\0\0\x2001234567890123456789012345678901Z\0\0\0\0\0\0\0\0\0\0\0\0",
        ],
    },
    Feed {
        name: "door_calls",
        take: door_calls,
        seeds: door::CALLS,
    },
    Feed {
        name: "door_paths",
        take: door_paths,
        seeds: &[b"/a/b%20c", b"a/b/", b"a%2Fb", b"..%2f", b"%FF%00", b"."],
    },
    Feed {
        name: "local_frames",
        take: local_frames,
        seeds: &[
            b"\x21\0\0\0\x0e\0\0\0{\"n\":1,\"ask\":{\"cancel\":{\"of\":2}}}\x05\0\0\0\0\0\0\0\x02\0\0\0hi",
            b"\x18\0\0\0\0\0\0\0{\"n\":9,\"ask\":\"status\"}  \x02\0\0\0\0\0\0\0{}",
            b"\xff\xff\0\0\0\0\x40\0{",
            b"\0\0\0\0\0\0\0\0\x01\0\x01\0\0\0\0\0",
        ],
    },
    Feed {
        name: "local_heads",
        take: local_heads,
        seeds: &[
            br#"{"n":1,"ask":{"open":{"url":"godwit://lab/run7","read":true,"fresh":"asked","mode":420}}}"#,
            br#"{"n":2,"ask":{"hello":{"version":1,"job":{"SLURM_JOB_ID":"7"},"credential":"/tmp/x509up%FF"}}}"#,
            br#"{"n":3,"ask":{"close":{"handle":4,"wait":"push","timeout_ms":9}}}"#,
            br#"{"n":3,"ask":{"put":{"url":"u","in_place":true,"base":{"strong":"adler32:024d0127"}}}}"#,
            br#"{"n":4,"ask":{"cache":{"clean":{"tag":"job","url":null}}}}"#,
            br#"{"n":5,"ask":{"deed":{"rename":{"url":"a","to":"b"}}}}"#,
            br#"{"n":6,"fds":1,"tell":{"opened":{"handle":1,"size":10,"version":"none"}}}"#,
            br#"{"n":7,"tell":{"refused":{"why":"quota","wanted":"read u","because":"full","waiting":{"helps_in":5}}}}"#,
            br#"{"n":8,"tell":{"row":{"id":"00","url":"u","owed_bytes":5,"stage":"held","reason":"denied"}}}"#,
            br#"{"n":9,"tell":{"progress":{"done":1,"total":18446744073709551615}}}"#,
        ],
    },
];

/// Arguments of commands. Reads back from its own text.
pub fn url(bytes: &[u8]) {
    let Ok(url) = Url::from_argument(OsStr::from_bytes(bytes)) else {
        return;
    };
    let _ = (url.parent(), url.file_name(), url.path_form());
    let shown = url.without_password();
    let text = shown.to_string();
    assert_eq!(text.parse().as_ref(), Ok(&shown), "{text}");
}

/// Restart markers.
pub fn extents(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(set) = text.parse::<Extents>() else {
        return;
    };
    if !set.is_empty() {
        assert_eq!(set.to_string().parse().as_ref(), Ok(&set));
    }
    let all = 0..set.end();
    assert_eq!(set.missing(all).len_bytes() + set.len_bytes(), set.end());
}

/// Checksums and chaining values.
pub fn digest(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(digest) = text.parse::<Digest>() {
        assert_eq!(digest.to_string().parse(), Ok(digest));
    }
    if let Ok(chain) = text.parse::<Chain>() {
        assert_eq!(chain.to_string().parse(), Ok(chain));
    }
    for by in Algorithm::ALL {
        let _ = Digest::from_hex(by, &text);
    }
}

/// Blocks in any order and again: each four bytes are an offset and a length.
/// Whatever was told unknown is added, and then the digests must be right.
pub fn leaves(bytes: &[u8]) {
    let Some((&first, cuts)) = bytes.split_first() else {
        return;
    };
    let size = FILE_BYTES - usize::from(first);
    let file: Vec<u8> = (0..size).map(|i| (i / 251 + i % 251) as u8).collect();
    let (mut leaves, mut adler) = (Leaves::new(), AdlerParts::new());
    for cut in cuts.chunks_exact(4).take(64) {
        let number = |a: u8, b: u8| usize::from(a) << 8 | usize::from(b);
        // Offsets over the whole file, often at an edge of a chunk.
        let start = number(cut[0], cut[1]) * 18 % (size + 1);
        let start = if cut[1] & 3 == 0 {
            start & !1023
        } else {
            start
        };
        let len = number(cut[2], cut[3]) << (cut[3] & 7);
        add(
            &mut leaves,
            &mut adler,
            &file,
            start..(start + len).min(size),
        );
    }
    let size = size as u64;
    for range in leaves.unknown(size).or(&adler.unknown(size)).iter() {
        let range = range.start as usize..range.end as usize;
        add(&mut leaves, &mut adler, &file, range);
    }
    // Bytes added for the one may have made the other forget what it had.
    for range in leaves.unknown(size).iter() {
        let range = range.start as usize..range.end as usize;
        leaves.add(Piece::of(block(&file, range)));
    }
    for range in adler.unknown(size).iter() {
        let range = range.start as usize..range.end as usize;
        adler.add(AdlerPart::of(block(&file, range)));
    }
    assert_eq!(
        leaves.root(size),
        Some(Digest::of(Algorithm::Blake3, &file))
    );
    assert_eq!(
        adler.total(size),
        Some(Digest::of(Algorithm::Adler32, &file))
    );
}

/// A data connection: a header is written as it was read, and the ends are counted.
pub fn mode_e(mut bytes: &[u8]) {
    let mut ends = StreamEnds::default();
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        let Ok(header) = Header::decode(header) else {
            return;
        };
        assert_eq!(Header::decode(&header.encode()).as_ref(), Ok(&header));
        let payload_bytes = match &header.what {
            BlockContent::Data(range) => range.end - range.start,
            BlockContent::EndOfFile { .. } => 0,
        };
        if ends.on_header(&header).is_err() {
            return;
        }
        let payload_bytes = usize::try_from(payload_bytes).unwrap_or(usize::MAX);
        bytes = &rest[payload_bytes.min(rest.len())..];
    }
}

/// A control connection, from a server: replies, and all that is read in them.
pub fn replies(bytes: &[u8]) {
    let whole = read_replies(&[bytes]);
    let single: Vec<_> = bytes.chunks(1).collect();
    assert_eq!(whole, read_replies(&single));
    for reply in &whole.0 {
        for inner in [Inner::Indented, Inner::Coded] {
            let again = read_replies(&[&reply.encode(inner)]);
            assert_eq!(again.0.len(), 1, "one reply is written as one: {reply:?}");
        }
        read_reply(reply);
    }
}

/// A data connection with a listing, in every form.
pub fn listings(bytes: &[u8]) {
    let now = Duration::from_secs(1_795_000_000);
    for form in [Form::Facts, Form::Names, Form::Ls { now }] {
        for reach in [Reach::Directory, Reach::Tree] {
            let whole = read_listing(form, reach, &[bytes]);
            let single: Vec<_> = bytes.chunks(1).collect();
            assert_eq!(whole, read_listing(form, reach, &single));
            for named in whole.0 {
                let leads_away = named.name.starts_with(b"/")
                    || named.name.split(|&b| b == b'/').any(|part| part == b"..");
                assert!(!leads_away, "{named:?}");
                assert!(
                    reach == Reach::Tree || !named.name.contains(&b'/'),
                    "{named:?}"
                );
            }
        }
    }
    if let Ok(named) = NamedFacts::parse(bytes)
        && !bytes.contains(&b'\n')
    {
        let _ = NamedFacts::parse(&named.encode()).expect("what was written can be read");
    }
}

/// Addresses in commands, and times.
pub fn addresses(bytes: &[u8]) {
    if let Ok(found) = address::commas(bytes) {
        let text = address::Commas(found).to_string();
        assert_eq!(address::commas(text.as_bytes()).ok(), Some(found));
    }
    if let Ok(found) = address::bars(bytes) {
        assert_eq!(
            address::bars(found.to_string().as_bytes()).ok(),
            Some(found)
        );
    }
    if let Ok(found) = address::list(bytes) {
        let text = address::list_text(&found);
        assert_eq!(address::list(text.as_bytes()).ok(), Some(found));
    }
    if let Some(at) = time::parse(bytes) {
        assert_eq!(
            time::parse(time::Written(at).to_string().as_bytes()),
            Some(at)
        );
    }
}

/// One command line, from a client.
pub fn commands(bytes: &[u8]) {
    if let Err(refusal) = Command::parse(bytes) {
        assert!((400..600).contains(&refusal.code), "{refusal:?}");
    }
}

const MODULES: [(&str, ModuleDirection); 2] = [
    ("reduce", ModuleDirection::Read),
    ("unpack", ModuleDirection::Write),
];

fn module((name, way): (&str, ModuleDirection)) -> ModuleName {
    ModuleName {
        name: name.into(),
        way,
        about: String::new(),
    }
}

/// A control connection, from a client, whose wishes are all granted or all
/// refused. Every reply can be read, and nothing asked leaves the export.
pub fn server(bytes: &[u8]) {
    let Some((&how, bytes)) = bytes.split_first() else {
        return;
    };
    let mut session = Session::new(Profile {
        modules: MODULES.map(module).into(),
        offers_gssapi: true,
        ..Profile::default()
    });
    let mut said = Vec::new();
    for piece in bytes.chunks(64) {
        session.on_bytes(piece);
        while let Some(step) = session.poll() {
            let SessionStep::Ask(ask) = step else {
                return;
            };
            for path in paths(&ask) {
                let down = |part| matches!(part, Component::Normal(_));
                assert!(path.components().all(down), "{ask:?}");
            }
            session.on_answer(answer(&ask, how & 1 == 1));
        }
        said.append(session.output());
    }
    let (_, refused) = read_replies(&[&said]);
    assert!(!refused, "{}", String::from_utf8_lossy(&said));
}

/// The names that a wish is about; where a link points to is its own affair.
fn paths(ask: &Ask) -> Vec<&Path> {
    match ask {
        Ask::Authenticate { .. }
        | Ask::Prove { .. }
        | Ask::DataCredential { .. }
        | Ask::Login { .. }
        | Ask::Listen { .. }
        | Ask::Aim { .. }
        | Ask::Hang => vec![],
        Ask::Rename { from, to } => vec![from, to],
        Ask::Stat { path }
        | Ask::Look { path }
        | Ask::Name { path }
        | Ask::Size { path }
        | Ask::Remove { path, .. }
        | Ask::MakeDir { path }
        | Ask::Change { path, .. }
        | Ask::Link { path, .. }
        | Ask::Digest { path, .. }
        | Ask::Show { path, .. }
        | Ask::List { path, .. }
        | Ask::Retrieve { path, .. }
        | Ask::Store { path, .. }
        | Ask::RetrieveThrough { path, .. }
        | Ask::StoreThrough { path, .. }
        | Ask::Landed { path, .. }
        | Ask::Finish { path, .. }
        | Ask::Leaves { path, .. }
        | Ask::Abandon { path, .. }
        | Ask::Hidden { path }
        | Ask::Space { path }
        | Ask::Flush { path } => vec![path],
    }
}

fn answer(ask: &Ask, granted: bool) -> FtpAnswer {
    match ask {
        Ask::Login { user, .. } => FtpAnswer::Welcome(Welcome {
            user: user.clone(),
            may_write: granted,
            home: "home".into(),
        }),
        _ if !granted => FtpAnswer::Failed(Refusal::of_kind(
            godwit_core::Kind::Missing,
            "no such file\r\n550 x",
        )),
        Ask::Listen { .. } => FtpAnswer::Listening(vec![([127, 0, 0, 1], 1234).into()]),
        Ask::Stat { .. } | Ask::Look { .. } => FtpAnswer::Stat(ListedStat {
            kind: ListedKind::File,
            size: 5,
            modify: Some(Duration::from_secs(1)),
            mode: Some(0o644),
            owner: None,
            group: None,
            owner_name: None,
            group_name: None,
            target: None,
            unique: None,
            touched: None,
        }),
        Ask::Prove { token } => FtpAnswer::Token(token.clone()),
        Ask::Size { .. } => FtpAnswer::Size(5),
        Ask::Digest { .. } => FtpAnswer::Digest("00".into()),
        Ask::List { .. }
        | Ask::Retrieve { .. }
        | Ask::Store { .. }
        | Ask::RetrieveThrough { .. }
        | Ask::StoreThrough { .. }
        | Ask::Finish { .. } => FtpAnswer::Sent(FtpOutcome::default()),
        Ask::Landed { .. } => FtpAnswer::Landed {
            size: Some(9),
            done: Extents::from(0..5),
        },
        Ask::Leaves { .. } => FtpAnswer::Leaves(vec![(0, Chain([7; 32]))]),
        Ask::Hidden { path } => FtpAnswer::Names(vec![path.clone()]),
        Ask::Space { .. } => FtpAnswer::Space {
            total_bytes: 2,
            free_bytes: 1,
        },
        _ => FtpAnswer::Done,
    }
}

/// More than two leaves.
const FILE_BYTES: usize = (1 << 20) + (1 << 16) + 3;

fn block(file: &[u8], range: std::ops::Range<usize>) -> Block<'_> {
    Block {
        offset: range.start as u64,
        bytes: &file[range],
    }
}

fn add(leaves: &mut Leaves, adler: &mut AdlerParts, file: &[u8], range: std::ops::Range<usize>) {
    leaves.add(Piece::of(block(file, range.clone())));
    adler.add(AdlerPart::of(block(file, range)));
}

/// Returns the replies, and whether the rest was refused.
fn read_replies(pieces: &[&[u8]]) -> (Vec<Reply>, bool) {
    let (mut replies, mut read) = (Replies::default(), Vec::new());
    for piece in pieces {
        replies.push(piece);
        loop {
            match replies.next_reply() {
                Ok(Some(reply)) => read.push(reply),
                Ok(None) => break,
                Err(_) => return (read, true),
            }
        }
    }
    (read, false)
}

fn read_reply(reply: &Reply) {
    let _ = (
        reply.said(),
        reply.globus_code(),
        Features::from_reply(reply).checksums(),
    );
    let _ = (
        address::Passive::from_reply(reply),
        client::ReplyFacts::from_reply(reply),
    );
    if let Ok(Some(marker)) = Marker::from_reply(reply) {
        let again = Marker::from_reply(&marker.to_reply());
        // A range marker may be empty, and a timestamp is cut to tenths.
        assert!(matches!(again, Ok(Some(_))), "{marker:?}");
    }
}

fn read_listing(form: Form, reach: Reach, pieces: &[&[u8]]) -> (Vec<NamedFacts>, bool) {
    let (mut listing, mut read) = (Listing::new(form, reach), Vec::new());
    for piece in pieces {
        listing.push(piece);
        loop {
            match listing.next_entry() {
                Ok(Some(named)) => read.push(named),
                Ok(None) => break,
                Err(_) => return (read, true),
            }
        }
    }
    match listing.finish() {
        Ok(last) => read.extend(last),
        Err(_) => return (read, true),
    }
    (read, false)
}
