//! Shares the room among writers that want it at the same time, so that no writer waits for room that only a writer
//! behind it could give back.
//!
//! A writer that tells its size beforehand holds nothing until it gets all of it, in the order of arrival. A writer that
//! cannot tell holds what it has written. Of several of those the oldest goes on, and the others together leave it half of
//! the quota as long as it grows. If all pending bytes were delivered and still no waiting writer could go on, the youngest
//! that holds something is refused. This module has no clock: callers pass the time.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// The order in which writers came.
pub(crate) type Number = u64;

/// Writers that have not told their size, and those that wait.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    writers: BTreeMap<Number, Writer>,
}

#[derive(Debug)]
struct Writer {
    holds: u64,
    /// So much more is waited for.
    wants: Option<u64>,
    /// Its length is unknown until it ends.
    is_growing: bool,
    /// When it got something last.
    grew: Instant,
}

/// A request for room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub by: Number,
    /// The bytes of the quota that the writer has, and keeps while it waits.
    pub holds: u64,
    pub bytes: u64,
    /// There may be more to come after it.
    pub is_growing: bool,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Turn {
    /// Theirs: as soon as there is room.
    Now,
    /// That of others, so many of whom wait.
    Later { before: usize },
    /// There is no room unless a writer ends; the others have taken so much.
    Never { held: u64 },
}

impl Crowd {
    /// Says what is wanted from now on, and whose turn it is.
    pub(crate) fn ask(&mut self, quota: u64, wish: Wish, now: Instant) -> Turn {
        let writer = self.writers.entry(wish.by).or_insert(Writer {
            holds: 0,
            wants: None,
            is_growing: wish.is_growing,
            grew: now,
        });
        (writer.holds, writer.wants) = (wish.holds, Some(wish.bytes));
        self.turn(quota, wish.by, now)
    }

    fn turn(&self, quota: u64, by: Number, now: Instant) -> Turn {
        let waiting = self.waiting();
        let held: u64 = waiting.iter().map(|(_, writer, _)| writer.holds).sum();
        // Whatever is not held by those who wait may be given back without them.
        let at_best = quota.saturating_sub(held);
        let mut able = waiting.iter().filter(|(_, _, wants)| *wants <= at_best);
        if able.clone().next().is_none() {
            let last = waiting.iter().rfind(|(_, writer, _)| writer.holds > 0);
            return match last {
                Some((number, ..)) if *number != by => Turn::Later { before: 0 },
                _ => Turn::Never { held },
            };
        }
        let next = able.find(|(number, ..)| !self.leaves_room(quota, *number, now));
        let is_next = next.is_some_and(|(number, ..)| *number == by);
        let before = waiting.iter().position(|(number, ..)| *number == by);
        match is_next {
            true => Turn::Now,
            false => Turn::Later {
                before: before.unwrap_or(0),
            },
        }
    }

    /// Returns who waits and for how much, first who gets it first: who holds something gives it back sooner.
    fn waiting(&self) -> Vec<(Number, &Writer, u64)> {
        let waiting = self.writers.iter();
        let mut waiting: Vec<_> = waiting
            .filter_map(|(number, writer)| Some((*number, writer, writer.wants?)))
            .collect();
        waiting.sort_by_key(|(number, writer, _)| (writer.holds == 0, *number));
        waiting
    }

    /// Tells whether a writer leaves room for the oldest one, which goes on growing.
    fn leaves_room(&self, quota: u64, by: Number, now: Instant) -> bool {
        let mut growing = self.writers.iter().filter(|(_, writer)| writer.is_growing);
        let Some((oldest, first)) = growing.next() else {
            return false;
        };
        let Some(writer) = self.writers.get(&by).filter(|writer| writer.is_growing) else {
            return false;
        };
        // It may be that the same program writes both, and then the oldest waits for this one.
        let goes_on = now.saturating_duration_since(first.grew) < STILL;
        let others: u64 = growing.map(|(_, writer)| writer.holds).sum();
        let would_hold = others.saturating_add(writer.wants.unwrap_or(0));
        *oldest != by && goes_on && would_hold > quota / 2
    }

    /// Tells whether no other writer has an unknown size.
    pub(crate) fn is_alone(&self, by: Number) -> bool {
        self.writers.keys().all(|number| *number == by)
    }

    /// Notes that a writer got so many bytes.
    pub(crate) fn got(&mut self, by: Number, bytes: u64, now: Instant) {
        let Some(writer) = self.writers.get_mut(&by) else {
            return;
        };
        match writer.is_growing {
            true => {
                (writer.wants, writer.grew) = (None, now);
                writer.holds = writer.holds.saturating_add(bytes);
            }
            false => drop(self.writers.remove(&by)),
        }
    }

    /// Notes that a writer waits no more. Returns whether others do.
    pub(crate) fn goes(&mut self, by: Number) -> bool {
        match self.writers.get_mut(&by) {
            Some(writer) if writer.is_growing && writer.holds > 0 => writer.wants = None,
            _ => drop(self.writers.remove(&by)),
        }
        self.is_waited_in()
    }

