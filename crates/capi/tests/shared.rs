//! Files that programs of a machine read and write together, from C.
#![allow(clippy::unwrap_used)]

mod common;

use common::{
    machine::Machine,
    programs::{compile, good},
};
use std::fs;

#[test]
fn a_session_shares_one_file() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let shared = compile(&machine.scratch, "tests/c/shared.c");
    fs::write(machine.export("a"), "0123456789").unwrap();
    let names = [machine.url("a"), machine.url("made")];
    assert_eq!(good(machine.command(&shared).args(names)), "ok\n");
    assert_eq!(fs::read(machine.export("a")).unwrap(), b"01AB");
    assert!(!machine.export("made").exists());
}
