//! The calls of `gfarm.h`, from C, on the nodes of a farm of this machine.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{
    machine::godwit,
    programs::{Scratch, all, compile, good, install, sources},
};
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

/// Nodes that end with the test.
struct Farm {
    scratch: Scratch,
    godwit: PathBuf,
    program: PathBuf,
    nodes: usize,
}

impl Farm {
    fn new(nodes: usize) -> Option<Self> {
        let godwit = godwit()?;
        let scratch = Scratch::new();
        let program = compile(&scratch, "tests/c/gfarm.c");
        let farm = Self {
            scratch,
            godwit,
            program,
            nodes,
        };
        let mut demo = Command::new(&farm.godwit);
        demo.args(["farm", "demo", "--nodes", &nodes.to_string(), "--dir"])
            .arg(farm.dir());
        good(&mut demo);
        Some(farm)
    }

    fn dir(&self) -> PathBuf {
        self.scratch.path().join("farm")
    }

    /// Prepares a program as a user of a node, as process `rank` of `size` if there is a size.
    fn at(&self, node: usize, (rank, size): (usize, usize), program: &Path) -> Command {
        let mut command = Command::new("timeout");
        let env = self.dir().join(format!("n{node}/env"));
        command
            .args(["-k", "5", "100", "bash", "-c", ". \"$0\"; exec \"$@\""])
            .arg(env)
            .arg(program)
            .env("LD_LIBRARY_PATH", self.scratch.path())
            .env("GODWIT_BIN", &self.godwit)
            .stdin(Stdio::null())
            .current_dir(self.scratch.path());
        for name in ["GODWIT_JOB", "GODWIT_FRAGMENT", "GODWIT_FRAGMENTS"] {
            command.env_remove(name);
        }
        if size > 0 {
            command
                .env("GODWIT_JOB", "job-1")
                .env("GODWIT_FRAGMENT", rank.to_string())
                .env("GODWIT_FRAGMENTS", size.to_string());
        }
        command
    }

    /// Does verbs of `gfarm.c`.
    fn does(&self, node: usize, rank: (usize, usize), verbs: &str) -> Output {
        let mut command = self.at(node, rank, &self.program);
        command.args(
            verbs
                .split(' ')
                .map(|word| word.replace('_', " ").trim().to_owned()),
        );
        command.output().unwrap()
    }

    #[track_caller]
    fn good(&self, node: usize, rank: (usize, usize), verbs: &str) -> String {
        let done = self.does(node, rank, verbs);
        assert!(done.status.success(), "{verbs}: {}", all(&done));
        String::from_utf8(done.stdout).unwrap()
    }

    #[track_caller]
    fn refused(&self, node: usize, rank: (usize, usize), verbs: &str, why: &str) {
        let done = self.does(node, rank, verbs);
        assert_eq!(done.status.code(), Some(1), "{verbs}: {}", all(&done));
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(said.contains(why), "{verbs}: {said}");
    }

    /// Begins verbs, and returns once they wait.
    fn waits(&self, node: usize, rank: (usize, usize), verbs: &str) -> Child {
        let mut command = self.at(node, rank, &self.program);
        command
            .args(verbs.split(' '))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let said = child.stdout.as_mut().unwrap();
        BufReader::new(said).read_line(&mut line).unwrap();
        assert_eq!(line, "waits\n");
        child
    }

    #[track_caller]
    fn verb(&self, node: usize, words: &[&str]) -> String {
        good(self.at(node, (0, 0), &self.godwit).args(words))
    }

    /// Returns the files below what a node serves.
    fn files(&self, node: usize) -> Vec<PathBuf> {
        let (mut found, mut dirs) = (Vec::new(), vec![self.dir().join(format!("n{node}/export"))]);
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => dirs.push(path),
                    false => found.push(path),
                }
            }
        }
        found
    }
}

impl Drop for Farm {
    fn drop(&mut self) {
        for node in 1..=self.nodes {
            let _ = self
                .at(node, (0, 0), &self.godwit)
                .args(["node", "stop"])
                .output();
        }
        let mut stop = Command::new(&self.godwit);
        let _ = stop
            .args(["farm", "demo", "--stop", "--dir"])
            .arg(self.dir())
            .output();
    }
}

