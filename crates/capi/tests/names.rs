//! The catalog, and files by their names in it, from C.
#![allow(clippy::unwrap_used)]

mod common;

use common::{
    machine::Machine,
    programs::{compile, good},
};
use std::fs;

#[test] //= REPLICAS-26
fn catalog_is_asked_and_changed_from_c() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let names = compile(&machine.scratch, "tests/c/names.c");
    let says = |machine: &Machine, words: &[&str]| good(machine.command(&names).args(words));
    let refused = says(&machine, &[r#"{"weather":{}}"#]);
    assert!(refused.starts_with("EOPNOTSUPP\n"), "{refused}");
    assert!(refused.contains("no catalog is named"), "{refused}");
    good(machine.command(&machine.godwit).args(["node", "stop"]));
    let catalog = format!(
        "sqlite:{}",
        machine.scratch.path().join("names.db").display()
    );
    machine.environment.push(("GODWIT_CATALOG", catalog.into()));
    good(machine.command(&machine.godwit).args(["catalog", "init"]));
    fs::write(machine.export("a"), "some bytes").unwrap();
    let location = format!(
        r#"{{"add_location":{{"name":"run7","site":"lab","url":"{}","whole":false}}}}"#,
        machine.url("").trim_end_matches('/')
    );
    let changes = format!(r#"{{"changes":[{{"collect":{{"name":"run7"}}}},{location}]}}"#);
    let made = says(&machine, &[&changes]);
    let (numbers, end) = made.split_once('\n').unwrap();
    assert_eq!(end, "ok 1\n");
    let numbers = numbers.trim_matches(['[', ']']).split(',');
    let numbers: Vec<u64> = numbers.map(|number| number.parse().unwrap()).collect();
    assert_eq!(numbers.len(), 2);
    let home = format!(r#"{{"location":{},"path":"a"}}"#, numbers[1]);
    let changes =
        format!(r#"{{"changes":[{{"register":{{"name":"run7/a","size":10,"home":{home}}}}}]}}"#);
    says(&machine, &[&changes]);
    let located = says(&machine, &[r#"{"locate":{"names":["run7/a","none"]}}"#]);
    assert!(located.contains(&machine.url("a")), "{located}");
    assert!(
        located.ends_with("{\"missing\":\"none\"}\nok 2\n"),
        "{located}"
    );
    let one = says(
        &machine,
        &[r#"{"locate":{"names":["run7/a","none"]}}"#, "1"],
    );
    assert!(one.ends_with("ok 1\n") && one.lines().count() == 2, "{one}");
    let refused = says(&machine, &[r#"{"changes":[{"collect":{"name":"run7"}}]}"#]);
    assert!(refused.starts_with("EEXIST\n"), "{refused}");
    let refused = says(&machine, &["{"]);
    assert!(refused.starts_with("EINVAL\n"), "{refused}");
    // Names are files for all other functions too.
    assert_eq!(machine.told(&["stat", "grid:/run7/a"]), "ok 10\n");
    assert_eq!(machine.told(&["read", "grid:/run7/a"]), "ok 10\n");
    machine.told(&["whole", "grid:/run7/b", "written"]);
    let located = says(&machine, &[r#"{"locate":{"names":["run7/b"]}}"#]);
    assert!(located.contains(r#""state":"whole""#), "{located}");
    assert_eq!(fs::read(machine.export("b")).unwrap(), b"written");
}
