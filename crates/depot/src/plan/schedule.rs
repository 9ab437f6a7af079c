//! Picks the next delivery.
//!
//! To look for the smallest of all pending entries each time would cost too much. So a look notes a share of what it
//! found, and the next picks take from that. Where much is pending and nothing can be delivered, the next look waits.

use crate::{
    id::Id,
    plan::{Plan, backoff::Away, entry::Entry},
};
use godwit_core::deeds::Do;
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// The next work of a delivering thread.
pub(crate) enum Due {
    File(Arc<Entry>),
    Deed(Do),
}

/// Orders candidates: first those that have waited for long, then the smaller ones.
type Rank = (bool, u64);

/// Candidates of the last search.
#[derive(Default)]
pub(crate) struct Picks {
    /// The best is the last.
    found: Vec<Candidate>,
    /// No thread searches again before that time.
    rest: Option<Instant>,
    /// How many entries were looked at.
    #[cfg(test)]
    pub steps: u64,
}

struct Candidate {
    rank: Rank,
    number: u64,
    /// The entry of a publication; `None`: another operation.
    id: Option<Id>,
}

/// One search.
struct Look {
    now: Instant,
    /// The time in seconds since the epoch.
    time: u64,
    /// When the first of those becomes due that are not due yet.
    again: Option<Instant>,
    steps: u64,
}

impl Look {
    fn is_away(&mut self, away: &HashMap<String, Away>, server: &str) -> bool {
        match away.get(server) {
            Some(away) if away.until > self.now => {
                self.later(away.until);
                true
            }
            _ => false,
        }
    }

    fn later(&mut self, at: Instant) {
        self.again = Some(self.again.map_or(at, |other| other.min(at)));
    }

    /// Returns the rank of a file; `None`: it is not due.
    fn rank(&mut self, entry: &Entry) -> Option<Rank> {
        self.steps += 1;
        let state = entry.lock();
        if let Some(at) = state
            .delivery
            .retry
            .not_before
            .filter(|at| *at > self.now && state.delivery.is_due)
        {
            self.later(at);
            return None;
        }
        let is_held = state.machine.held().is_some();
        if is_held && state.is_superseded && state.delivery.is_due && state.users.open > 0 {
            self.later(self.now + LOOK_AGAIN);
        }
        let gives_way = state.is_superseded && state.users.open == 0;
        let is_due = state.delivery.is_due && (!is_held || gives_way);
        if !is_due || state.is_gone || state.delivery.is_in_flight {
            return None;
        }
        let pending = state.machine.owed_bytes();
        drop(state);
        let is_old = self.time.saturating_sub(entry.created_at) > AGE_BOUND.as_secs();
        Some(match is_old {
            true => (false, entry.number()),
            false => (true, pending),
        })
    }
}

impl Plan {
    /// Takes the next work, or returns when to search again; `time` is `now` in seconds since the epoch.
    pub(crate) fn pick(&mut self, now: Instant, time: u64) -> (Option<Due>, Option<Instant>) {
        let mut look = Look {
            now,
            time,
            again: None,
            steps: 0,
        };
        let mut due = self.pick_found(&mut look);
        if let Some(rest) = self.picks.rest.filter(|rest| *rest > look.now) {
            look.later(rest);
        } else if due.is_none() {
            self.find(&mut look);
            due = self.pick_found(&mut look);
            let rest = REST.saturating_mul(u32::try_from(look.steps).unwrap_or(u32::MAX));
            let is_long = due.is_none() && look.steps > FEW;
            self.picks.rest = is_long.then(|| now + rest.min(REST_MAX));
        }
        #[cfg(test)]
        {
            self.picks.steps += look.steps;
        }
        (due, look.again)
    }

    /// Takes the best candidate that is still due.
    fn pick_found(&mut self, look: &mut Look) -> Option<Due> {
        while let Some(Candidate { id, number, .. }) = self.picks.found.pop() {
            let Some(id) = id else {
                if let Some(server) = self.order.server(number)
                    && !look.is_away(&self.backoff.servers, &server)
                    && let Some(deed) = self.order.take(number)
                {
                    return Some(Due::Deed(deed));
                }
                continue;
            };
            let Some(entry) = self.by_id.get(&id) else {
                continue;
            };
            let url = entry.url();
            if look.rank(entry).is_none() || look.is_away(&self.backoff.servers, &url.host_port()) {
                continue;
            }
            let may = match self.private.contains_key(&id) {
                true => self.order.is_free(&url),
                false => self.order.take_file(entry).is_some(),
            };
            if may {
                entry.lock().delivery.is_in_flight = true;
                return Some(Due::File(Arc::clone(entry)));
            }
            tracing::debug!(%url, number = entry.number(), "not its turn");
        }
        None
    }

    /// Searches all pending entries, and notes the best candidates.
    fn find(&mut self, look: &mut Look) {
        let mut found = Vec::new();
        let mut add = |rank, number, id| found.push(Candidate { rank, number, id });
        for (server, ready) in self.order.ready_by_server() {
            if look.is_away(&self.backoff.servers, server) {
                continue;
            }
            for ready in ready {
                match ready.id.map(|id| self.by_id.get(&id)) {
                    // An operation on a name is cheap, and others may wait for it.
                    None => match self.order.later(ready.number) {
                        Some(at) if at > look.now => look.later(at),
                        _ => add((false, ready.number), ready.number, None),
                    },
                    Some(None) => {}
                    Some(Some(entry)) => {
                        if let Some(rank) = look.rank(entry) {
                            add(rank, ready.number, Some(entry.id));
                        }
                    }
                }
            }
        }
        // An open file may be sent ahead if nothing else is pending at its name.
        for entry in self.private.values() {
            if let Some(rank) = look.rank(entry)
                && !look.is_away(&self.backoff.servers, &entry.url().host_port())
                && self.order.is_free(&entry.url())
            {
                add(rank, entry.number(), Some(entry.id));
            }
        }
        let best = |a: &Candidate, b: &Candidate| (b.rank, b.number).cmp(&(a.rank, a.number));
        found.sort_unstable_by(best);
        // Smaller entries that arrive meanwhile are found by the next search.
        let share = (look.steps / SHARE).max(1) as usize;
        self.picks.found = found.split_off(found.len().saturating_sub(share));
    }
}

