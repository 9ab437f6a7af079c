//! Group commit: the lists of changes that wait while a transaction commits go into the next one together.

use crate::{Changes, Refusal, Result};
use godwit_core::Kind;
use parking_lot::Mutex;
use std::sync::mpsc::{SyncSender, sync_channel};

/// The numbers that one list of changes made, or its refusal.
pub(crate) type GroupResult = Result<Vec<u64>>;

/// The callers that change a catalog. One of them leads, and commits for all waiting callers.
#[derive(Default)]
pub(crate) struct Group {
    /// The callers that wait; `None`: no caller leads.
    waiting: Mutex<Option<Vec<WaitingChanges>>>,
}

struct WaitingChanges {
    changes: Changes,
    turn: SyncSender<GroupTurn>,
}

/// News for a caller that waits.
enum GroupTurn {
    /// The leader committed its list, or refused it.
    Done(GroupResult),
    /// The caller leads from now on.
    Lead,
}

impl Group {
    /// Commits a list, maybe with those of other callers. `commit` runs in one caller at a time, and returns a result a list.
    pub(crate) fn change(
        &self,
        changes: &Changes,
        commit: impl FnOnce(&[&Changes]) -> Result<Vec<GroupResult>>,
    ) -> GroupResult {
        let turn = match &mut *self.waiting.lock() {
            free @ None => {
                *free = Some(Vec::new());
                None
            }
            Some(waiting) => {
                let (turn, told) = sync_channel(1);
                let changes = changes.clone();
                waiting.push(WaitingChanges { changes, turn });
                Some(told)
            }
        };
        match turn.map(|told| told.recv()) {
            Some(Ok(GroupTurn::Done(made))) => return made,
            Some(Err(_)) => return Err(lost()),
            Some(Ok(GroupTurn::Lead)) | None => {}
        }
        let leading = Leading(self);
        let others = self.waiting.lock().as_mut().map(std::mem::take);
        let others = others.unwrap_or_default();
        let all: Vec<&Changes> = std::iter::once(changes)
            .chain(others.iter().map(|other| &other.changes))
            .collect();
        let committed = commit(&all);
        drop(leading);
        let mut made = match committed {
            Ok(made) => made.into_iter(),
            Err(refusal) => vec![Err(refusal); all.len()].into_iter(),
        };
        let own = made.next();
        for (other, made) in others.into_iter().zip(made) {
            // The other writer waits for this message.
            let _ = other.turn.send(GroupTurn::Done(made));
        }
        own.unwrap_or_else(|| Err(lost()))
    }
}

/// The leader. The next of those that wait follows it, also when it panics.
struct Leading<'a>(&'a Group);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting.lock();
        let next = waiting.as_mut().filter(|waiting| !waiting.is_empty());
        match next.map(|waiting| waiting.remove(0)) {
            Some(next) => drop(next.turn.send(GroupTurn::Lead)),
            None => *waiting = None,
        }
    }
}

fn lost() -> Refusal {
    Refusal::of_kind(
        Kind::Io,
        "the process that commits for others failed; the changes may be made or not",
    )
    .next("see the log, and ask the catalog")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
    };

    fn list(seq: u64) -> Changes {
        Changes {
            changes: vec![],
            once: Some((String::new(), seq)),
        }
    }

    fn waiting(group: &Group) -> usize {
        group.waiting.lock().as_ref().map_or(0, Vec::len)
    }

    #[test]
    fn concurrent_lists_share_a_commit() {
        let (group, commits) = (Group::default(), AtomicUsize::new(0));
        let change = |seq, others| {
            group.change(&list(seq), |all| {
                while waiting(&group) < others {
                    thread::yield_now();
                }
                commits.fetch_add(1, Ordering::SeqCst);
                let made = |list: &&Changes| match list.once.as_ref().unwrap().1 {
                    3 => Err(lost()),
                    seq => Ok(vec![seq]),
                };
                Ok(all.iter().map(made).collect())
            })
        };
        thread::scope(|scope| {
            let first = scope.spawn(|| change(9, 8));
            while group.waiting.lock().is_none() {
                thread::yield_now();
            }
            let all: Vec<_> = (0..8)
                .map(|seq| scope.spawn(move || change(seq, 0)))
                .collect();
            assert_eq!(first.join().unwrap(), Ok(vec![9]));
            for (seq, one) in (0..).zip(all) {
                let made = one.join().unwrap();
                assert_eq!(made.is_err(), seq == 3);
                assert!(made.is_err() || made == Ok(vec![seq]));
            }
        });
        assert_eq!(commits.load(Ordering::SeqCst), 2);
        assert!(group.waiting.lock().is_none());
    }

    #[test]
    fn next_leads_after_a_panic() {
        let group = Group::default();
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                group.change(&list(1), |_| {
                    while waiting(&group) < 1 {
                        thread::yield_now();
                    }
                    panic!("as a test wants")
                })
            });
            while group.waiting.lock().is_none() {
                thread::yield_now();
            }
            let second = group.change(&list(2), |all| Ok(vec![Ok(vec![all.len() as u64])]));
            assert!(first.join().is_err());
            assert_eq!(second, Ok(vec![1]));
        });
    }
}
