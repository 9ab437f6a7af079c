//! Nodes that pass on what they get, one behind the other.

use super::{Machine, Said, Scratch, assert_same, wait_until};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A laptop, which knows the first of some hops, each of which knows the next, and the last of them `dest`.
pub struct Chain<'a> {
    pub scratch: &'a Scratch,
    pub dest: Machine<'a>,
    /// The nearest to the laptop first.
    pub hops: Vec<Machine<'a>>,
    pub laptop: Machine<'a>,
}

impl<'a> Chain<'a> {
    pub fn of(scratch: &'a Scratch, hops: usize, options: &[&str]) -> Self {
        let mut dest = Machine::new(scratch, "dest");
        dest.serve("dest", &scratch.dir("far"));
        let laptop = Machine::new(scratch, "laptop");
        let mut chain = Self {
            scratch,
            dest,
            hops: Vec::new(),
            laptop,
        };
        for nth in (0..hops).rev() {
            let name = format!("hop{nth}");
            let mut hop = Machine::new(scratch, &name);
            hop.init(&name, &scratch.dir(format!("{name}.unused")));
            let next = chain.hops.first().unwrap_or(&chain.dest);
            next.joined_by(&hop, &name);
            let next = match nth + 1 == hops {
                true => "godwit://dest/".to_owned(),
                false => format!("godwit://hop{}/", nth + 1),
            };
            start(&mut hop, (&spool(scratch, nth), &next), options, &[]);
            chain.hops.insert(0, hop);
        }
        let first = chain.hops.first().unwrap_or(&chain.dest);
        first.joined_by(&chain.laptop, "laptop");
        chain
    }

    pub fn next(&self, nth: usize) -> String {
        match nth + 1 == self.hops.len() {
            true => "godwit://dest/".to_owned(),
            false => format!("godwit://hop{}/", nth + 1),
        }
    }

    /// Starts a hop again, with another fate perhaps.
    pub fn start(&mut self, nth: usize, crash: Option<&str>) {
        let next = self.next(nth);
        let environment: Vec<_> = crash.map(|at| ("GODWIT_CRASH", at)).into_iter().collect();
        let spool = spool(self.scratch, nth);
        start(&mut self.hops[nth], (&spool, &next), &[], &environment);
    }

    /// A program of the laptop, by a node of its own.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = self.laptop.command(words);
        command
            .env("GODWIT_SOCKET", self.scratch.join("run/socket"))
            .env("GODWIT_STATE", self.scratch.join("local"))
            .env("GODWIT_LOCAL_IDLE", "20s")
            .env_remove("GODWIT_SESSION")
            .stdin(Stdio::null());
        command
    }

    pub fn says(&self, words: &[&str]) -> Said {
        Said::of(&mut self.command(words))
    }

    #[track_caller]
    pub fn well(&self, words: &[&str]) -> String {
        let said = self.says(words);
        assert_eq!(said.status, Some(0), "{words:?}: {said}");
        String::from_utf8(said.stdout.clone()).unwrap()
    }

    /// Where a file is on its way, as lines of JSON.
    pub fn trace(&self, url: &str) -> Vec<Value> {
        let told = self.well(&["--json", "trace", url]);
        let lines = told.lines().map(|line| serde_json::from_str(line).unwrap());
        lines
            .filter(|line: &Value| line["event"] == "station")
            .collect()
    }

    pub fn far(&self, name: &str) -> PathBuf {
        self.scratch.join("far").join(name)
    }

    /// Returns the names at the last node.
    pub fn all_far(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.scratch.join("far")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    }

    #[track_caller]
    pub fn arrives(&self, name: &str, source: &Path) {
        wait_until(&format!("{name} is at its end"), || self.far(name).exists());
        assert_same(source, &self.far(name));
    }
}

impl Drop for Chain<'_> {
    fn drop(&mut self) {
        let stopped = self.says(&["node", "stop"]);
        if stopped.status != Some(0) && !std::thread::panicking() {
            panic!("{stopped}");
        }
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.scratch.join("local/node.log"));
            eprintln!("--- local node\n{}", log.unwrap_or_default());
            for hop in &self.hops {
                let log = hop.log();
                let kept: Vec<_> = log
                    .lines()
                    .filter(|l| !l.contains("TRACE") && !l.contains("DEBUG"))
                    .collect();
                eprintln!("--- {}\n{}", hop.home.display(), kept.join("\n"));
            }
        }
    }
}

pub fn spool(scratch: &Scratch, nth: usize) -> PathBuf {
    scratch.join(format!("spool{nth}"))
}

pub fn start(
    hop: &mut Machine<'_>,
    (spool, next): (&Path, &str),
    options: &[&str],
    environment: &[(&str, &str)],
) {
    let spool = spool.to_str().unwrap();
    let mut words = vec!["node", "--spool", spool, "--next", next];
    words.extend(["--ftp", "127.0.0.1:0", "--json"]);
    words.extend(options);
    hop.start_saying(&words, environment);
}
