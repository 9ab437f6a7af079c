//! Rules of deeds that the simulation does not show one by one.

use super::*;
use crate::{Algorithm, Digest, Version};

fn promises() -> Deeds {
    Deeds::recover([], 1 << 32)
}

fn at(path: &str) -> Path {
    Path::new(path)
}

fn publish(id: u8) -> What {
    What::Publish(Publication {
        id: [id; 12],
        generation: 1,
        set: Values::new(),
    })
}

fn mode(value: u8) -> What {
    What::Set(Values::from([("mode".into(), vec![value])]))
}

fn to(path: &str) -> What {
    What::Rename {
        to: at(path),
        over: Base::Any,
    }
}

fn version(content: &[u8]) -> Version {
    Version::Strong(Digest::of(Algorithm::Blake3, content))
}

fn deed(added: Added) -> u64 {
    match added {
        Added::Deed(number) => number,
        other => panic!("it is {other:?}"),
    }
}

#[test]
fn names_overlap_only_at_slashes() {
    assert!(at("/d/").overlaps(&at("d//x")) && at("d/x").overlaps(&at("d")));
    assert!(at("").overlaps(&at("d")) && at("d").overlaps(&at("d")));
    assert!(!at("d").overlaps(&at("dd")) && !at("d/x").overlaps(&at("d/y")));
}

#[test]
fn stuck_deed_blocks_only_its_names() {
    let mut deeds = promises();
    let stuck = deed(deeds.add(at("a"), publish(1), Base::Any));
    let behind = deed(deeds.add(at("a"), to("d/a"), Base::Any));
    let below = deed(deeds.add(at("d"), mode(1), Base::Any));
    let other = deed(deeds.add(at("b"), publish(2), Base::Any));
    deeds.hold(stuck, "later".into());
    let next = deeds.next(|_| true).expect("one is free");
    assert_eq!(next.number, other);
    assert_eq!(deeds.next(|_| true), None);
    assert_eq!(deeds.waits_for(below), Some(behind));
    deeds.release(stuck, Over::Nothing);
    assert_eq!(deeds.next(|_| true).map(|d| d.number), Some(stuck));
}

#[test]
fn renamed_new_file_publishes_last_name_only() {
    let mut deeds = promises();
    let born = deed(deeds.add(at("tmp"), publish(1), Base::Absent));
    deeds.add(at("b"), What::Unlink, Base::Any);
    assert_eq!(
        deeds.add(at("tmp"), mode(7), Base::Any),
        Added::Folded(born)
    );
    assert_eq!(
        deeds.add(at("tmp"), to("b"), Base::Any),
        Added::Folded(born)
    );
    // The entry under the new name is removed first, and attributes are never missing.
    assert_eq!(deeds.next(|_| true).map(|d| d.what), Some(What::Unlink));
    assert_eq!(deeds.next(|_| true), None);
    let last = deeds.pending().last().expect("it is to be published");
    assert_eq!((last.number, &last.at), (born, &at("b")));
    assert!(matches!(&last.what, What::Publish(p) if p.set.len() == 1));
}

#[test]
fn sent_deed_is_not_merged() {
    let mut deeds = promises();
    deeds.add(at("tmp"), publish(1), Base::Absent);
    deeds.next(|_| true).expect("it is free");
    deed(deeds.add(at("tmp"), to("b"), Base::Any));
    // Nor an entry that the target had under that name before.
    deeds.add(at("c"), publish(2), Base::Any);
    deed(deeds.add(at("c"), What::Unlink, Base::Any));
}

#[test]
fn removed_new_file_leaves_no_deed() {
    let mut deeds = promises();
    let born = deed(deeds.add(at("tmp"), publish(1), Base::Absent));
    deeds.changes();
    let removed = deeds.add(at("tmp"), What::Unlink, Base::Any);
    assert_eq!(removed, Added::Undone(born));
    assert_eq!(deeds.changes(), [(born, None)]);
    assert_eq!(deeds.next(|_| true), None);
}

#[test]
fn rename_already_done_is_not_repeated() {
    let ours = version(b"ours");
    let mut deeds = promises();
    let number = deed(deeds.add(at("a"), to("b"), Base::Seen(ours.clone())));
    let asked = deeds.next(|_| true).expect("it is free");
    let record: Vec<Deed> = deeds.pending().cloned().collect();
    deeds.ended(number, asked.attempt, Outcome::Lost);
    let recovered = Deeds::recover(record, 2 << 32);
    for mut deeds in [deeds, recovered] {
        let look = deeds.next(|_| true).expect("it is free");
        assert_eq!(look.step, Step::Look);
        assert!(look.attempt > asked.attempt);
        // A late answer is ignored.
        deeds.ended(number, asked.attempt, Outcome::Refused(Held::Missing));
        // Another file was made under the old name meanwhile.
        let sight = Sight {
            at: Thing::File(version(b"another")),
            to: Thing::File(ours.clone()),
        };
        deeds.saw(number, look.attempt, &sight);
        assert_eq!(deeds.pending().count(), 0);
    }
}

#[test]
fn own_connection_lost_leaves_others_in_flight() {
    let mut deeds = promises();
    let one = deed(deeds.add(at("a"), to("b"), Base::Any));
    let other = deed(deeds.add(at("c"), to("d"), Base::Any));
    let [of_one, of_other] = [(); 2].map(|()| deeds.next(|_| true).expect("it is free"));
    deeds.broke(one, of_one.attempt);
    // The deed in flight is not sent again, and its answer counts.
    assert!(deeds.is_under_way(other));
    deeds.ended(other, of_other.attempt, Outcome::Done);
    assert_eq!(deeds.find(other), None);
    let look = deeds.next(|_| true).expect("it is in doubt");
    assert_eq!((look.number, look.step), (one, Step::Look));
    assert!(look.attempt > of_one.attempt);
    deeds.broke(one, look.attempt);
    assert_eq!(deeds.next(|_| true).map(|d| d.step), Some(Step::Look));
}

