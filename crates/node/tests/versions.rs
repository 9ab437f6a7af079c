//! Versions that meet at a door: an older or newer node before our client, and older and newer clients
//! before our node. What both know works; else the one is named that must be upgraded.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Served, asking::Asking, faking::Fake};
use godwit_core::Extents;
use godwit_store::{
    Error, Nowhere, Result, Space, Store, StoreExt,
    door::{Door, RequestBody},
};
use godwit_wire::door::{PACK_TYPE, ROOT, speaker::Speaker};
use hyper::Response;
use std::{path::Path, sync::Arc};

/// A node that always says the same.
#[derive(Clone, Copy)]
struct Says {
    /// The Server header.
    server: Option<&'static str>,
    status: u16,
    lines: &'static str,
}

impl Says {
    fn answer(self) -> Response<RequestBody> {
        let head = Response::builder()
            .status(self.status)
            .header("godwit-request", "1")
            .header("content-type", PACK_TYPE);
        let head = match self.server {
            Some(server) => head.header("server", server),
            None => head,
        };
        head.body(RequestBody::whole(self.lines)).unwrap()
    }

    /// It, as our client sees it. Kept for as long as the test runs.
    fn door(self) -> Door {
        let fake = Box::leak(Box::new(Fake::new(Arc::new(move |_, _| self.answer()))));
        fake.door()
    }

    /// Returns the result of our client.
    fn space(self) -> Result<Space> {
        self.door().space(Path::new("f"))
    }

    /// Returns the error of our client as text.
    fn error(self) -> String {
        self.space().unwrap_err().to_string()
    }
}

const BAD: &str = "{\"error\":{\"why\":\"bad_request\",\"said\":\"unknown field `more`\"}}\n";
/// The first nodes had no Server header.
const FIRST: Option<&str> = None;
const LATER: Option<&str> = Some("godwit/9.0.0 door/1.99");

#[test]
fn older_node_must_be_upgraded() {
    let says = Says {
        server: FIRST,
        status: 400,
        lines: BAD,
    };
    let error = says.error();
    assert!(
        error.contains("lab must be upgraded: it runs godwit 0.1.0"),
        "{error}"
    );
    assert!(error.contains("unknown field `more`"), "{error}");
    // A call that it does not know was missing for the first ones.
    let lines =
        "{\"error\":{\"why\":\"missing\",\"said\":\"no call is named space; who knows\"}}\n";
    let error = Says {
        status: 404,
        lines,
        ..says
    }
    .error();
    assert!(
        error.contains("lab must be upgraded: it runs godwit 0.1.0"),
        "{error}"
    );
    // A file that is missing is missing.
    let lines = "{\"error\":{\"why\":\"missing\",\"said\":\"no such file\"}}\n";
    let missing = Says {
        status: 404,
        lines,
        ..says
    }
    .space();
    assert!(matches!(missing, Err(Error::Missing { .. })), "{missing:?}");
}

#[test]
fn newer_node_says_client_must_be_upgraded() {
    let says = Says {
        server: LATER,
        status: 400,
        lines: BAD,
    };
    let error = says.error();
    assert!(error.contains("this godwit must be upgraded"), "{error}");
    assert!(error.contains("lab runs godwit 9.0.0"), "{error}");
    // It says what we have never heard of.
    let lines = "{\"quota\":5}\n\"end\"\n";
    let error = Says {
        status: 200,
        lines,
        ..says
    }
    .error();
    assert!(error.contains("this godwit must be upgraded"), "{error}");
}

#[test]
fn between_equals_nobody_need_be_upgraded() {
    let ours: &'static str = Speaker::ours().to_string().leak();
    for (status, lines) in [(400, BAD), (200, "{\"quota\":5}\n\"end\"\n")] {
        let says = Says {
            server: Some(ours),
            status,
            lines,
        };
        let broke = says.space();
        assert!(
            matches!(broke, Err(Error::PeerMisbehaved { .. })),
            "{broke:?}"
        );
    }
    // A proxy in the middle names another program; no version is concluded from it.
    let proxy = Says {
        server: Some("nginx"),
        status: 400,
        lines: BAD,
    };
    assert!(matches!(proxy.space(), Err(Error::PeerMisbehaved { .. })));
}

#[test]
fn unknown_members_of_newer_node_are_ignored() {
    let says = Says {
        server: LATER,
        status: 200,
        lines: "{\"beat\":1}\n{\"space\":{\"total_bytes\":2,\"free_bytes\":1,\"quota\":5}}\n\"end\"\n",
    };
    assert_eq!(says.space().unwrap().free_bytes, 1);
    // An unknown reason is reported in its own words.
    let says = Says {
        status: 418,
        lines: "{\"error\":{\"why\":\"teapot\",\"said\":\"short and stout\",\"handle\":true}}\n",
        ..says
    };
    assert!(says.error().contains("short and stout"));
}

