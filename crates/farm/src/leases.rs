//! The leases of intents: they are renewed as long as this process works on them.

use crate::now;
use godwit_catalog::{Catalog, Change, Changes, LEASE_S};
use parking_lot::{Condvar, Mutex};
use std::{collections::HashMap, sync::Arc, thread, time::Duration};

/// The intents of this process.
pub(crate) struct Leases {
    shared: Arc<Shared>,
    /// The word by which the catalog knows this process.
    holder: String,
}

struct Shared {
    catalog: Arc<dyn Catalog>,
    held: Mutex<Set>,
    /// Woken when the last lease is given up.
    over: Condvar,
}

#[derive(Default)]
struct Set {
    /// The holder of each intent, and the count of its users.
    intents: HashMap<u64, (String, usize)>,
    is_renewed: bool,
}

/// One intent; given up when it is dropped.
pub(crate) struct IntentLease {
    pub(crate) intent: u64,
    shared: Arc<Shared>,
}

impl Leases {
    /// Returns none.
    pub(crate) fn new(catalog: Arc<dyn Catalog>) -> Self {
        let nanos = now().as_nanos();
        let host = godwit_sys::host_name().unwrap_or_else(|| "localhost".into());
        let shared = Shared {
            catalog,
            held: Mutex::default(),
            over: Condvar::new(),
        };
        Self {
            shared: Arc::new(shared),
            holder: format!("{host} {} {nanos}", std::process::id()),
        }
    }

    /// Returns the word by which the catalog knows this process.
    pub(crate) fn holder(&self) -> String {
        self.holder.clone()
    }

    /// Renews the lease of an intent of this process from now on.
    pub(crate) fn hold(&self, intent: u64) -> IntentLease {
        self.hold_as(intent, self.holder())
    }

    /// Renews a lease that several processes hold by the same word.
    pub(crate) fn hold_as(&self, intent: u64, holder: String) -> IntentLease {
        let mut held = self.shared.held.lock();
        held.intents.entry(intent).or_insert((holder, 0)).1 += 1;
        if !std::mem::replace(&mut held.is_renewed, true) {
            let shared = self.shared.clone();
            thread::spawn(move || shared.renew());
        }
        let shared = self.shared.clone();
        IntentLease { intent, shared }
    }
}

impl Drop for IntentLease {
    fn drop(&mut self) {
        let mut held = self.shared.held.lock();
        if let Some((_, users)) = held.intents.get_mut(&self.intent) {
            *users -= 1;
            if *users == 0 {
                held.intents.remove(&self.intent);
            }
        }
        if held.intents.is_empty() {
            self.shared.over.notify_all();
        }
    }
}

impl Shared {
    /// Renews all leases, until there are none.
    fn renew(&self) {
        let mut held = self.held.lock();
        loop {
            self.over.wait_for(&mut held, RENEWED_EVERY);
            if held.intents.is_empty() {
                held.is_renewed = false;
                return;
            }
            let of = |(intent, (holder, _)): (&u64, &(String, usize))| Change::Renew {
                intent: *intent,
                holder: holder.clone(),
            };
            let changes: Vec<_> = held.intents.iter().map(of).collect();
            drop(held);
            // A writer learns by the next change of its intent that its lease has ended.
            if let Err(refusal) = self.catalog.change(&Changes::from(changes)) {
                tracing::warn!(why = refusal.said, "leases were not renewed");
            }
            held = self.held.lock();
        }
    }
}

/// Often enough that one renewal may be lost.
const RENEWED_EVERY: Duration = Duration::from_secs(LEASE_S / 3);