/// One of so many entries that were looked at becomes a candidate.
const SHARE: u64 = 64;

/// Up to so many entries are searched again after each event.
const FEW: u64 = 1000;

/// The pause for each entry that was looked at in vain.
const REST: Duration = Duration::from_micros(5);
const REST_MAX: Duration = Duration::from_millis(500);

/// How often a superseded entry with users is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// An entry that has waited longer is delivered before smaller ones.
const AGE_BOUND: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Who, clock::now};
    use godwit_core::{
        Url,
        holding::{Base, Holding, Mode},
    };

    /// A plan with `count` files, each longer than the one before it.
    fn pending(count: u64) -> Plan {
        let mut plan = Plan::default();
        for number in 1..=count {
            let mut machine = Holding::born(Base::Any, Mode::Replace);
            let ticket = machine.grant(0..number);
            machine.written(ticket, number);
            let mut id = [0; 12];
            id[4..].copy_from_slice(&number.to_be_bytes());
            let url: Url = format!("ftp://there/in/{number}").parse().unwrap();
            let entry = Entry::new(Id::of(id), (number, now()), url, Who::default(), machine);
            entry.lock().delivery.is_due = true;
            plan.insert(&Arc::new(entry));
        }
        plan
    }

    fn picked(plan: &mut Plan) -> Option<u64> {
        picked_at(plan, now())
    }

    fn picked_at(plan: &mut Plan, time: u64) -> Option<u64> {
        match plan.pick(Instant::now(), time).0 {
            Some(Due::File(entry)) => Some(entry.number()),
            _ => None,
        }
    }

    #[test]
    fn smallest_first_without_full_searches() {
        const COUNT: u64 = 4000;
        let mut plan = pending(COUNT);
        let order: Vec<_> = std::iter::from_fn(|| picked(&mut plan)).collect();
        assert_eq!(order, (1..=COUNT).collect::<Vec<_>>());
        let steps = plan.picks.steps;
        assert!(steps < 2 * SHARE * COUNT, "{steps} for {COUNT}");
    }

    #[test]
    fn smaller_newcomer_goes_first() {
        let mut plan = pending(10);
        assert_eq!(picked(&mut plan), Some(1));
        let late = Arc::clone(plan.by_id.values().next_back().unwrap());
        late.lock().machine = {
            let mut machine = Holding::born(Base::Any, Mode::Replace);
            let ticket = machine.grant(0..1);
            machine.written(ticket, 1);
            machine
        };
        assert_eq!(picked(&mut plan), Some(10));
        assert_eq!(picked(&mut plan), Some(2));
    }

    #[test] //= delivery#order
    fn old_large_file_goes_first() {
        // The last is the largest, and came an hour before the others.
        let late = || {
            let mut plan = pending(9);
            let mut machine = Holding::born(Base::Any, Mode::Replace);
            let ticket = machine.grant(0..1 << 30);
            machine.written(ticket, 1 << 30);
            let url: Url = "ftp://there/in/old".parse().unwrap();
            let mut old = Entry::new(Id::of([9; 12]), (10, now()), url, Who::default(), machine);
            old.created_at -= 3600;
            old.lock().delivery.is_due = true;
            let came = old.created_at;
            plan.insert(&Arc::new(old));
            (plan, came)
        };
        let (mut plan, came) = late();
        let order: Vec<_> =
            std::iter::from_fn(|| picked_at(&mut plan, came + AGE_BOUND.as_secs())).collect();
        assert_eq!(order, (1..=10).collect::<Vec<_>>());
        let (mut plan, came) = late();
        let after = came + AGE_BOUND.as_secs() + 1;
        let order: Vec<_> = std::iter::from_fn(|| picked_at(&mut plan, after)).collect();
        assert_eq!(order, [10, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn absent_server_costs_no_search() {
        let mut plan = pending(4000);
        let error = crate::Error::Ending;
        crate::plan::backoff::server_away(
            &mut plan,
            "there",
            error,
            &crate::Rules::default(),
            Instant::now(),
        );
        let (due, again) = plan.pick(Instant::now(), now());
        assert!(due.is_none() && again.is_some());
        assert_eq!(plan.picks.steps, 0);
        plan.backoff.servers.clear();
        assert_eq!(picked(&mut plan), Some(1));
    }

    #[test]
    fn fruitless_searches_are_spaced() {
        let mut plan = pending(4000);
        for entry in plan.by_id.values() {
            entry.lock().delivery.is_due = false;
        }
        assert!(plan.pick(Instant::now(), now()).0.is_none());
        assert!(plan.picks.rest.is_some());
        let (steps, later) = (plan.picks.steps, Instant::now() + AGE_BOUND);
        plan.picks.rest = Some(later);
        let (due, again) = plan.pick(Instant::now(), now());
        assert!(due.is_none());
        assert_eq!((again, plan.picks.steps), (Some(later), steps));
        plan.picks.rest = Some(Instant::now());
        plan.by_id
            .values()
            .for_each(|entry| entry.lock().delivery.is_due = true);
        assert_eq!(picked(&mut plan), Some(1));
    }
}
