//! `make demo` runs to its end and prints each scene.

mod common;

use common::{Said, Scratch};
use std::{path::Path, process::Command};

#[test]
fn the_demo_runs_to_its_end() {
    if !common::have("python3") {
        return;
    }
    let scratch = Scratch::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/run");
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=5", "120"])
        .arg(script)
        .env("GODWIT", env!("CARGO_BIN_EXE_godwit"))
        .env("DEMO_MIB", "12")
        .env("TMPDIR", scratch.path());
    let said = Said::of(&mut command).ok();
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    for promised in [
        "All three are equal.",
        "\"resumed_bytes\":",
        "The bit was noticed",
        "nothing is owed any more",
        "Every copy is right again.",
    ] {
        assert!(text.contains(promised), "{promised:?} is not in {said}");
    }
    assert!(said.stderr.contains("the link turned a bit"), "{said}");
    assert_eq!(
        common::tree(scratch.path()).len(),
        0,
        "it leaves something behind"
    );
}