#[test]
fn older_attempt_done_after_check_counts() {
    let mut deeds = promises();
    let number = deed(deeds.add(at("a"), to("b"), Base::Any));
    let first = deeds.next(|_| true).expect("it is free");
    deeds.broke(number, first.attempt);
    let look = deeds.next(|_| true).expect("it is in doubt");
    let there = Thing::File(version(b"ours"));
    let sight = |at, to| Sight { at, to };
    deeds.saw(number, look.attempt, &sight(there.clone(), Thing::Nothing));
    let again = deeds.next(|_| true).expect("it was not done");
    assert_eq!(again.step, Step::Try);
    // Meanwhile the server did the first attempt's request.
    deeds.ended(number, again.attempt, Outcome::Refused(Held::Missing));
    let look = deeds.next(|_| true).expect("it is in doubt");
    assert_eq!(look.step, Step::Look);
    deeds.saw(number, look.attempt, &sight(Thing::Nothing, there));
    assert_eq!(deeds.pending().count(), 0);
}

#[test]
fn what_may_be_somebody_elses_is_held() {
    let another = Thing::File(version(b"another"));
    for (what, at_there, to_there, held) in [
        (to("b"), another.clone(), another.clone(), Held::Conflict),
        (to("b"), Thing::Nothing, Thing::Nothing, Held::Missing),
        (
            What::Unlink,
            another.clone(),
            Thing::Nothing,
            Held::Conflict,
        ),
        (What::Mkdir, another.clone(), Thing::Nothing, Held::Conflict),
    ] {
        let mut deeds = promises();
        let condition = match what {
            What::Mkdir => Base::Absent,
            _ => Base::Seen(version(b"ours")),
        };
        let number = deed(deeds.add(at("a"), what, condition));
        deeds.next(|_| true).expect("it is free");
        deeds.lost();
        let look = deeds.next(|_| true).expect("it is free");
        let sight = Sight {
            at: at_there,
            to: to_there,
        };
        deeds.saw(number, look.attempt, &sight);
        let why = deeds.find(number).and_then(|d| d.held.clone());
        assert_eq!(why, Some(held));
    }
}

#[test]
fn duplicate_answer_does_not_answer_retry() {
    let mut deeds = promises();
    let number = deed(deeds.add(at("a"), What::Unlink, Base::Any));
    let first = deeds.next(|_| true).expect("it is free");
    let refused = Outcome::Refused(Held::Refused("no".into()));
    deeds.ended(number, first.attempt, refused.clone());
    deeds.release(number, Over::Nothing);
    deeds.next(|_| true).expect("it was released");
    deeds.ended(number, first.attempt, refused);
    assert!(deeds.is_under_way(number));
}

#[test]
fn redirected_file_takes_later_deeds_along() {
    let mut deeds = promises();
    let file = deed(deeds.add(at("a"), publish(1), Base::Any));
    deeds.hold(file, "no room".into());
    deeds.add(at("a"), mode(1), Base::Any);
    deeds.add(at("a"), to("b"), Base::Any);
    deeds.add(at("a"), publish(2), Base::Any);
    assert!(deeds.redirect(file, at("elsewhere")));
    let names: Vec<Path> = deeds.pending().map(|d| d.at.clone()).collect();
    let moved = at("elsewhere");
    assert_eq!(names, [moved.clone(), moved.clone(), moved, at("a")]);
    // Not while the target may be doing it.
    deeds.next(|d| d.number == file).expect("it was released");
    assert!(!deeds.redirect(file, at("c")) && deeds.drop(file).is_none());
}

#[test]
fn noted_deed_leaves_other_changes() {
    let mut deeds = promises();
    let file = deed(deeds.add(at("a"), publish(1), Base::Any));
    let renamed = deed(deeds.add(at("b"), to("c"), Base::Any));
    deeds.changes();
    deeds.take(renamed).expect("it waits for nothing");
    deeds.over(file);
    deeds.noted(file);
    let changes = deeds.changes();
    let numbers: Vec<u64> = changes.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [renamed]);
}

#[test]
fn mkdir_does_not_wait_for_children() {
    let mut deeds = promises();
    let below = deed(deeds.add(at("d/x"), publish(1), Base::Any));
    deeds.hold(below, "no directory".into());
    let made = deed(deeds.add(at("d"), What::Mkdir, Base::Any));
    let after = deed(deeds.add(at("d/y"), publish(2), Base::Any));
    let waits = |deeds: &Deeds, number| deeds.waits_for(number);
    assert_eq!(
        [waits(&deeds, made), waits(&deeds, after)],
        [None, Some(made)]
    );
    assert_eq!(deeds.next(|_| true).map(|d| d.number), Some(made));
    // Except for a deed for its own name that was promised earlier.
    let gone = deed(deeds.add(at("e"), What::Unlink, Base::Any));
    let anew = deed(deeds.add(at("e"), What::Mkdir, Base::Any));
    let inner = deed(deeds.add(at("e/f"), What::Mkdir, Base::Any));
    assert_eq!(
        [waits(&deeds, anew), waits(&deeds, inner)],
        [Some(gone), Some(gone)]
    );
}
