//! Times calls of a door that no verb makes: a read of a thousand ranges, the attributes of ten thousand names.
//!
//! `door_probe URL read LOCAL RANGES BYTES STREAMS` reads random ranges of a file, and compares them with a local
//! file. `door_probe URL stat NAMES` asks for `NAMES/1000` directories `dNN` of a thousand files `fNNNNN` below the
//! URL. Each call is made four times: first on a new connection, then after a greeting, and twice more. One line of
//! JSON has the seconds of each call, without the setup.
#![allow(clippy::unwrap_used)] // its user reads where it panicked

use godwit_core::{Block, Extents, Url};
use godwit_store::{
    BlockWriter, RemoteOptions, Result, Store, TrustOptions, channel::Cancel, door::Door,
};
use godwit_trust::{Authorities, Credential};
use std::{
    env,
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Instant,
};

/// Asks, with ranges of this seed, and returns the seconds.
type Ask = dyn Fn(&Door, u64) -> f64;

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let url: Url = words.first().expect("a URL").parse().unwrap();
    let path = url.as_path().strip_prefix("/").unwrap().to_path_buf();
    let ask: Box<Ask> = match words[1..] {
        ["read", local, ranges, bytes, streams] => {
            let local = File::open(local).unwrap();
            let (ranges, bytes): (u64, u64) = (ranges.parse().unwrap(), bytes.parse().unwrap());
            let streams: usize = streams.parse().unwrap();
            Box::new(move |door, seed| {
                let want = random(seed, local.metadata().unwrap().len(), ranges, bytes);
                read(door, &path, &want, streams, &local)
            })
        }
        ["stat", names] => {
            let names: Vec<PathBuf> = (0..names.parse().unwrap())
                .map(|n: u64| path.join(format!("d{:02}/f{:05}", n / 1000, n % 1000)))
                .collect();
            Box::new(move |door, _| stat(door, &names))
        }
        _ => panic!("door_probe URL read LOCAL RANGES BYTES STREAMS | stat NAMES"),
    };
    let cold = ask(&open(&url), 1);
    let door = open(&url);
    door.can().unwrap();
    let [greeted, again, once_more] = [2, 3, 4].map(|seed| ask(&door, seed));
    println!(
        "{}",
        serde_json::json!({"cold": cold, "greeted": greeted, "again": again, "once_more": once_more})
    );
}

/// Opens a node as the command line does; no call is made yet.
fn open(url: &Url) -> Door {
    let options = RemoteOptions {
        trust: TrustOptions {
            credential: Credential::discover().unwrap(),
            authorities: Some(Authorities::discover().unwrap()),
            ..TrustOptions::default()
        },
        ..RemoteOptions::new(Cancel::new().unwrap())
    };
    Door::open(url, &options).unwrap()
}

/// Returns `ranges` ranges that do not touch, of `bytes` bytes each, at random places in their shares of the file.
fn random(seed: u64, size: u64, ranges: u64, bytes: u64) -> Extents {
    let share = size / ranges;
    assert!(
        share > 2 * bytes,
        "the file is too small for so many ranges"
    );
    let mut state = seed;
    let mut want = Extents::new();
    for nth in 0..ranges {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        let start = nth * share + (state >> 16) % (share - bytes - 1);
        want.insert(start..start + bytes);
    }
    want
}

fn read(door: &Door, path: &Path, want: &Extents, streams: usize, local: &File) -> f64 {
    let came = Came::default();
    let begun = Instant::now();
    door.read(path, want, streams, &came).unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    let mut seen = Extents::new();
    for (offset, bytes) in came.0.into_inner().unwrap() {
        let mut wanted = vec![0; bytes.len()];
        local.read_exact_at(&mut wanted, offset).unwrap();
        assert!(bytes == wanted, "the bytes at {offset} differ");
        seen.insert(offset..offset + bytes.len() as u64);
    }
    assert!(seen == *want, "what came is not what was asked");
    seconds
}

fn stat(door: &Door, names: &[PathBuf]) -> f64 {
    let mut told = 0;
    let begun = Instant::now();
    door.stat_many(names, &mut |path, stat| {
        assert!(stat?.size == 4096, "{} has another size", path.display());
        told += 1;
        Ok(())
    })
    .unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    assert!(told == names.len());
    seconds
}

/// Keeps blocks as they come.
#[derive(Default)]
struct Came(Mutex<Vec<(u64, Vec<u8>)>>);

impl BlockWriter for Came {
    fn put(&self, block: Block<'_>) -> Result<()> {
        self.0
            .lock()
            .unwrap()
            .push((block.offset, block.bytes.into()));
        Ok(())
    }
}
