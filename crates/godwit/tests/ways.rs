//! Programs that know nothing of godwit: `godwit run -- PROGRAM` shows them files of other machines.
#![allow(clippy::unwrap_used)]

mod common;

use common::{
    Node, Said, Scratch, assert_same, can_mount, lasting_port, programs::Machine, skip, wait_until,
};
use std::{
    fs,
    io::Write,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::{Command, Stdio},
};

/// A machine, and a server of FTP.
struct Site {
    machine: Machine,
    export: std::path::PathBuf,
    node: Node,
}

impl Site {
    /// `None`: this account cannot mount.
    fn new() -> Option<Self> {
        let machine = can_mount().then(Machine::new)?;
        let export = machine.scratch.dir("export");
        let node = Node::on(&export, lasting_port(), &["--anonymous", "write"]);
        Some(Self {
            machine,
            export,
            node,
        })
    }

    fn path(&self, name: &str) -> String {
        format!("/godwit/ftp:127.0.0.1:{}/{name}", self.node.port)
    }

    /// Has the file `node` name the process of this machine's node, which is started if there is none.
    fn name_node(&self) -> std::path::PathBuf {
        self.machine.says(&["run", "--", "true"]).ok();
        let process = self.machine.process().unwrap().to_string();
        let name = self.machine.scratch.join("node");
        fs::write(&name, process).unwrap();
        name
    }

    /// Runs a program of Python in the mount. `$G` is the directory of the server in the mount, `$E` on its disk, and `$N`
    /// names the process of the node.
    fn python(&self, options: &[&str], program: &str) -> Said {
        let words = [&["run"], options, &["--", "python3", "-c", program]].concat();
        let mut command = self.machine.command(&words);
        command.env("G", self.path("").trim_end_matches('/'));
        Said::of(command.env("E", &self.export).env("N", self.name_node()))
    }

    /// Runs a line of a shell in the mount, where `$G` is the directory of the server.
    fn shell(&self, options: &[&str], line: &str) -> Said {
        let words = [&["run"], options, &["--", "bash", "-c", line]].concat();
        let mut command = self.machine.command(&words);
        command.env("G", self.path("").trim_end_matches('/'));
        Said::of(&mut command)
    }
}

#[test]
fn programs_copy_from_and_to_servers() {
    let Some(site) = Site::new() else { return };
    let source = site.machine.scratch.file("source", 3_000_000);
    let (there, here) = (site.path("there"), site.machine.scratch.join("here"));
    let to = ["run", "--promise", "push", "--", "cp", "source", &there];
    site.machine.says(&to).ok();
    assert_same(&source, &site.export.join("there"));
    let from = ["run", "--", "cp", &there, here.to_str().unwrap()];
    site.machine.says(&from).ok();
    assert_same(&source, &here);
}

#[test] //= ways-in#promises
fn writes_to_absent_servers_arrive() {
    let Some(mut site) = Site::new() else { return };
    let source = site.machine.scratch.file("source", 200_000);
    site.node.kill();
    site.machine
        .says(&["run", "--", "cp", "source", &site.path("there")])
        .ok();
    let read = ["run", "--wait", "1s", "--", "cat", &site.path("other")];
    let away = site.machine.says(&read);
    assert_eq!(away.status, Some(1), "{away}");
    assert!(!away.stderr.contains("No such file"), "{away}");
    site.machine.kill();
    site.node = Node::on(&site.export, site.node.port, &["--anonymous", "write"]);
    site.machine.says(&["push", "--timeout", "30"]).ok();
    assert_same(&source, &site.export.join("there"));
}

#[test] //= ways-in#promises
fn run_ends_with_its_program() {
    let Some(site) = Site::new() else { return };
    let here = site.machine.scratch.path().canonicalize().unwrap();
    let pwd = site.shell(&[], "pwd").ok();
    assert_eq!(
        String::from_utf8_lossy(&pwd.stdout).trim(),
        here.to_str().unwrap()
    );
    assert_eq!(site.shell(&[], "exit 7").status, Some(7));
    assert_eq!(site.shell(&[], "kill -9 $$").status, Some(137));
    let none = site.machine.says(&["run", "--", "no-such-program"]);
    assert_eq!(none.status, Some(127), "{none}");
    let hosts = site.shell(&[], "ls -d /godwit/.git; cat $G/none");
    assert_eq!(hosts.stderr.matches("No such file").count(), 2, "{hosts}");
    // A program that goes on in the background is waited for.
    site.shell(&["--promise", "push"], "(sleep 1; echo late > $G/late) &")
        .ok();
    assert_eq!(fs::read(site.export.join("late")).unwrap(), b"late\n");
}