    /// Notes that a writer has ended. Returns whether others wait.
    pub(crate) fn leave(&mut self, by: Number) -> bool {
        self.writers.remove(&by);
        self.is_waited_in()
    }

    fn is_waited_in(&self) -> bool {
        self.writers.values().any(|writer| writer.wants.is_some())
    }
}

/// A writer that got nothing for so long does not grow any more.
const STILL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: u64 = 10;

    fn whole(by: Number, bytes: u64) -> Wish {
        Wish {
            by,
            holds: 0,
            bytes,
            is_growing: false,
        }
    }

    fn growing(by: Number, holds: u64, bytes: u64) -> Wish {
        Wish {
            by,
            holds,
            bytes,
            is_growing: true,
        }
    }

    #[test]
    fn who_came_first_goes_first() {
        let (mut crowd, now) = (Crowd::default(), Instant::now());
        assert_eq!(crowd.ask(QUOTA, whole(1, 9), now), Turn::Now);
        assert_eq!(
            crowd.ask(QUOTA, whole(2, 1), now),
            Turn::Later { before: 1 }
        );
        crowd.got(1, 9, now);
        assert_eq!(crowd.ask(QUOTA, whole(2, 1), now), Turn::Now);
    }

    #[test]
    fn holder_goes_first() {
        let (mut crowd, now) = (Crowd::default(), Instant::now());
        assert_eq!(crowd.ask(QUOTA, whole(1, 8), now), Turn::Now);
        assert_eq!(crowd.ask(QUOTA, growing(2, 4, 1), now), Turn::Now);
        assert_eq!(
            crowd.ask(QUOTA, whole(1, 8), now),
            Turn::Later { before: 1 }
        );
    }

    #[test]
    fn youngest_waiter_gives_way() {
        let (mut crowd, now) = (Crowd::default(), Instant::now());
        for by in 1..=5 {
            crowd.ask(QUOTA, growing(by, 0, 2), now);
            crowd.got(by, 2, now);
        }
        let later = now + STILL;
        for by in 1..=4 {
            let turn = crowd.ask(QUOTA, growing(by, 2, 2), later);
            assert!(!matches!(turn, Turn::Never { .. }), "{by}: {turn:?}");
        }
        assert_eq!(
            crowd.ask(QUOTA, growing(5, 2, 2), later),
            Turn::Never { held: 10 }
        );
        crowd.leave(5);
        assert_eq!(crowd.ask(QUOTA, growing(1, 2, 2), later), Turn::Now);
    }

    #[test]
    fn growing_writer_keeps_half() {
        let (mut crowd, now) = (Crowd::default(), Instant::now());
        for by in 1..=3 {
            assert_eq!(crowd.ask(QUOTA, growing(by, 0, 2), now), Turn::Now);
            crowd.got(by, 2, now);
        }
        let fourth = growing(4, 0, 2);
        assert!(matches!(crowd.ask(QUOTA, fourth, now), Turn::Later { .. }));
        assert_eq!(crowd.ask(QUOTA, growing(1, 2, 2), now), Turn::Now);
        crowd.got(1, 2, now);
        assert_eq!(crowd.ask(QUOTA, fourth, now + STILL), Turn::Now);
        crowd.leave(1);
        assert_eq!(crowd.ask(QUOTA, fourth, now), Turn::Now);
    }

    /// Whatever they write and however they take turns, all end or are refused, and the oldest is not.
    #[test] //= KANGAROO-20 depot#room
    fn nobody_waits_for_ever() {
        for seed in 0..2_000u64 {
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut next = |below: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % below
            };
            let (mut crowd, now) = (Crowd::default(), Instant::now());
            let mut left: BTreeMap<Number, (u64, u64, bool)> = (0..6)
                .map(|by| (by, (0, 1 + next(QUOTA), next(3) > 0)))
                .collect();
            let (mut taken, mut idle, mut at) = (0, 0, now);
            while !left.is_empty() {
                idle += 1;
                at += STILL / 4;
                assert!(idle < 200, "seed {seed}: {left:?} {crowd:?}");
                let by = *left.keys().nth(next(left.len() as u64) as usize).unwrap();
                let (has, wants, is_growing) = left[&by];
                if has == wants {
                    crowd.leave(by);
                    left.remove(&by);
                    (taken, idle) = (taken - has, 0); // delivered
                    continue;
                }
                let bytes = match is_growing {
                    true => 1 + next((wants - has).min(3)),
                    false => wants,
                };
                let wish = Wish {
                    by,
                    holds: has,
                    bytes,
                    is_growing,
                };
                match crowd.ask(QUOTA, wish, at) {
                    Turn::Now if taken + bytes <= QUOTA => {
                        crowd.got(by, bytes, at);
                        left.insert(by, (has + bytes, wants, is_growing));
                        (taken, idle) = (taken + bytes, 0);
                    }
                    Turn::Never { .. } => {
                        let older = left.range(..by).any(|(_, (has, ..))| *has > 0);
                        assert!(older, "seed {seed}: the oldest is refused");
                        crowd.leave(by);
                        left.remove(&by);
                        (taken, idle) = (taken - has, 0);
                    }
                    _ => {}
                }
            }
        }
    }
}