#[test]
fn node_of_other_version_names_upgrade() {
    let hello = |speaks| {
        format!(
            "{{\"hello\":{{\"name\":\"godwit\",\"version\":\"9.0.0\",\"speaks\":{speaks},\"who\":null,\
             \"account\":null,\"can\":{{}}}}}}\n\"end\"\n"
        )
    };
    let told = |speaks| {
        let says = Says {
            server: Some("godwit/9.0.0 door/2.0"),
            status: 200,
            lines: hello(speaks).leak(),
        };
        says.door()
            .can()
            .map(drop)
            .map_err(|error| error.to_string())
    };
    assert!(
        told("[2,3]")
            .unwrap_err()
            .contains("this godwit must be upgraded")
    );
    assert!(told("[0,0]").unwrap_err().contains("lab must be upgraded"));
    assert_eq!(told("[1,3]"), Ok(()));
    // A node of a later protocol.
    let gone = "{\"error\":{\"why\":\"unsupported\",\"said\":\"the client must be upgraded\"}}\n";
    let says = Says {
        server: Some("godwit/9.0.0 door/2.0"),
        status: 501,
        lines: gone,
    };
    assert!(says.error().contains("the client must be upgraded"));
}

#[test]
fn bytes_of_newer_node_are_checked() {
    let says = Says {
        server: LATER,
        status: 200,
        lines: "a pack of another kind",
    };
    let read = says
        .door()
        .read(Path::new("f"), &Extents::from(0..1), 1, &Nowhere);
    let error = read.unwrap_err().to_string();
    assert!(error.contains("this godwit must be upgraded"), "{error}");
}

/// Returns our node's answer to a client with this User-Agent.
fn told(as_whom: &str, target: &str, asked: &str) -> (u16, String) {
    let served = Served::with(&[("https.listen", "127.0.0.1:0")]);
    let asking = Asking::at(served.node().addresses().https[0]);
    let headers = [("user-agent", as_whom)];
    let answer = asking.ask(
        "POST",
        &format!("/.godwit/{target}"),
        &headers,
        asked.into(),
    );
    assert_eq!(answer.header("server"), Some(&*Speaker::ours().to_string()));
    (
        answer.status,
        answer.refusal()["said"].as_str().unwrap().to_owned(),
    )
}

const OLD: &str = "godwit/0.1.0";
const NEW: &str = "godwit/9.0.0 door/1.99";

#[test]
fn older_client_learns_it_must_upgrade() {
    let (status, said) = told(OLD, "v1/space", "{\"of\":\"f\"}");
    assert_eq!(status, 400);
    assert!(said.contains("unknown field `of`"), "{said}");
    assert!(
        said.contains("the client must be upgraded: it is godwit 0.1.0"),
        "{said}"
    );
    let (status, said) = told(OLD, "v1/teleport", "");
    assert_eq!(status, 501);
    assert!(said.contains("the client must be upgraded"), "{said}");
    let (status, said) = told(OLD, "v0/stat", "");
    assert_eq!(status, 501);
    assert!(said.contains("the client must be upgraded"), "{said}");
}

#[test]
fn newer_client_learns_node_must_upgrade() {
    for target in ["v1/teleport", "v1/uploads/0/teleport", "v2/stat"] {
        let (status, said) = told(NEW, target, "");
        assert_eq!(status, 501);
        assert!(
            said.contains("this node must be upgraded: it runs godwit"),
            "{said}"
        );
    }
}

#[test]
fn other_programs_receive_only_the_error() {
    for (target, asked) in [("v1/space", "{\"of\":\"f\"}"), ("v1/teleport", "")] {
        let (_, said) = told("curl/8.5.0", target, asked);
        assert!(!said.contains("upgraded"), "{said}");
    }
}

#[test]
fn version_is_reported_before_identity() {
    let served = Served::with(&[
        ("https.listen", "127.0.0.1:0"),
        ("anonymous.access", "none"),
    ]);
    let asking = Asking::at(served.node().addresses().https[0]);
    let status = |target: &str| {
        asking
            .ask("POST", target, &[("user-agent", NEW)], Vec::new())
            .status
    };
    assert_eq!(status("/.godwit/v2/join"), 501);
    assert_eq!(status(&format!("{ROOT}teleport")), 501);
    assert_eq!(status(&format!("{ROOT}space")), 403);
}
