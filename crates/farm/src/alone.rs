//! Work that one process of all does at a time, under a lease of the catalog.

use crate::{
    now,
    sites::{Sites, shown},
};
use godwit_catalog::{Change, LEASE_S};
use godwit_store::Result;
use parking_lot::{Condvar, Mutex};
use std::{path::Path, sync::Arc, thread, time::Duration};

/// The lease under which one process makes something; others wait for it.
pub(crate) struct SoleMaker {
    is_over: Arc<(Mutex<bool>, Condvar)>,
}

impl SoleMaker {
    pub(crate) fn take(sites: &Sites, name: &Path) -> Result<Self> {
        let what = format!("make {}", shown(name));
        let holder = format!("{} {:x}", sites.leases.holder(), now().as_nanos());
        let lease = Change::Lease {
            what: what.clone(),
            holder: holder.clone(),
            over: false,
        };
        while sites.change(name, lease.clone())? == 0 {
            sites.stores.options().cancel.check()?;
            thread::sleep(AGAIN_AFTER);
        }
        let is_over = Arc::new((Mutex::new(false), Condvar::new()));
        let (over, catalog) = (is_over.clone(), sites.catalog.clone());
        thread::spawn(move || {
            let mut is_over = over.0.lock();
            while !*is_over {
                over.1
                    .wait_for(&mut is_over, Duration::from_secs(LEASE_S / 3));
                // The last word gives it up.
                let change = Change::Lease {
                    what: what.clone(),
                    holder: holder.clone(),
                    over: *is_over,
                };
                if let Err(refusal) = catalog.change(&change.into()) {
                    tracing::warn!(why = refusal.said, "a lease was not renewed");
                }
            }
        });
        Ok(Self { is_over })
    }
}

impl Drop for SoleMaker {
    fn drop(&mut self) {
        *self.is_over.0.lock() = true;
        self.is_over.1.notify_all();
    }
}

const AGAIN_AFTER: Duration = Duration::from_millis(50);
