//! An account whose disk is full, or whose quota is used up, while it uploads to a node that root
//! started: its part goes at once, the message says what is full, and the same command works once
//! there is room. Only root can mount disks; what a machine cannot do is skipped with the reason.

#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{
    Scratch, assert_same,
    farm::Farm,
    lab::{Lab, url},
    skip, text,
};
use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

#[test]
fn upload_arrives_once_full_disk_has_room() {
    let lab = Lab::new();
    let Some(disk) = mounted(Disk::with_reserve(&lab.scratch)) else {
        return;
    };
    // Half of the disk is reserved for root.
    let ballast = disk.export.join("ballast");
    fs::write(&ballast, vec![7; 16 << 20]).unwrap();
    upload(&lab, &disk, "no space left", || {
        fs::remove_file(&ballast).unwrap();
    });
}

#[test]
fn upload_arrives_once_quota_is_raised() {
    let lab = Lab::new();
    let Some(disk) = mounted(Disk::with_quota(&lab.scratch)) else {
        return;
    };
    upload(&lab, &disk, "quota exceeded", || disk.quota.raise());
}

/// An import, and a task that prints, go elsewhere if a node has no room. What is read from a pipe, and a program that
/// writes itself, fail in words.
#[test] //= FARM-51c
fn full_node_is_passed_over() {
    let farm = Farm {
        scratch: Scratch::new(),
    };
    let script = "mkdir -p farm/n2/export && mount -t tmpfs -o size=4m none farm/n2/export || exit 99
        godwit farm demo --nodes 2 --dir farm && . farm/n1/env || exit
        seq 1500000 > text && head -n 300000 text > small
        godwit farm import --size 5M - grid:/t < text 2> import && exit 3
        godwit stat grid:/t && exit 4
        godwit farm import --lines --parts 4 --json text grid:/t > imported || exit
        godwit cat grid:/t | cmp - text || exit 7
        find farm/n2/export/.farm -name '#*' > at-n2 && godwit rm grid:/t || exit
        godwit farm import --lines --parts 2 small grid:/s || exit
        godwit farm run --out grid:/p grid:/s -- sh -c 'cat {in} {in} {in} {in} {in} > {out}' 2> out && exit 5
        godwit stat grid:/p && exit 6
        godwit farm run --json --stdout grid:/o grid:/s -- cat {in} {in} {in} {in} {in} > rows || exit
        godwit cat grid:/o | wc -c; stat -c %s small; find farm/n2/export/.farm -name '#*' | wc -l";
    fs::write(farm.scratch.join("script"), script).unwrap();
    let said = farm.shell("unshare -m bash script");
    if said.status == Some(99) || farm.shell("unshare -m true").status != Some(0) {
        return skip("no disk of a test can be mounted");
    }
    let text = |file: &str| fs::read_to_string(farm.scratch.join(file)).unwrap();
    assert_eq!(said.status, Some(0), "{said}");
    let numbers: Vec<u64> = (String::from_utf8_lossy(&said.stdout).lines())
        .filter_map(|line| line.parse().ok())
        .collect();
    assert_eq!(numbers, [5 * numbers[1], numbers[1], 1], "{said}");
    let import = text("import");
    assert!(import.contains("#1.0: no space left: at n2"), "{import}");
    let imported = text("imported");
    assert_eq!(imported.matches("\"site\":\"n1\"").count(), 3, "{imported}");
    assert_eq!(text("at-n2").lines().count(), 1);
    let out = text("out");
    assert!(
        out.contains("No space left") && out.contains("status 1 at n2"),
        "{out}"
    );
    let rows = text("rows");
    assert_eq!(rows.matches("\"node\":\"n1\"").count(), 2, "{rows}");
}

fn mounted(disk: Result<Disk, String>) -> Option<Disk> {
    disk.map_err(|why| skip(&why)).ok()
}

/// Alice uploads more than there is room for; then the disk or quota grows.
fn upload(lab: &Lab, disk: &Disk, words: &str, make_room: impl FnOnce()) {
    lab.map(&format!("\"/O=Lab/CN=alice\" {ALICE}\n"));
    fs::write(lab.path("node.toml"), "[node]\nuser = \"nobody\"\n").unwrap();
    let node = || lab.node_at(&disk.export, "host", &["--config", &lab.text("node.toml")]);
    let source = lab.scratch.file("large", SIZE_BYTES);
    let put = |port_of: &common::Node| {
        let to = url(port_of, "large");
        lab.run("alice", &["cp", "--json", source.to_str().unwrap(), &to])
    };

    let first = node();
    let said = put(&first);
    assert_eq!(said.status, Some(7), "{said}");
    assert!(said.stderr.contains(words), "wanted {words:?} in {said}");
    let log = fs::read_to_string(disk.export.with_extension("log")).unwrap();
    assert!(log.to_lowercase().contains(words), "{log}");
    assert!(!disk.export.join("large").exists());
    let is_part = |name: &std::ffi::OsStr| name.as_encoded_bytes().ends_with(b".part");
    let has_part = || {
        let mut names = fs::read_dir(&disk.export).unwrap().flatten();
        names.any(|name| is_part(&name.file_name()))
    };
    let begun = Instant::now();
    while has_part() {
        assert!(begun.elapsed() < Duration::from_secs(20), "a part is left");
        thread::sleep(Duration::from_millis(50));
    }
    drop(first);

    make_room();
    put(&node()).ok();
    let there = disk.export.join("large");
    assert_same(&source, &there);
    assert_eq!(fs::metadata(there).unwrap().uid(), ALICE);
}

