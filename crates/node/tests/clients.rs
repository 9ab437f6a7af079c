//! Programs of others as clients: curl, wget, lftp and Python's ftplib.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Served, bytes, needs, run};
use std::fs;

/// Names that break careless programs.
const HARD_NAMES: [&str; 8] = [
    "sp ace",
    "pct%41x",
    "semi;colon",
    "hash#x",
    "ünï",
    "brk[x]",
    "back\\x",
    "q\"uote",
];

fn encoded(name: &str) -> String {
    let keep = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    name.bytes()
        .map(|b| {
            if keep(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

#[test]
fn curl_gets_and_puts_hard_names() {
    needs!("curl");
    let served = Served::new();
    for (i, name) in HARD_NAMES.iter().enumerate() {
        let whole = bytes(1000 * i);
        served.put(name, &whole);
        let target = served.file("got");
        run(
            "curl",
            &[
                "-sS",
                "-o",
                target.to_str().unwrap(),
                &served.url(&encoded(name)),
            ],
        );
        assert_eq!(fs::read(&target).unwrap_or_default(), whole, "{name}");
        let put = served.url(&encoded(&format!("put {name}")));
        run(
            "curl",
            &["-sS", "-g", "-T", served.file(name).to_str().unwrap(), &put],
        );
        assert_eq!(served.bytes(&format!("put {name}")), whole, "{name}");
    }
}

#[test]
fn curl_resumes_broken_upload() {
    needs!("curl");
    let served = Served::new();
    let whole = bytes(5_000_000);
    let source = served.file("source");
    fs::write(&source, &whole).unwrap();
    let mut client = served.client();
    client.ok("ALLO 5000000");
    assert!(client.put("STOR x", &whole[..2_345_678]).starts_with("426"));
    let said = run(
        "curl",
        &[
            "-sSv",
            "-C",
            "-",
            "-T",
            source.to_str().unwrap(),
            &served.url("x"),
        ],
    );
    assert!(said.contains("213 2345678"), "{said}");
    assert_eq!(served.bytes("x"), whole);
}

#[test]
fn curl_goes_on_with_a_download() {
    needs!("curl");
    let served = Served::new();
    let whole = bytes(3_000_000);
    served.put("x", &whole);
    served.put("digits", b"0123456789ab");
    let target = served.file("got");
    fs::write(&target, &whole[..1_000_001]).unwrap();
    let target = target.to_str().unwrap();
    run("curl", &["-sS", "-C", "-", "-o", target, &served.url("x")]);
    assert_eq!(fs::read(target).unwrap(), whole);
    let part = run("curl", &["-sS", "-r", "5-9", &served.url("digits")]);
    assert_eq!(part, "56789");
}

#[test]
fn curl_over_active_mode_and_quotes() {
    needs!("curl");
    let served = Served::new();
    served.put("x", b"hello");
    assert_eq!(
        run("curl", &["-sS", "-P", "127.0.0.1", &served.url("x")]),
        "hello"
    );
    assert_eq!(
        run("curl", &["-sS", "--disable-epsv", &served.url("x")]),
        "hello"
    );
    run(
        "curl",
        &["-sS", "-Q", "RNFR x", "-Q", "RNTO y", "-l", &served.url("")],
    );
    assert_eq!(served.bytes("y"), b"hello");
}

#[test]
fn wget_mirrors_a_tree() {
    needs!("wget");
    let served = Served::new();
    fs::create_dir_all(served.file("tree/sub/deep")).unwrap();
    for (name, len) in [
        ("tree/a", 10),
        ("tree/sub/b", 100_000),
        ("tree/sub/deep/c", 0),
    ] {
        served.put(name, &bytes(len));
    }
    let into = served.file("mirror");
    fs::create_dir(&into).unwrap();
    run(
        "wget",
        &[
            "-q",
            "-r",
            "-nH",
            "-P",
            into.to_str().unwrap(),
            &served.url("tree/"),
        ],
    );
    for name in ["tree/a", "tree/sub/b", "tree/sub/deep/c"] {
        assert_eq!(
            fs::read(into.join(name)).unwrap(),
            served.bytes(name),
            "{name}"
        );
    }
}

#[test]
fn lftp_mirrors_both_ways_and_goes_on() {
    needs!("lftp");
    let served = Served::new();
    fs::create_dir_all(served.file("tree/sub")).unwrap();
    for name in HARD_NAMES {
        served.put(&format!("tree/sub/{name}"), name.as_bytes());
    }
    served.put("tree/big", &bytes(3_000_000));
    let (url, there) = (format!("ftp://{}", served.address), served.file("copy"));
    let script = |commands: &str| {
        run(
            "lftp",
            &[
                "-c",
                &format!("set net:max-retries 1; open {url}; {commands}"),
            ],
        )
    };
    script(&format!("mirror tree {}", there.display()));
    script(&format!("mirror -R {} back", there.display()));
    for name in HARD_NAMES {
        assert_eq!(
            served.bytes(&format!("back/sub/{name}")),
            name.as_bytes(),
            "{name}"
        );
    }
    assert_eq!(served.bytes("back/big"), served.bytes("tree/big"));
    let mut client = served.client();
    client.ok("ALLO 3000000");
    assert!(
        client
            .put("STOR again", &served.bytes("tree/big")[..999_999])
            .starts_with("426")
    );
    script(&format!(
        "put -c {} -o again",
        served.file("tree/big").display()
    ));
    assert_eq!(served.bytes("again"), served.bytes("tree/big"));
    let listed = script("cls -1 tree/sub");
    assert!(listed.contains("sp ace"), "{listed}");
}

#[test]
fn python_ftplib_does_all_it_knows() {
    needs!("python3");
    let served = Served::new();
    served.put("x", b"line one\nline two\n");
    let script = r#"
import ftplib, io, sys
f = ftplib.FTP()
f.connect("127.0.0.1", int(sys.argv[1]), timeout=20)
f.login()
assert f.pwd() == "/"
f.mkd("d"); f.cwd("d")
f.storbinary("STOR y", io.BytesIO(b"y" * 100000))
assert f.size("y") == 100000
got = io.BytesIO(); f.retrbinary("RETR y", got.write, rest=99990)
assert got.getvalue() == b"y" * 10
f.storbinary("STOR y", io.BytesIO(b"zz"), rest=99998)
assert f.nlst() == ["y"], f.nlst()
assert dict(f.mlsd(facts=["type", "size"]))["y"]["size"] == "100000"
assert len(f.sendcmd("MLST y").splitlines()) == 3
lines = []; f.dir(lines.append); assert lines[0].endswith(" y"), lines
f.rename("y", "z"); f.cwd(".."); lines = []
f.retrlines("RETR x", lines.append); assert lines == ["line one", "line two"]
# abort() sends ABOR as urgent data, with its line feed out of band.
f.voidcmd("TYPE I")
data = f.transfercmd("RETR x"); f.abort(); data.close(); f.voidresp()
f.voidcmd("NOOP")
f.delete("d/z"); f.rmd("d")
try: f.cwd("d"); raise SystemExit("d is there")
except ftplib.error_perm as e: assert str(e).startswith("550"), e
assert f.sendcmd("MDTM x").startswith("213 ")
f.set_pasv(False)
got = io.BytesIO(); f.retrbinary("RETR x", got.write); assert len(got.getvalue()) == 18
f.quit()
"#;
    run(
        "python3",
        &["-c", script, &served.address.port().to_string()],
    );
}
