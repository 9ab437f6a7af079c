//! A catalog is saved, loaded and measured.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../../catalog/tests/common/postgres.rs"]
mod server;

use common::{Said, Scratch, godwit, skip};
use std::fs;

struct World {
    scratch: Scratch,
}

impl World {
    fn said(&self, catalog: &str, words: &[&str]) -> Said {
        let mut command = godwit();
        let text = match catalog.contains(':') {
            true => catalog.to_owned(),
            false => format!("sqlite:{}", self.scratch.join(catalog).display()),
        };
        command.args(["catalog"]).args(words);
        command
            .env("GODWIT_CATALOG", text)
            .current_dir(self.scratch.path());
        Said::of(&mut command)
    }

    fn dump(&self, catalog: &str) -> String {
        String::from_utf8(self.said(catalog, &["dump"]).ok().stdout).unwrap()
    }

    fn load(&self, catalog: &str, text: &str) -> Said {
        fs::write(self.scratch.join("lines"), text).unwrap();
        self.said(catalog, &["load", "lines"])
    }
}

const LINES: &str = r#"{"name":"grid:/","site":"lab","url":"ftp://lab.example/data","whole":true,"attr":{"tape":"no"}}
{"name":"grid:/run7","site":"old","url":"ftp://old.example/","whole":true}
{"name":"grid:/","collection":true,"attr":{"owner":"cms"}}
{"name":"grid:/alone"}
{"name":"grid:/run7","collection":true}
{"name":"grid:/run7/a%20b","size":9223372036854775807,"digest":"adler32:00620062 md5:0cc175b9c0f1b6a831c399e269772661","version":4,"mtime":"7.000000001","mode":416,"homes":[{"url":"ftp://lab.example/data/run7/a%20b","state":"whole","site":"lab","verified_at":9,"ours":true},{"url":"ftp://old.example/x/a","state":"damaged","site":"old","version":3,"range":[5,9],"offset":2}],"attr":{"k":"v"}}
{"name":"grid:/run8","link":"grid:/run7"}
{"name":"grid:/run7","rule":"copies=2"}
{"name":"grid:/run7","rule":"allow identified read,list"}
"#;

#[test]
fn dump_of_load_is_equal() {
    let world = World {
        scratch: Scratch::new(),
    };
    world.load("one", LINES).ok();
    assert_eq!(world.dump("one"), LINES);
    world.load("one", LINES).ok();
    assert_eq!(world.dump("one"), LINES);
    world.load("two", &world.dump("one")).ok();
    assert_eq!(world.dump("two"), LINES);
}

#[test] //= FARM-98 REPLICAS-66
fn dump_moves_to_postgres_and_back() {
    let url = match server::database() {
        Ok(url) => url,
        Err(why) => return skip(why),
    };
    let world = World {
        scratch: Scratch::new(),
    };
    world.load("one", LINES).ok();
    world.load(&url, &world.dump("one")).ok();
    assert_eq!(world.dump(&url), LINES);
    world.load("two", &world.dump(&url)).ok();
    assert_eq!(world.dump("two"), LINES);
    let gone = world.said("postgres://godwit@127.0.0.1:1/none", &["dump"]);
    assert_eq!(gone.status, Some(5), "{gone}");
    world.said(&url, &["bench", "--files", "70"]).ok();
    assert_eq!(world.dump(&url), LINES);
}

#[test]
fn bad_line_is_named() {
    let world = World {
        scratch: Scratch::new(),
    };
    let good = "{\"name\":\"grid:/a\",\"size\":1}\n";
    for (line, status, why) in [
        (
            "{\"name\":\"grid:/b\",\"colour\":1}",
            2,
            "line 3: unknown field",
        ),
        ("{\"name\":\"/b\"}", 2, "line 3: '/b' is not a name"),
        (
            "{\"name\":\"grid:/a\",\"size\":2}",
            1,
            "line 3: grid:/a has 1 bytes",
        ),
        ("{\"name\":\"grid:/a/b\"}", 3, "line 3: grid:/a is a file"),
        ("{\"name\"", 2, "line 3: EOF"),
    ] {
        let said = world.load("one", &format!("{good}\n{line}\n{good}"));
        assert_eq!(said.status, Some(status), "{line}: {said}");
        assert!(said.to_string().contains(why), "{line}: {said}");
    }
    assert_eq!(
        world.dump("one"),
        "{\"name\":\"grid:/a\",\"size\":1,\"version\":1}\n"
    );
}

#[test] //= REPLICAS-59
fn bench_removes_its_names() {
    let world = World {
        scratch: Scratch::new(),
    };
    let said = world
        .said("one", &["bench", "--files", "70", "--json"])
        .ok();
    let text = String::from_utf8(said.stdout).unwrap();
    for figure in ["create", "list", "locate", "delete", "add"] {
        assert!(text.contains(&format!("\"{figure}_seconds\":")), "{text}");
    }
    assert_eq!(world.dump("one"), "");
}