#[test] //= ways-in#promises
fn redirections_and_appends_are_written() {
    let Some(site) = Site::new() else { return };
    let line = "set -e; echo one > $G/a; cat < $G/a; echo two >> $G/a; cat $G/a; \
        dd if=/dev/zero of=$G/a bs=1 count=1 seek=1 conv=notrunc status=none; \
        python3 -c 'import os; print(os.stat(os.environ[\"G\"] + \"/a\").st_size)'";
    let said = site.shell(&["--promise", "push"], line).ok();
    assert_eq!(said.stdout, b"one\none\ntwo\n8\n", "{said}");
    assert_eq!(fs::read(site.export.join("a")).unwrap(), b"o\0e\ntwo\n");
}

/// Tools that rename, list, map, append from threads, lock and execute.
#[test] //= KANGAROO-43 ways-in#promises
fn ordinary_tools_work_on_servers() {
    let Some(site) = Site::new() else { return };
    let scratch = &site.machine.scratch;
    fs::write(scratch.join("tool.py"), TOOL).unwrap();
    let line = "set -e; mkdir -p $G/d/e; cp source $G/d/a; mv $G/d/a $G/d/e/b; cmp source $G/d/e/b; \
        test ! -e $G/d/a; cd $G/d; ls e; cd e; cp -p b c; stat -c %Y b c | uniq | wc -l; rm b c; ls; \
        cd ..; rmdir e; test ! -e e; python3 $S/tool.py; \
        printf '#!/bin/sh\\necho ran $1\\n' > script; chmod +x script; ./script it; \
        tar cf t.tar -C $S source; tar tf t.tar; env -i cat t.tar | wc -c; truncate -s 5 t.tar; stat -c %s t.tar";
    scratch.file("source", 100_000);
    let words = ["run", "--promise", "push", "--", "bash", "-c", line];
    let mut command = site.machine.command(&words);
    command.env("G", site.path("").trim_end_matches('/'));
    command.env("S", scratch.path());
    let said = Said::of(&mut command).ok();
    let words = String::from_utf8_lossy(&said.stdout).into_owned();
    assert_eq!(
        words, "b\n1\nabc\n400\n20\nran it\nsource\n102400\n5\n",
        "{said}"
    );
    assert_eq!(fs::metadata(site.export.join("d/t.tar")).unwrap().len(), 5);
    assert!(!site.export.join("d/e").exists());
}

/// A shared mapping, appends of four threads, and a database with its journal.
const TOOL: &str = "
import mmap, os, sqlite3, threading
with open('map', 'w+b') as f:
    f.truncate(8192)
    with mmap.mmap(f.fileno(), 8192) as m:
        m[0:3] = b'abc'
