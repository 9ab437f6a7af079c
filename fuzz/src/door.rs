//! Parsers of the door: ranges, packs, calls and paths.

use godwit_wire::door::{
    call::{
        self, AskBecame, AskDigest, AskDraw, AskFinish, AskGrant, AskJoin, AskList, AskMkdir,
        AskPath, AskPublish, AskRead, AskRemove, AskRename, AskSet, AskStat, AskUpload, Line,
        PackedEnd, PackedFile,
    },
    catalog::{Changes, Question},
    pack::{self, Decoder, Frame, FrameKind},
    path,
    range::{self, Asked},
};
use std::path::{Component, Path};

/// Ranges of HTTP, as they are asked for and told.
pub fn door_ranges(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(Some(asked)) = Asked::read(&text) {
        for size in [0, 1, 10, u64::MAX] {
            let Some(range) = asked.of(size) else {
                continue;
            };
            assert!(range.start < range.end && range.end <= size, "{range:?}");
            let again = Asked::read(&range::asking(&range)).expect("we wrote it");
            assert_eq!(again.and_then(|again| again.of(size)), Some(range));
        }
    }
    if let Ok((range, size)) = range::of_content(&text) {
        assert!(range.start < range.end && size.is_none_or(|size| range.end <= size));
        assert_eq!(
            range::of_content(&range::content(&range, size)),
            Ok((range, size))
        );
    }
}

/// A pack: what is found does not depend on how it comes divided, and is written as it was.
pub fn door_packs(bytes: &[u8]) {
    let whole = found(&[bytes]);
    let single: Vec<_> = bytes.chunks(1).collect();
    assert_eq!(whole, found(&single));
    let (frames, error) = whole;
    let again = frames.concat();
    if error.is_none() {
        assert_eq!(found(&[&again]).0, frames);
    }
}

/// Returns frames as we would write them, joined where bytes follow each other, and why no more.
fn found(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Option<String>) {
    let (mut decoder, mut frames) = (Decoder::new(), Vec::<Vec<u8>>::new());
    let mut open = None::<(u64, Vec<u8>)>;
    let close = |open: &mut Option<(u64, Vec<u8>)>, frames: &mut Vec<Vec<u8>>| {
        if let Some((offset, bytes)) = open.take() {
            frames.push(pack::frame(FrameKind::Data, offset, &bytes));
        }
    };
    for piece in pieces {
        let mut input = *piece;
        loop {
            let (taken, frame) = match decoder.next(input) {
                Ok(next) => next,
                Err(error) => {
                    close(&mut open, &mut frames);
                    return (frames, Some(error.to_string()));
                }
            };
            assert!(taken <= input.len());
            input = &input[taken..];
            let Some(frame) = frame else {
                assert!(input.is_empty(), "all is taken if more is needed");
                break;
            };
            if let Frame::Data(offset, bytes) = frame {
                assert!(offset.checked_add(bytes.len() as u64).is_some());
                match &mut open {
                    Some((begin, held)) if *begin + held.len() as u64 == offset => {
                        held.extend(bytes);
                    }
                    _ => {
                        close(&mut open, &mut frames);
                        open = Some((offset, bytes.to_vec()));
                    }
                }
                continue;
            }
            close(&mut open, &mut frames);
            frames.push(match frame {
                Frame::File(number, text) => pack::frame(FrameKind::File, number, text.as_bytes()),
                Frame::End(number, text) => pack::frame(FrameKind::End, number, text.as_bytes()),
                Frame::Leaf(number, chain) => pack::leaf(number, &chain),
                Frame::Last(count) => pack::frame(FrameKind::Last, count, b""),
                Frame::Data(..) => unreachable!("it was taken above"),
            });
        }
    }
    close(&mut open, &mut frames);
    let is_cut = (!decoder.is_over()).then(|| "cut".to_owned());
    (frames, is_cut)
}

/// Calls and their answers: one that was read is the same after it is written and read again.
pub fn door_calls(bytes: &[u8]) {
    macro_rules! comes_back {
        ($($form:ty),*) => {$(
            if let Ok(read) = call::read::<$form>(bytes) {
                assert_eq!(call::read::<$form>(&call::write(&read)).as_ref(), Ok(&read));
            }
        )*};
    }
    comes_back!(
        AskStat, AskList, AskPath, AskBecame, AskDigest, AskRead, AskUpload, AskFinish, AskPublish,
        AskGrant, AskDraw, AskJoin, AskRemove, AskRename, AskMkdir, AskSet, PackedEnd, PackedFile,
        Question, Changes
    );
    if let Ok(line) = Line::read(bytes) {
        let written = line.write();
        let text = written.strip_suffix(b"\n").expect("a line has an end");
        assert!(!text.contains(&b'\n'));
        assert_eq!(Line::read(text), Ok(line));
    }
}

/// Paths in targets and in JSON: what is read leads nowhere else, and comes back.
pub fn door_paths(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for read in [path::unescaped(&text), path::of_target(&text)]
        .into_iter()
        .flatten()
    {
        assert!(leads_down(&read), "{read:?}");
        assert_eq!(path::unescaped(&path::escaped(&read)), Ok(read));
    }
    if let Ok(read) = path::anything(&text) {
        assert_eq!(path::anything(&path::escaped(&read)), Ok(read));
    }
}

fn leads_down(path: &Path) -> bool {
    path.components()
        .all(|part| matches!(part, Component::Normal(_)))
}

/// One of each.
pub const CALLS: &[&[u8]] = &[
    br#"{"paths":["a/b%20c","d"]}"#,
    br#"{"path":"a","deep":true}"#,
    br#"{"path":"a","by":"blake3","range":[0,18446744073709551615]}"#,
    br#"{"files":[{"path":"a","ranges":"0-100,200-300"}],"digests":true}"#,
    br#"{"path":"a","how":{"replace":{"weak":{"size":5,"mtime":"12.000000345","seen_at":"13.000000000"}}},"size":5,"mode":420,"checks":[true,false],"resume":true}"#,
    br#"{"path":"a","how":{"append":{"writer":7,"seq":1}},"checks":[true,true],"resume":false,"id":"x","origin":["y",{"generation":{"server":"s","name":"n"}}]}"#,
    br#"{"path":"a","whole":{"size":5,"digest":"blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85","mtime":"12.000000345"}}"#,
    br#"{"path":"a","from":["127.0.0.1:1"],"key":"00","secret":"s","source":"b","ranges":"","streams":4,"digests":true}"#,
    br#"{"secret":"s","name":"me","addresses":["h:1"]}"#,
    br#"{"path":"a","length":5,"mode":420,"mtime":"1.000000000","link_to":"../x"}"#,
    br#"{"read":[{"kind":"file","size":5,"mtime":"1.000000000"},null]}"#,
    br#"{"refused":{"why":"incomplete","said":"x","missing":[10,"0-5"]}}"#,
    br#"{"hello":{"name":"godwit","version":"0.1.0","speaks":[1,1],"who":null,"account":"me","can":{"any_order":true,"digests":["blake3"]}}}"#,
    br#"{"entry":{"path":"a","stat":{"kind":"link","size":0,"target":"b"}}}"#,
    br#"{"landed":{"id":"x","done":"0-5","leaves":[[0,"6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"]]}}"#,
    br#"{"error":{"why":"corrupt","said":"x","differs":["a","b"]}}"#,
    br#"{"beat":5}"#,
    br#""end""#,
];
