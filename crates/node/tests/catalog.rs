//! The calls of the catalog at the door: rights and limits.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Scratch, Served, asking::Asking};
use godwit_catalog::{CHANGES_MAX, Change, Changes, PAGE, Question};
use godwit_wire::door::{
    ROOT,
    call::{self, Name},
};
use serde::Serialize;
use serde_json::json;

/// A node with a catalog of its own, and a client without a name.
struct World {
    served: Served,
    client: Asking,
    _scratch: Scratch,
}

impl World {
    fn new(settings: &[(&'static str, &str)]) -> Self {
        let scratch = Scratch::new();
        let catalog = format!("sqlite:{}", scratch.path().join("names").display());
        godwit_catalog::open(&catalog, true).unwrap();
        let mut all = vec![("https.listen", "127.0.0.1:0"), ("catalog.url", &*catalog)];
        all.extend(settings);
        let served = Served::with(&all);
        let client = Asking::at(served.node().addresses().https[0]);
        Self {
            served,
            client,
            _scratch: scratch,
        }
    }

    /// With rights by which every client may do that.
    fn with_rights(deeds: &str) -> Self {
        let scratch = Scratch::new();
        let file = scratch.path().join("rights");
        let rule = format!("[[rule]]\nwho = \"anyone\"\nunder = \"/\"\nmay = {deeds}\n");
        std::fs::write(&file, rule).unwrap();
        Self::new(&[("node.rights", file.to_str().unwrap())])
    }

    /// Asks; returns the status and the reason of a refusal.
    fn ask(&self, call: &str, asked: &impl Serialize) -> (u16, serde_json::Value) {
        let target = format!("{ROOT}{call}");
        let answer = self.client.ask("POST", &target, &[], call::write(asked));
        (answer.status, answer.refusal())
    }
}

fn collect(count: usize) -> Changes {
    let make = |nth| Change::Collect {
        name: Name(format!("c{nth}").into()),
        parents: false,
    };
    (0..count).map(make).collect::<Vec<_>>().into()
}

#[test]
fn nameless_client_may_not_change_names() {
    let world = World::new(&[("anonymous.access", "write")]);
    assert_eq!(world.ask("catalog", &Question::Weather {}).0, 200);
    let (status, refusal) = world.ask("catalog/change", &collect(1));
    assert_eq!((status, &refusal["why"]), (403, &json!("denied")));
    assert!(
        refusal["next"].as_str().unwrap().contains("--rights"),
        "{refusal}"
    );
    let world = World::new(&[("anonymous.access", "none")]);
    assert_eq!(world.ask("catalog", &Question::Weather {}).0, 403);
}

#[test]
fn rights_bind_those_who_ask_and_change() {
    for (deeds, expected) in [
        ("[\"read\", \"write\"]", (200, 200)),
        ("[\"read\"]", (200, 403)),
        ("[\"list\"]", (403, 403)),
    ] {
        let world = World::with_rights(deeds);
        let asked = world.ask("catalog", &Question::Weather {}).0;
        let changed = world.ask("catalog/change", &collect(1)).0;
        assert_eq!((asked, changed), expected, "{deeds}");
    }
}

#[test]
fn lists_beyond_their_bounds_are_refused() {
    let world = World::with_rights("\"all\"");
    assert_eq!(world.ask("catalog/change", &collect(CHANGES_MAX)).0, 200);
    let (status, refusal) = world.ask("catalog/change", &collect(CHANGES_MAX + 1));
    assert_eq!(status, 400, "{refusal}");
    assert!(
        refusal["next"].as_str().unwrap().contains("10000"),
        "{refusal}"
    );
    for (count, expected) in [(PAGE, 200), (PAGE + 1, 400)] {
        let names = vec![Name("c0".into()); count];
        assert_eq!(
            world.ask("catalog", &Question::Locate { names }).0,
            expected
        );
    }
    drop(world.served);
}