print(open('map').read(3))
def add(i):
    fd = os.open('log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for _ in range(50):
        os.write(fd, b'%d\\n' % i)
    os.close(fd)
threads = [threading.Thread(target=add, args=(i,)) for i in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(os.path.getsize('log'))
db = sqlite3.connect('db')
db.execute('create table t(x)')
for i in range(20):
    with db:
        db.execute('insert into t values(?)', (i,))
print(db.execute('select count(*) from t').fetchone()[0])
";

#[test] //= ways-in#promises
fn directories_are_mounted_and_unmounted() {
    let Some(site) = Site::new() else { return };
    let far = site.machine.scratch.dir("far");
    let mounted = site.machine.says(&["mount", "far"]);
    if mounted.status == Some(1) && mounted.stderr.contains("fusermount3") {
        skip("mounting needs root or fusermount3");
        return;
    }
    mounted.ok();
    let twice = site.machine.says(&["mount", "far"]);
    let words = (twice.status, twice.stderr.contains("godwit umount"));
    assert_eq!(words, (Some(2), true), "{twice}");
    let there = far.join(format!("ftp:127.0.0.1:{}/there", site.node.port));
    fs::write(&there, "new").unwrap();
    assert_eq!(fs::read(&there).unwrap(), b"new");
    let used = fs::File::open(&there).unwrap();
    assert_eq!(site.machine.says(&["umount", "far"]).status, Some(1));
    drop(used);
    site.machine
        .says(&["umount", "--push", "--timeout", "30", "far"])
        .ok();
    assert_eq!(fs::read(site.export.join("there")).unwrap(), b"new");
    let none = site.machine.says(&["umount", "far"]);
    assert_eq!(none.status, Some(2), "{none}");
}

/// Readers go on with the next node; of a writer the target gets nothing, and no part of a file.
#[test] //= KANGAROO-29 ways-in#promises
fn lost_nodes_end_only_writers() {
    let Some(site) = Site::new() else { return };
    fs::write(site.export.join("a"), "old").unwrap();
    let line = "exec 3< $G/a; kill -9 $(cat node); sleep 0.5; cat <&3; cat $G/a; cat $G/none";
    site.name_node();
    let reader = site.shell(&[], line);
    assert_eq!(reader.stdout, b"oldold", "{reader}");
    site.name_node();
    let line = "exec 3> $G/a; echo new >&3; kill -9 $(cat node); (sleep 50; echo late); echo on";
    let writer = site.shell(&[], line);
    assert_eq!(writer.status, Some(75), "{writer}");
    assert!(writer.stdout.is_empty(), "{writer}");
    let words = format!("{} was not kept", site.path("a"));
    assert!(writer.stderr.contains(&words), "{writer}");
    assert_eq!(fs::read(site.export.join("a")).unwrap(), b"old");
}

/// Arguments that are URLs become paths; those of the web are the program's own.
#[test]
fn urls_in_arguments_become_paths() {
    let Some(site) = Site::new() else { return };
    fs::write(site.export.join("a"), "there").unwrap();
    let url = format!("ftp://127.0.0.1:{}/a", site.node.port);
    let said = site.machine.says(&["run", "--", "cat", &url]).ok();
    assert_eq!(said.stdout, b"there");
    let web = [
        "run",
        "--",
        "echo",
        "https://example.org/a",
        "a://b",
        "file:///a",
    ];
    let said = site.machine.says(&web).ok();
    assert_eq!(said.stdout, b"https://example.org/a a://b file:///a\n");
}

/// Names of the catalog are files like others, wherever their copies are.
#[test]
fn names_of_catalogs_are_files() {
    let Some(site) = Site::new() else { return };
    let catalog = format!("sqlite:{}", site.machine.scratch.join("names.db").display());
    let said = |words: &[&str]| {
        let mut command = site.machine.command(words);
        Said::of(command.env("GODWIT_CATALOG", &catalog)).ok()
    };
    said(&["catalog", "init"]);
    let place = format!("ftp://127.0.0.1:{}/", site.node.port);
    said(&["location", "add", "here", &place, "grid:/"]);
    let line = "set -e; cd /godwit/grid; mkdir d; echo one > d/a; cat d/a; echo two >> d/a; mv d/a d/b; \
        ls d; cat d/b; wc -c < d/b; rm d/b; ls d; echo last > c";
    let words = said(&["run", "--promise", "push", "--", "bash", "-c", line]);
    let text = String::from_utf8_lossy(&words.stdout).into_owned();
    assert_eq!(text, "one\nb\none\ntwo\n8\n", "{words}");
    assert_eq!(said(&["cat", "grid:/c"]).stdout, b"last\n");
    let again = said(&["run", "--", "cat", "grid:/c"]);
    assert_eq!(again.stdout, b"last\n");
}

/// A writer of a mounted file whose node ended gets EIO, by write and by sync.
#[test] //= ways-in#promises
fn mounted_writers_hear_of_lost_nodes() {
    let Some(site) = Site::new() else { return };
    let far = site.machine.scratch.dir("far");
    if site.machine.says(&["mount", "far"]).status != Some(0) {
        skip("mounting needs root or fusermount3");
        return;
    }
    let there = far.join(format!("ftp:127.0.0.1:{}/there", site.node.port));
    let mut file = fs::File::create(&there).unwrap();
    file.write_all(b"one").unwrap();
    site.machine.kill();
    wait_until("a write fails", || file.write_all(b"two").is_err());
    let synced = file.sync_all().unwrap_err();
    assert_eq!(synced.raw_os_error(), Some(5), "{synced}");
    drop(file);
    let said = site.machine.says(&["umount", "--timeout", "30", "far"]);
    let words = format!("{} was not kept", site.path("there"));
    assert_eq!(said.status, Some(75), "{said}");
    assert!(said.stderr.contains(&words), "{said}");
    let log = fs::read_to_string(site.machine.state.join("mount.log")).unwrap();
    assert!(log.contains(&site.path("there")), "{log}");
}

/// A file that was closed before the node ended is given to the next node, whatever the last one had of it.
#[test] //= ways-in#promises
fn closed_files_outlive_their_node() {
    let Some(site) = Site::new() else { return };
    site.name_node();
    fs::write(site.export.join("old"), "old\n").unwrap();
    let line = "set -e; exec 3> $G/new 4>> $G/old 5> $G/gone; echo new >&3; echo more >&4; echo gone >&5; rm $G/gone; \
        kill -STOP $(cat node); exec 3>&- 4>&- 5>&-; kill -9 $(cat node); cat $G/new";
    let said = site.shell(&["--promise", "push"], line).ok();
    assert_eq!(said.stdout, b"new\n", "{said}");
    assert_eq!(fs::read(site.export.join("new")).unwrap(), b"new\n");
    assert_eq!(fs::read(site.export.join("old")).unwrap(), b"old\nmore\n");
    assert!(!site.export.join("gone").exists());
}

/// Files that were just written keep their directory; so do those that only the server has.
#[test]
fn directories_with_files_are_not_removed() {
    let Some(site) = Site::new() else { return };
    fs::create_dir(site.export.join("d")).unwrap();
    fs::write(site.export.join("d/theirs"), "theirs").unwrap();
    let line = "cd $G; for n in $(seq 20); do mkdir a$n; echo x > a$n/f; rmdir a$n && echo gone; done; \
        rmdir d && echo gone; mkdir e; mv -T e d && echo gone; rmdir e && echo empty";
    let said = site.shell(&["--promise", "push"], line);
    assert_eq!(String::from_utf8_lossy(&said.stdout), "empty\n", "{said}");
    assert_eq!(said.stderr.matches("not empty").count(), 22, "{said}");
    for nth in 1..=20 {
        let there = fs::read(site.export.join(format!("a{nth}/f")));
        assert_eq!(there.unwrap(), b"x\n");
    }
}

/// A name on hold is told with what was to be done to it, and keeps no other file from its server.
#[test] //= ways-in#promises
fn hold_keeps_no_other_file() {
    let Some(mut site) = Site::new() else { return };
    fs::create_dir(site.export.join("d")).unwrap();
    fs::create_dir(site.export.join("e")).unwrap();
    site.shell(&[], "ls $G $G/d").ok();
    site.node.kill();
    site.shell(&[], "rmdir $G/d && mv $G/e $G/e2").ok();
    fs::write(site.export.join("d/theirs"), "theirs").unwrap();
    fs::remove_dir(site.export.join("e")).unwrap();
    site.node = Node::on(&site.export, site.node.port, &["--anonymous", "write"]);
    let url = |name: &str| format!("ftp://127.0.0.1:{}/{name}", site.node.port);
    wait_until("both are on hold", || {
        let (_, rows) = site.machine.json(&["queue"]);
        rows.iter().filter(|row| row["stage"] == "held").count() == 2
    });
    let said = site.machine.says(&["push", "--timeout", "30"]);
    assert_eq!(said.status, Some(1), "{said}");
    assert!(!said.stderr.contains("bytes are kept"), "{said}");
    for words in [
        format!("{}: its removal is on hold", url("d")),
        format!("the rename of {}", url("e")),
        format!("godwit retry {}", url("d")),
    ] {
        assert!(said.stderr.contains(&words), "{words}: {said}");
    }
    let line = "echo other > $G/other; mkdir $G/f; echo more > $G/f/more";
    site.shell(&["--promise", "push"], line).ok();
    assert_eq!(fs::read(site.export.join("f/more")).unwrap(), b"more\n");
    let put = site.machine.scratch.file("put", 100);
    site.machine.says(&["put", "put", &url("put")]).ok();
    let push = ["push", "--timeout", "30", &url("put")];
    site.machine.says(&push).ok();
    assert_same(&put, &site.export.join("put"));
    assert_eq!(
        site.machine
            .says(&["push", "--timeout", "30", &url("d")])
            .status,
        Some(1)
    );
    for name in ["d", "e"] {
        site.machine.says(&["drop", &url(name)]).ok();
    }
}

/// Lines are added to a file that others made since its directory was listed.
#[test]
fn appends_keep_files_of_others() {
    let Some(site) = Site::new() else { return };
    let line = "ls -l $G; echo theirs > $E/log; echo ours >> $G/log; mkdir $G/d; echo x > $G/d/x; \
        for n in $(seq 100); do stat $G/d/log >/dev/null 2>&1; done; echo ours >> $G/d/log";
    let line = line.replace("$E", site.export.to_str().unwrap());
    site.shell(&["--promise", "push"], &line).ok();
    assert_eq!(
        fs::read(site.export.join("log")).unwrap(),
        b"theirs\nours\n"
    );
    assert_eq!(fs::read(site.export.join("d/log")).unwrap(), b"ours\n");
}

/// Each mount believes a length of its own, so appends go to the end that the file has here.
#[test] //= ways-in#promises
fn two_mounts_keep_all_appends() {
    let Some(site) = Site::new() else { return };
    fs::write(site.export.join("old"), "first\n").unwrap();
    // Of a large one only the end comes here.
    let large = "x".repeat(5 << 20) + "\n";
    fs::write(site.export.join("large"), &large).unwrap();
    let line = "set -e; exec 4>>$G/open 5>>$G/large; for n in $(seq 25); do \
        echo \"$W $n\" >>$G/new; echo \"$W $n\" >>$G/old; echo \"$W $n\" >&4; echo \"$W $n\" >&5; done";
    let begin = |writer: &str| {
        let mut command = site.machine.command(&["run", "--", "bash", "-c", line]);
        command.env("G", site.path("").trim_end_matches('/'));
        command
            .env("W", writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    site.machine.says(&["node", "status"]);
    let both = [begin("a"), begin("b")];
    for writer in both {
        let said = writer.wait_with_output().unwrap();
        assert!(
            said.status.success(),
            "{}",
            String::from_utf8_lossy(&said.stderr)
        );
    }
    site.machine.says(&["push", "--timeout", "30"]).ok();
    for (name, before) in [
        ("new", ""),
        ("old", "first\n"),
        ("open", ""),
        ("large", &large),
    ] {
        let text = fs::read_to_string(site.export.join(name)).unwrap();
        let added = text.strip_prefix(before).unwrap();
        let mut lines: Vec<&str> = added.lines().collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 50, "{name}: {text}");
        assert_eq!(added.lines().count(), 50, "{name}: {text}");
    }
}

/// A file that is here opens at once while its server is away, though it was looked at long ago.
#[test] //= ways-in#promises
fn files_here_open_without_their_server() {
    let Some(mut site) = Site::new() else { return };
    fs::write(site.export.join("small"), "small\n").unwrap();
    let large = site.machine.scratch.file("large", 24 << 20);
    fs::rename(&large, site.export.join("large")).unwrap();
    let line =
        "cat $G/small; dd if=$G/large bs=1M count=1 status=none | wc -c; stat -c %s $G/large";
    let expected = b"small\n1048576\n25165824\n";
    assert_eq!(site.shell(&[], line).ok().stdout, expected);
    site.node.kill();
    std::thread::sleep(std::time::Duration::from_secs(6)); // what was looked at is not fresh any more
    let begun = std::time::Instant::now();
    let line = format!("{line}; echo more >> $G/small; cat $G/small");
    let said = site.shell(&["--wait", "20s"], &line).ok();
    assert_eq!(
        said.stdout,
        [&expected[..], b"small\nmore\n"].concat(),
        "{said}"
    );
    assert!(
        begun.elapsed() < std::time::Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    let rest = site.shell(&["--wait", "1s"], "tail -c 1M $G/large");
    assert_eq!((rest.status, rest.stdout.len()), (Some(1), 0), "{rest}");
    site.node = Node::on(&site.export, site.node.port, &["--anonymous", "write"]);
    site.machine.says(&["push", "--timeout", "30"]).ok();
    assert_eq!(
        fs::read(site.export.join("small")).unwrap(),
        b"small\nmore\n"
    );
}

/// A name with more of a path behind it is a directory, though nothing is known of it and its server is away.
#[test] //= ways-in#promises
fn unknown_directories_take_new_files() {
    let Some(mut site) = Site::new() else { return };
    fs::create_dir_all(site.export.join("dir/sub")).unwrap();
    let source = site.machine.scratch.file("source", 100_000);
    site.node.kill();
    let line = "set -e; cp source $G/dir/sub/new; cd $G/dir/sub; cmp new $S/source; mkdir ../made ../made/deep; \
        echo x > ../made/deep/x; cat ../made/deep/x; mkdir -p $G/p/q; echo y > $G/p/q/y; echo z > $G/z";
    let line = line.replace("$S", site.machine.scratch.path().to_str().unwrap());
    let said = site.shell(&["--wait", "1s"], &line).ok();
    assert_eq!(said.stdout, b"x\n", "{said}");
    let known =
        "for d in dir dir/sub dir/made p/q; do test -d $G/$d || echo $d; done; ls $G/dir/made/deep";
    assert_eq!(site.shell(&["--wait", "1s"], known).ok().stdout, b"x\n");
    site.node = Node::on(&site.export, site.node.port, &["--anonymous", "write"]);
    site.machine.says(&["push", "--timeout", "30"]).ok();
    assert_same(&source, &site.export.join("dir/sub/new"));
    assert_eq!(
        fs::read(site.export.join("dir/made/deep/x")).unwrap(),
        b"x\n"
    );
    assert_eq!(fs::read(site.export.join("p/q/y")).unwrap(), b"y\n");
}

/// Of two machines that make one file for themselves alone, one does.
#[test] //= ways-in#promises
fn exclusive_files_have_one_maker() {
    let Some(site) = Site::new() else { return };
    let other = Machine::new();
    let make = "import os, sys
for nth in range(20):
    try:
        lock = os.open(os.environ['G'] + '/lock%d' % nth, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        continue
    os.write(lock, sys.argv[1].encode())
    print(nth)
";
    let begin = |machine: &Machine, name: &str| {
        let mut command = machine.command(&[
            "run",
            "--promise",
            "push",
            "--",
            "python3",
            "-c",
            make,
            name,
        ]);
        command.env("G", site.path("").trim_end_matches('/'));
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let both = [begin(&site.machine, "a"), begin(&other, "b")];
    let mut makers = std::collections::BTreeMap::new();
    for (nth, maker) in both.into_iter().enumerate() {
        let said = maker.wait_with_output().unwrap();
        assert!(said.status.success());
        for made in String::from_utf8(said.stdout).unwrap().lines() {
            let before = makers.insert(made.to_owned(), ["a", "b"][nth]);
            assert_eq!(before, None, "both made {made}");
        }
    }
    assert_eq!(makers.len(), 20);
    for (nth, maker) in makers {
        let there = fs::read_to_string(site.export.join(format!("lock{nth}"))).unwrap();
        assert_eq!(there, maker);
    }
    // A lock that is given back can be taken by the other machine, at once.
    let take = format!(
        "set -C; > {lock} || exit 3; mv {lock} {lock}.old && > {lock} || exit 4; rm {lock} {lock}.old",
        lock = site.path("given")
    );
    for machine in [&site.machine, &other, &site.machine] {
        machine
            .says(&["run", "--promise", "push", "--", "bash", "-c", &take])
            .ok();
    }
    assert!(!site.export.join("given").exists());
}

/// The time of a written file stays when its server has it: editors ask whether another program changed the file.
#[test] //= ways-in#promises
fn delivered_files_keep_their_time() {
    let Some(site) = Site::new() else { return };
    let line = "set -e; echo x > $G/a; before=$(stat -c %y $G/a); until test -s $E/a; do sleep 0.05; done; \
        sleep 1.1; test \"$(stat -c %y $G/a)\" = \"$before\"; ls $G; cat $G/a; test \"$(stat -c %y $G/a)\" = \"$before\"; \
        touch -d @1600000000 $G/a; until test $(stat -c %Y $E/a) = 1600000000; do sleep 0.05; done; \
        sleep 1.1; stat -c %Y $G/a";
    let said = site
        .shell(&[], &line.replace("$E", site.export.to_str().unwrap()))
        .ok();
    assert_eq!(said.stdout, b"a\nx\n1600000000\n", "{said}");
}

/// A part of a file is not read beside one of another, though that has the same length and time.
#[test] //= ways-in#promises
fn parts_are_of_one_file() {
    let Some(site) = Site::new() else { return };
    for (name, byte) in [("large", b"a"), ("other", b"b")] {
        let file = fs::File::create(site.export.join(name)).unwrap();
        (&file).write_all(&byte.repeat(24 << 20)).unwrap();
        let time =
            std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000);
        file.set_modified(time).unwrap();
    }
    let line = "exec 3< $G/large; head -c 1M <&3 >/dev/null; mv $E/other $E/large; tail -c 1M <&3";
    let said = site.shell(&[], &line.replace("$E", site.export.to_str().unwrap()));
    let told = (said.status, said.stdout.len());
    assert_eq!(told, (Some(1), 0), "{}", said.stderr);
    assert!(said.stderr.contains("open it again"), "{}", said.stderr);
}

/// Of a large file only what is read comes; a second time, nothing does.
#[test] //= ways-in#promises
fn slices_of_files_move_only_themselves() {
    let Some(site) = Site::new() else { return };
    let large = site.machine.scratch.file("large", 48 << 20);
    fs::rename(&large, site.export.join("large")).unwrap();
    let large = fs::read(site.export.join("large")).unwrap();
    let line =
        "for at in 40 3 21 9; do dd if=$G/large bs=128K skip=$((at * 8)) count=1 status=none; done";
    let mut expected = Vec::new();
    for at in [40, 3, 21, 9] {
        expected.extend_from_slice(&large[at << 20..(at << 20) + (128 << 10)]);
    }
    let present = || {
        let listed = site.machine.says(&["cache", "ls", "--json"]).ok();
        let line = listed.stdout.split(|&byte| byte == b'\n').next().unwrap();
        let row: serde_json::Value = serde_json::from_slice(line).unwrap();
        row["present_bytes"].as_u64().unwrap()
    };
    for _ in 0..2 {
        let said = site.shell(&[], line).ok();
        assert!(said.stdout == expected);
        assert!(present() <= 2 * expected.len() as u64, "{}", present());
    }
}

/// A large file is changed at its server where programs wrote, also if their node ends meanwhile.
#[test] //= ways-in#promises
fn large_files_change_in_place() {
    let Some(site) = Site::new() else { return };
    let large = site.machine.scratch.file("large", 24 << 20);
    let there = site.export.join("large");
    fs::rename(&large, &there).unwrap();
    let mut expected = fs::read(&there).unwrap();
    let inode = fs::metadata(&there).unwrap().ino();
    let program = "import os, signal
file = open(os.environ['G'] + '/large', 'r+b', buffering=0)
def put(at, data): assert os.pwrite(file.fileno(), data, at) == len(data)
put(5 << 20, b'five')
put((9 << 20) + 7, b'nine' * 50000)
again = open(file.name, 'rb', buffering=0)
assert os.pread(again.fileno(), 4, 5 << 20) == b'five'
assert len(os.pread(again.fileno(), 100, (7 << 20) - 3)) == 100
file.truncate(20 << 20)
put(21 << 20, b'end')
assert os.pread(file.fileno(), 2, (21 << 20) - 2) == bytes(2)
assert os.stat(file.name).st_size == (21 << 20) + 3
os.fsync(file.fileno())
os.kill(int(open(os.environ['N']).read()), signal.SIGKILL)
put(1, b'after')
file.close()
open(file.name, 'ab').write(b'!')
";
    expected[5 << 20..(5 << 20) + 4].copy_from_slice(b"five");
    expected[(9 << 20) + 7..][..200_000].copy_from_slice(&b"nine".repeat(50_000));
    expected.truncate(20 << 20);
    expected.resize(21 << 20, 0);
    expected.extend_from_slice(b"end!");
    expected[1..6].copy_from_slice(b"after");
    site.python(&[], program).ok();
    site.machine.says(&["push", "--timeout", "30"]).ok();
    assert!(fs::read(&there).unwrap() == expected);
    let now = fs::metadata(&there).unwrap().ino();
    assert_eq!(now, inode, "it was replaced as a whole");
}

/// A file that was synced is kept, whatever its program and its node do next.
#[test] //= ways-in#promises
fn synced_files_outlive_their_node() {
    let Some(site) = Site::new() else { return };
    let program = "import os, signal
G = os.environ['G']
def new(name, data):
    file = open(G + name, 'w+b', buffering=0)
    file.write(data)
    os.fsync(file.fileno())
    return file
changed = new('/changed', b'before')
changed.write(b' and after')
os.pwrite(changed.fileno(), b'B', 0)
assert os.pread(changed.fileno(), 99, 0) == b'Before and after'
changed.close()
gone = new('/gone', b'before')
os.unlink(gone.name)
gone.write(b' and after')
os.fsync(gone.fileno())
assert os.pread(gone.fileno(), 99, 0) == b'before and after'
gone.close()
open(G + '/old', 'wb').write(b'old')
renamed = new('/renaming', b'before')
os.rename(renamed.name, G + '/old')
renamed.write(b' and after')
renamed.close()
assert sorted(os.listdir(G)) == ['changed', 'old'], os.listdir(G)
last = new('/last', b'synced')
os.kill(int(open(os.environ['N']).read()), signal.SIGKILL)
assert not os.path.exists(G + '/none') # the next node was asked
last.close()
";
    site.python(&[], program).ok();
    site.machine.says(&["push", "--timeout", "30"]).ok();
    for (name, text) in [
        ("changed", "Before and after"),
        ("old", "before and after"),
        ("last", "synced"),
    ] {
        assert_eq!(fs::read_to_string(site.export.join(name)).unwrap(), text);
    }
    assert!(!site.export.join("gone").exists());
}

/// With `--fsync push` a file is at its server when fsync(2) returns.
#[test] //= ways-in#promises
fn pushing_syncs_deliver() {
    let Some(site) = Site::new() else { return };
    fs::write(site.export.join("old"), "old").unwrap();
    let program = "import os
for name, mode in (('/new', 'wb'), ('/old', 'r+b')):
    file = open(os.environ['G'] + name, mode, buffering=0)
    for data in (b'one', b'two'):
        file.write(data)
        os.fsync(file.fileno())
        there = open(os.environ['E'] + name, 'rb').read()
        assert there.endswith(data), there
";
    site.python(&["--fsync", "push"], program).ok();
}

/// A directory gets the mode that its maker says, and a long name is refused as such.
#[test]
fn directories_have_their_modes() {
    let Some(site) = Site::new() else { return };
    let line = "set -e; mkdir -m 700 $G/own; mkdir $G/usual; test $(stat -c %a $G/own $G/usual | tr -d '\\n') = 700755; \
        long=$(printf '%256s' | tr ' ' x); mkdir $G/$long 2>&1 | grep -q 'File name too long'";
    site.shell(&[], &format!("umask 022; {line}")).ok();
    site.machine.says(&["push", "--timeout", "30"]).ok();
    let mode = |name| {
        fs::metadata(site.export.join(name))
            .unwrap()
            .permissions()
            .mode()
    };
    assert_eq!((mode("own") & 0o777, mode("usual") & 0o777), (0o700, 0o755));
}

/// A large file that was removed at its server is not made again of the bytes that a program wrote.
#[test] //= ways-in#promises
fn removed_large_files_stay_removed() {
    let Some(site) = Site::new() else { return };
    let large = site.machine.scratch.file("large", 8 << 20);
    fs::rename(&large, site.export.join("large")).unwrap();
    let program = "import errno, os
file = open(os.environ['G'] + '/large', 'r+b', buffering=0)
os.pwrite(file.fileno(), b'late', 5 << 20)
os.remove(os.environ['E'] + '/large')
try:
    os.fsync(file.fileno())
except OSError as error:
    assert error.errno == errno.ESTALE, error
else:
    raise SystemExit('synced')
";
    let said = site.python(&[], program);
    assert_eq!(said.status, Some(75), "{said}");
    assert!(said.stderr.contains("removed at its server"), "{said}");
    site.machine.says(&["push", "--timeout", "30"]).ok();
    assert!(!site.export.join("large").exists());
}

/// A signal ends the wait for a server that is away.
#[test]
fn signals_end_waiting_programs() {
    let Some(mut site) = Site::new() else { return };
    site.node.kill();
    let line = "timeout --signal INT 1 cat $G/there; test $? = 124; \
        timeout --signal INT 1 sh -c 'read x < $0' $G/there; test $? = 124; echo over";
    let said = site.shell(&["--wait", "forever"], line).ok();
    assert_eq!(said.stdout, b"over\n", "{said}");
}

/// The reader of a part goes on with the next node, and is told of another file.
#[test] //= ways-in#promises
fn partial_readers_outlive_their_node() {
    let Some(site) = Site::new() else { return };
    let large = site.machine.scratch.file("large", 24 << 20);
    fs::rename(&large, site.export.join("large")).unwrap();
    let large = fs::read(site.export.join("large")).unwrap();
    let line = "exec 3< $G/large; dd bs=1M count=1 status=none <&3; kill -9 $(cat node); \
        cat <&3; echo other > $E/large; cat $G/large";
    site.name_node();
    let line = line.replace("$E", site.export.to_str().unwrap());
    let said = site.shell(&[], &line).ok();
    assert!(said.stdout[..24 << 20] == large, "{}", said.stdout.len());
    let other = "exec 3< $G/two; head -c 1M <&3 >/dev/null; printf x | dd of=$E/two conv=notrunc bs=1 seek=9M \
        status=none; tail -c 1M <&3";
    fs::write(site.export.join("two"), &large).unwrap();
    let said = site.shell(&[], &other.replace("$E", site.export.to_str().unwrap()));
    assert_eq!(said.status, Some(1), "{said}");
    assert!(said.stderr.contains("open it again"), "{said}");
}

/// The device is one of the test's own, since machines may close theirs to ordinary users.
#[test]
fn ordinary_users_need_no_privilege() {
    let Some(site) = Site::new() else { return };
    let home = site.machine.scratch.dir("home");
    fs::set_permissions(&home, PermissionsExt::from_mode(0o777)).unwrap();
    let Some(godwit) = seen_by_all(&site.machine.scratch) else {
        return;
    };
    let script = format!(
        "mknod -m 666 fuse c 10 229 && mount --bind fuse /dev/fuse && cd home && \
         export HOME=$PWD GODWIT_SOCKET=$PWD/socket GODWIT_STATE=$PWD/state GODWIT_BIN={godwit} && \
         as() {{ setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"; }} && \
         as {godwit} run --promise push -- sh -c 'id -u && grep CapEff /proc/self/status && \
             echo mine > {there} && cat {there}'; status=$?; as {godwit} node stop; exit $status",
        there = site.path("there"),
    );
    let mut command = common::as_prepared(Command::new("unshare"), &site.machine.command(&[]));
    command.args(["-m", "timeout", "50", "bash", "-c", &script]);
    command.current_dir(site.machine.scratch.path());
    let said = Said::of(&mut command);
    let words = String::from_utf8_lossy(&said.stdout);
    let expected = "65534\nCapEff:\t0000000000000000\nmine\n";
    assert!(words.starts_with(expected), "{said}");
    assert_eq!(fs::read(site.export.join("there")).unwrap(), b"mine\n");
}

/// Returns the path of our program where any account may run it; `None`: this account cannot become another.
fn seen_by_all(scratch: &Scratch) -> Option<String> {
    let own = Said::of(Command::new("unshare").args(["-m", "true"])).status;
    if own != Some(0) || !can_mount() {
        skip("another account and a device of its own need root");
        return None;
    }
    let (ours, seen) = (
        Path::new(env!("CARGO_BIN_EXE_godwit")),
        scratch.join(".godwit"),
    );
    if fs::hard_link(ours, &seen).is_err() {
        fs::copy(ours, &seen).unwrap();
    }
    wait_until("it is there", || seen.exists());
    Some(seen.to_str().unwrap().to_owned())
}