/// Returns the bytes that the verb `fill` writes.
fn filled(bytes: usize, first: u64) -> Vec<u8> {
    (first..).flat_map(u64::to_ne_bytes).take(bytes).collect()
}

const ALONE: (usize, usize) = (0, 0);
const SIZE: usize = 3_000_001;

#[test] //= FARM-43
fn ranks_write_and_read_their_fragments() {
    let Some(farm) = Farm::new(2) else { return };
    let write = |rank: usize| {
        format!(
            "create gfarm:/o -w local seq fill {SIZE} {} close",
            rank * 1_000_000
        )
    };
    farm.good(1, (0, 2), &write(0));
    farm.refused(1, ALONE, "open gfarm:/o r-", "no such file");
    farm.refused(
        1,
        ALONE,
        "create gfarm:/o -w local - close",
        "is being written",
    );
    farm.good(2, (1, 2), &write(1));
    for (rank, node) in [(0, 1), (1, 2)] {
        let files = farm.files(node);
        assert_eq!(files.len(), 1, "{files:?}");
        let bytes = filled(SIZE, rank as u64 * 1_000_000);
        assert!(fs::read(&files[0]).unwrap() == bytes);
        let read = |node| {
            let mut read = farm.at(node, (rank, 2), &farm.program);
            read.args(["open", "grid:/o", "r-", "local", "", "cat", "close"]);
            read.output().unwrap()
        };
        // Where it lies, and from the other node.
        assert!(read(node).stdout == bytes);
        assert!(read(3 - node).stdout == bytes);
    }
    let mut whole = filled(SIZE, 0);
    whole.extend(filled(SIZE, 1_000_000));
    let mut read = farm.at(2, ALONE, &farm.program);
    let read = read.args(["open", "grid:/o", "r-", "cat", "close"]);
    assert!(read.output().unwrap().stdout == whole);
    let cat = farm
        .at(1, ALONE, &farm.godwit)
        .args(["cat", "grid:/o"])
        .output();
    assert!(cat.unwrap().stdout == whole);
}