/// A file system in a file, with an export in it that is Alice's. Gone when dropped.
struct Disk {
    at: PathBuf,
    export: PathBuf,
    quota: Quota,
}

/// Alice's quota, and what enforces it.
enum Quota {
    None,
    /// For each account.
    Ext4(PathBuf),
    /// For a subvolume.
    Btrfs(PathBuf),
}

impl Disk {
    /// Half of it is kept for root.
    fn with_reserve(scratch: &Scratch) -> Result<Self, String> {
        let disk = Self::mount(scratch, 64 << 20, &["mkfs.ext4", "-q", "-m", "50"], "loop")?;
        disk.begin()
    }

    /// As ext4 has them, else as btrfs has them.
    fn with_quota(scratch: &Scratch) -> Result<Self, String> {
        Self::ext4_with_quota(scratch)
            .or_else(|why| Self::btrfs_with_quota(scratch).map_err(|also| format!("{why}; {also}")))
    }

    fn ext4_with_quota(scratch: &Scratch) -> Result<Self, String> {
        let make = ["mkfs.ext4", "-q", "-O", "quota", "-E", "quotatype=usrquota"];
        let mut disk = Self::mount(scratch, 64 << 20, &make, "loop,usrquota")?;
        disk.quota = Quota::Ext4(disk.at.clone());
        disk.quota.set(ROOM_BYTES)?;
        disk.begin()
    }

    fn btrfs_with_quota(scratch: &Scratch) -> Result<Self, String> {
        let mut disk = Self::mount(scratch, 256 << 20, &["mkfs.btrfs", "-q"], "loop")?;
        let (at, export) = (disk.at.to_str().unwrap(), disk.export.to_str().unwrap());
        run(&["btrfs", "quota", "enable", at])?;
        run(&["btrfs", "subvolume", "create", export])?;
        disk.quota = Quota::Btrfs(disk.export.clone());
        disk.quota.set(ROOM_BYTES)?;
        disk.begin()
    }

    fn mount(
        scratch: &Scratch,
        size_bytes: u64,
        make: &[&str],
        options: &str,
    ) -> Result<Self, String> {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            return Err("only root can mount a disk".into());
        }
        let (image, at) = (scratch.join(make[0]), scratch.dir("disk"));
        fs::File::create(&image)
            .unwrap()
            .set_len(size_bytes)
            .unwrap();
        let (image, place) = (image.to_str().unwrap(), at.to_str().unwrap());
        run(&[make, &[image]].concat())?;
        run(&["mount", "-o", options, image, place])?;
        Ok(Self {
            export: at.join("export"),
            at,
            quota: Quota::None,
        })
    }

    fn begin(self) -> Result<Self, String> {
        fs::create_dir_all(&self.export).unwrap();
        chown(&self.export, Some(ALICE), Some(ALICE)).unwrap();
        Ok(self)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).output();
    }
}

impl Quota {
    fn set(&self, bytes: u64) -> Result<(), String> {
        match self {
            Self::None => Ok(()),
            Self::Ext4(disk) => {
                let (user, blocks) = (ALICE.to_string(), (bytes >> 10).to_string());
                let words = ["setquota", "-u", &user, "0", &blocks, "0", "0"];
                run(&[&words[..], &[text(disk)]].concat())
            }
            Self::Btrfs(export) => {
                run(&["btrfs", "qgroup", "limit", &bytes.to_string(), text(export)])
            }
        }
    }

    fn raise(&self) {
        self.set(ROOM_BYTES * 4).unwrap();
    }
}

/// Runs a program of the system, or tells why that cannot be.
fn run(words: &[&str]) -> Result<(), String> {
    let done = Command::new(words[0]).args(&words[1..]).output();
    let done = done.map_err(|error| format!("{}: {error}", words[0]))?;
    match done.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&done.stderr);
            Err(format!("{}: {}", words.join(" "), said.trim()))
        }
    }
}

/// An account without a name.
const ALICE: u32 = 61_001;
const ROOM_BYTES: u64 = 9 << 20;
/// More than fits at first, and less than fits later.
const SIZE_BYTES: usize = 12 << 20;
