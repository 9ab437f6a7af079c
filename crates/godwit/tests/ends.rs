//! One end of a transfer through doors dies in the middle; the other end reports it, stops, and resumes.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Machine, Scratch, assert_same, noise};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// Returns the file in an export that is not named `f`, and how many bytes have landed there.
fn partials(data: &Path) -> Vec<(PathBuf, u64)> {
    let entries = fs::read_dir(data).unwrap().map(|entry| entry.unwrap());
    let others = entries.filter(|entry| entry.file_name() != "f");
    others
        .filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.blocks() * 512)))
        .collect()
}

/// Waits until so much of `f` has landed.
fn landed(data: &Path, bytes: u64, client: &mut Child) {
    let until = Instant::now() + PATIENCE;
    while !partials(data).iter().any(|(_, landed)| *landed >= bytes) {
        assert!(
            Instant::now() < until,
            "nothing lands: {:?}",
            partials(data)
        );
        if client.try_wait().unwrap().is_some() {
            let mut said = String::new();
            client
                .stderr
                .as_mut()
                .unwrap()
                .read_to_string(&mut said)
                .unwrap();
            panic!("it is over already: {said}");
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn end(mut client: Child) {
    client.kill().unwrap();
    client.wait().unwrap();
}

/// Makes a large file, of which zeros would be left out.
fn large(at: &Path) {
    let (mut f, some) = (fs::File::create(at).unwrap(), noise(1 << 20, 1));
    (0..BYTES >> 20).for_each(|_| f.write_all(&some).unwrap());
}

/// Two machines with nodes and a third that knows both; the first has a file `f`.
fn three(scratch: &Scratch) -> [Machine<'_>; 3] {
    let [mut from, mut to, laptop] =
        ["from", "to", "laptop"].map(|name| Machine::new(scratch, name));
    for (node, name) in [(&mut from, "from"), (&mut to, "to")] {
        node.serve(name, &scratch.dir(format!("{name}/data")));
        node.joined_by(&laptop, "laptop");
    }
    large(&from.home.join("data/f"));
    [from, to, laptop]
}

fn begin(laptop: &Machine<'_>, words: &[&str]) -> Child {
    let mut command = laptop.command(words);
    let client = command.stdout(Stdio::null()).stderr(Stdio::piped());
    client.spawn().unwrap()
}

/// Copies from node to node, and kills the client when a part has landed.
fn killed_in_the_middle(laptop: &Machine<'_>, to: &Machine<'_>) {
    let mut client = begin(laptop, &["cp", "godwit://from/f", "godwit://to/f"]);
    landed(&to.home.join("data"), SOME, &mut client);
    end(client);
}

/// Repeats the command; returns the lines about the file and about all.
fn again(laptop: &Machine<'_>) -> (Value, Value) {
    let said = laptop.well(&["cp", "--json", "godwit://from/f", "godwit://to/f"]);
    let objects = said.lines().map(|line| serde_json::from_str(line).unwrap());
    let objects: Vec<Value> = objects.collect();
    let done = objects.iter().find(|object| object["event"] == "done");
    (done.expect(&said).clone(), objects.last().unwrap().clone())
}

#[test]
fn killed_copy_is_resumed() {
    let scratch = Scratch::new();
    let [from, to, laptop] = three(&scratch);
    killed_in_the_middle(&laptop, &to);
    let (done, _) = again(&laptop);
    assert!(
        done["resumed_bytes"].as_u64().unwrap() >= SOME / 2,
        "{done}"
    );
    assert_eq!(done["verified"], "verified blake3");
    assert_same(&from.home.join("data/f"), &to.home.join("data/f"));
    assert!(
        partials(&to.home.join("data")).is_empty(),
        "nothing else is left"
    );
}

#[test]
fn changed_source_is_copied_anew() {
    let scratch = Scratch::new();
    let [from, to, laptop] = three(&scratch);
    killed_in_the_middle(&laptop, &to);
    // As long as before and of the same time; ADLER32 would see no difference either.
    let f = fs::File::options()
        .write(true)
        .open(from.home.join("data/f"))
        .unwrap();
    let mtime = f.metadata().unwrap().modified().unwrap();
    let mut three = [0; 3];
    let some = fs::File::open(from.home.join("data/f")).unwrap();
    let at = (0..).find(|&at| {
        some.read_exact_at(&mut three, at).unwrap();
        three[0] < 255 && three[1] > 1 && three[2] < 255
    });
    let other = [three[0] + 1, three[1] - 2, three[2] + 1];
    f.write_all_at(&other, at.unwrap()).unwrap();
    f.set_modified(mtime).unwrap();
    let (done, _) = again(&laptop);
    assert_eq!(done["verified"], "verified blake3");
    assert_same(&from.home.join("data/f"), &to.home.join("data/f"));
}

#[test]
fn who_waits_says_for_whom() {
    let scratch = Scratch::new();
    let [mut from, to, laptop] = three(&scratch);
    let (source, target) = (to.home.join("f"), "godwit://from/g");
    large(&source);
    let mut client = begin(&laptop, &["cp", source.to_str().unwrap(), target]);
    landed(&from.home.join("data"), SOME, &mut client);
    from.kill();
    let lines = BufReader::new(client.stderr.take().unwrap()).lines();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        lines
            .map_while(Result::ok)
            .for_each(|line| drop(tell.send(line)))
    });
    let until = Instant::now() + PATIENCE;
    let mut said = Vec::new();
    while !said.iter().any(|line: &String| line.contains(WAITING)) {
        let left = until.saturating_duration_since(Instant::now());
        let line = told.recv_timeout(left);
        said.push(line.unwrap_or_else(|_| panic!("it does not say what it waits for: {said:?}")));
    }
    let waiting = said.last().unwrap();
    let named = format!("{}: {WAITING}", source.display());
    assert!(waiting.contains(&named), "{waiting}");
    assert!(
        waiting.ends_with("to answer again (connection refused), try 2 of 15"),
        "{waiting}"
    );
    end(client);
}

const WAITING: &str = "waiting for ";
/// More bytes than can be sent before the kill.
const BYTES: u64 = 256 << 20;
const SOME: u64 = 32 << 20;
const PATIENCE: Duration = Duration::from_secs(60);
