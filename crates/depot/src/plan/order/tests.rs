//! Rows that an order passes to the records.

use super::*;
use crate::{Who, clock::now, error::Patience};
use godwit_core::holding::{Holding, Mode};

fn url(name: &str) -> Url {
    Url::from_argument(format!("ftp://far/{name}")).unwrap()
}

/// A file that is promised, and the promise to rename another, in one order.
fn both() -> (Order, Arc<Entry>) {
    let mut promises = Order::default();
    let machine = Holding::born(Base::Any, Mode::Replace);
    let id = Id::of([1; 12]);
    let entry = Arc::new(Entry::new(id, (1, 0), url("file"), Who::default(), machine));
    promises.publish(&entry, Base::Any);
    let fact = Fact {
        url: url("from"),
        to: Some(url("to")),
        who: Who::default(),
        session: String::new(),
        created_at: now(),
        tries: 0,
        last: None,
        later: None,
        patience: Patience::default(),
    };
    promises.facts.insert(2, fact);
    let what = rename_to(&url("to"), Base::Any);
    let deeds = promises.of(&url("from"));
    deeds.promise(2, path_of(&url("from")), what, Base::Any);
    (promises, entry)
}

/// The thread that took the operation records it a moment later; a file that ends meanwhile changes nothing of that.
#[test] //= KANGAROO-32
fn asked_operation_is_recorded() {
    for is_over in [false, true] {
        let (mut promises, entry) = both();
        let told = promises.changes(&url("from"));
        assert_eq!(told.len(), 1, "the file has a record of its own");
        promises.take_file(&entry).unwrap();
        let asked = promises.take(2).unwrap();
        match is_over {
            true => promises.forget(entry.id),
            false => promises.visited(&entry, false),
        }
        let told = promises.changes(&url("from"));
        let attempts: Vec<_> = told
            .iter()
            .map(|(number, row)| (*number, row.as_ref().and_then(|row| row.deed.attempt)))
            .collect();
        assert_eq!(attempts, [(2, Some(asked.attempt))]);
    }
}

/// An order of which nothing else is ever recorded does not remember each file that it had.
#[test]
fn finished_publications_leave_no_rows() {
    let (mut promises, entry) = both();
    promises.changes(&url("from"));
    promises.take_file(&entry).unwrap();
    promises.forget(entry.id);
    assert!(promises.of(&url("file")).changes().is_empty());
}