/// While a node hangs, the fragment of another one comes.
#[test]
fn global_view_asks_several_homes() {
    let Some(farm) = Farm::new(3) else { return };
    let bytes = filled(2 * SIZE, 0);
    fs::write(farm.scratch.path().join("big"), &bytes).unwrap();
    let line = ["farm", "import", "--to", "n2,n3", "big", "grid:/big"];
    farm.verb(1, &line);
    let pid = fs::read_to_string(farm.dir().join("n2/pid")).unwrap();
    let signal = |name: &str| good(Command::new("kill").args([name, pid.trim()]));
    signal("-STOP");
    let mut read = farm.at(1, ALONE, &farm.program);
    read.args(["open", "grid:/big", "r-", "cat", "close"]);
    let read = read.stdout(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let has_come = || {
        let rows = farm.verb(1, &["cache", "ls", "--json"]);
        let mut second = rows.lines().filter(|row| row.contains("grid:/big#1/2"));
        second.any(|row| !row.contains("\"present_bytes\":0"))
    };
    let mut has_one = has_come();
    while !has_one && Instant::now() < deadline {
        has_one = has_come();
    }
    signal("-CONT");
    assert!(has_one, "one home was asked after the other");
    assert!(read.wait_with_output().unwrap().stdout == bytes);
}

/// A figure of the paper, compiled as it was printed.
#[test] //= FARM-90
fn figure_2_runs_as_printed() {
    let Some(farm) = Farm::new(1) else { return };
    install(farm.scratch.path());
    let program = farm.scratch.path().join("figure2");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-std=gnu89", "-w", "-o"])
        .arg(&program)
        .arg("-I")
        .arg(sources().join("include"))
        .arg(sources().join("tests/c/figure2.c"))
        .arg("-L")
        .arg(farm.scratch.path())
        .arg("-lgodwit");
    good(&mut compiler);
    let said = good(
        farm.at(1, ALONE, &program)
            .args(["gfarm:/figure", "some bytes"]),
    );
    assert!(
        said.contains("handle is NULL") && said.ends_with("\n10\n"),
        "{said}"
    );
    assert_eq!(farm.verb(1, &["cat", "grid:/figure"]), "some bytes");
}

#[test] //= FARM-32a
fn ended_process_takes_the_file_along() {
    let Some(farm) = Farm::new(2) else { return };
    farm.good(1, (0, 2), "create grid:/o -w local - write one close");
    let verbs = "create grid:/o -w local - write two wait";
    let mut dies = farm.waits(2, (1, 2), verbs);
    assert_eq!((farm.files(1).len(), farm.files(2).len()), (1, 1));
    farm.refused(1, ALONE, "open grid:/o r-", "no such file");
    dies.kill().unwrap();
    dies.wait().unwrap();
    // The node of that process sees it end: the lease of the draft would last longer.
    let deadline = Instant::now() + Duration::from_secs(6);
    loop {
        let done = farm.does(1, ALONE, "create grid:/o -w local - write three close");
        if done.status.success() {
            break;
        }
        assert!(Instant::now() < deadline, "{}", all(&done));
    }
    assert_eq!(farm.verb(2, &["cat", "grid:/o"]), "three");
    assert_eq!((farm.files(1).len(), farm.files(2).len()), (1, 0));
}

#[test] //= FARM-59 FARM-75 FARM-83
fn wrong_calls_are_refused_in_words() {
    let Some(farm) = Farm::new(2) else { return };
    farm.good(1, (0, 2), "create grid:/o -w local - write one close");
    farm.good(2, (1, 2), "create grid:/o -w local - write three close");
    for (rank, verbs, why) in [
        (ALONE, "open grid:/none r-", "no such file"),
        (ALONE, "open grid:/o rw-w", "exactly one of"),
        (ALONE, "open grid:/o r-+rep!rep", "exclude each other"),
        (ALONE, "open /etc/passwd r-", "name it gfarm:/path/name"),
        (ALONE, "create grid:/o -w", "there is one of that name"),
        (ALONE, "create grid:/p r-", "only read"),
        (
            ALONE,
            "open grid:/o r- local -",
            "it has 2 fragments, and the job 1",
        ),
        (
            (2, 3),
            "open grid:/o r- local -",
            "it has 2 fragments, and the job 3",
        ),
        (
            ALONE,
            "open grid:/o r- index -1 2 _",
            "it has 2 fragments, from 0 on",
        ),
        (
            ALONE,
            "open grid:/o r- index 3 1 _",
            "it has 2 fragments, not 3",
        ),
        (ALONE, "open grid:/o r- write x", "opened to read"),
        (
            ALONE,
            "create grid:/p -w index -1 0 _",
            "nfrags does not tell",
        ),
        (ALONE, "create grid:/p -w index 2 0 n9", "location at n9"),
        (
            ALONE,
            "create grid:/q -w index 2 0 n1 read 1",
            "opened to write",
        ),
        (
            (0, 2),
            "create grid:/r -w write x",
            "gfs_pio_set_view_local() first",
        ),
        (
            ALONE,
            "create grid:/s -w local - write x global -",
            "written in the view",
        ),
        (ALONE, "seek 0 0", "handle is NULL"),
    ] {
        farm.refused(1, rank, verbs, why);
    }
    // A fragment has one writer.
    let verbs = "create grid:/t -w index 2 0 n1 write x wait close";
    let mut first = farm.waits(1, (0, 2), verbs);
    farm.refused(1, (1, 2), "create grid:/t -w index 2 0 n1", "being written");
    farm.refused(2, ALONE, "create grid:/t -w index 2 1 n2", "being written");
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
}

#[test] //= FARM-46 FARM-75 FARM-88
fn views_show_fragments_and_the_whole() {
    let Some(farm) = Farm::new(2) else { return };
    // One process writes both, the second at the other node.
    farm.good(1, ALONE, "create grid:/o -w index 2 1 n2 write three close create grid:/o -w index 2 0 n1 write one close");
    assert_eq!((farm.files(1).len(), farm.files(2).len()), (1, 1));
    let said = farm.good(
        2,
        ALONE,
        "open grid:/o r- read 100 read 100 seek 2 0 read 3 seek -1 2 read 9 close",
    );
    assert_eq!(said, "8 onethree\n0 \n2\n3 eth\n7\n1 e\n");
    let said = farm.good(
        1,
        ALONE,
        "open grid:/o r- index -1 1 _ seek 1 0 read 2 close",
    );
    assert_eq!(
        said, "1\n2 hr\n",
        "part of it is read, and close has no complaint"
    );
    // The view may change after reading.
    let said = farm.good(
        1,
        ALONE,
        "open grid:/o r- read 1 index -1 1 _ read 9 global - read 4 close",
    );
    assert_eq!(said, "1 o\n5 three\n4 onet\n");
}

#[test] //= FARM-88
fn wrong_bytes_are_never_read() {
    let Some(farm) = Farm::new(2) else { return };
    farm.good(
        1,
        ALONE,
        &format!("create grid:/o -w local - fill {SIZE} 0 close"),
    );
    farm.verb(1, &["replicate", "--to", "n2", "grid:/o"]);
    let file = farm.files(1).remove(0);
    let mut bytes = fs::read(&file).unwrap();
    bytes[2_500_000] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let mut read = farm.at(1, ALONE, &farm.program);
    let read = read
        .args(["open", "grid:/o", "r-", "local", "", "cat", "close"])
        .output()
        .unwrap();
    assert!(
        read.status.success() && read.stdout == filled(SIZE, 0),
        "{}",
        read.status
    );
    let located = farm.verb(1, &["locate", "--json", "grid:/o"]);
    assert!(located.contains("damaged"), "{located}");
}

#[test] //= FARM-15
fn read_and_write_makes_a_version() {
    let Some(farm) = Farm::new(2) else { return };
    farm.good(1, (0, 2), "create grid:/o -w local - write one close");
    farm.good(2, (1, 2), "create grid:/o -w local - write three close");
    let mut reader = farm.waits(1, (0, 2), "open grid:/o r- local - wait read 9 close");
    farm.good(
        1,
        (0, 2),
        "open grid:/o rw local - seek 1 0 write NN read 9 close",
    );
    assert_eq!(farm.verb(1, &["cat", "grid:/o"]), "onethree");
    farm.good(2, (1, 2), "open grid:/o rw local - close");
    assert_eq!(farm.verb(1, &["cat", "grid:/o"]), "oNNthree");
    drop(reader.stdin.take());
    let mut said = String::new();
    reader
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert!(reader.wait().unwrap().success());
    assert_eq!(said, "3 one\n");
}

#[test]
fn guide_example_works() {
    let Some(farm) = Farm::new(2) else { return };
    let page = fs::read_to_string(sources().join("../../docs/guide/gfarm.md")).unwrap();
    let source = page
        .split("```c\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let file = farm.scratch.path().join("events.c");
    fs::write(&file, source).unwrap();
    let program = compile(&farm.scratch, file.to_str().unwrap());
    for (rank, word) in [(0, "one"), (1, "two")] {
        good(
            farm.at(rank + 1, (rank, 2), &program)
                .args(["gfarm:/events", word]),
        );
    }
    let lines = ["one", "two"].map(|word| (0..1000).map(move |i| format!("{word} {i}\n")));
    let expected: String = lines.into_iter().flatten().collect();
    assert_eq!(farm.verb(1, &["cat", "grid:/events"]), expected);
}

/// A job of the farm has a process beside each fragment, and each writes a fragment there.
#[test]
fn programs_of_the_farm_write_fragments() {
    let Some(farm) = Farm::new(2) else { return };
    let text = farm.scratch.path().join("text");
    fs::write(&text, "one\ntwo\nthree\n").unwrap();
    farm.verb(
        1,
        &[
            "farm",
            "import",
            "--lines",
            "--parts",
            "2",
            text.to_str().unwrap(),
            "grid:/t",
        ],
    );
    let library = format!("LD_LIBRARY_PATH={}", farm.scratch.path().display());
    let godwit = format!("GODWIT_BIN={}", farm.godwit.display());
    let run = |verbs: &str| {
        let mut words = vec![
            "farm",
            "run",
            "grid:/t",
            "--",
            "env",
            &library,
            &godwit,
            farm.program.to_str().unwrap(),
        ];
        words.extend(verbs.split(' '));
        farm.verb(1, &words)
    };
    run("create gfarm:/o -w local - write some close");
    assert_eq!(farm.verb(1, &["cat", "grid:/o"]), "somesome");
    for node in [1, 2] {
        assert_eq!(farm.files(node).len(), 2);
    }
    let said = run("open gfarm:/o r- local - read 9 close");
    assert_eq!(said, "4 some\n4 some\n");
}
