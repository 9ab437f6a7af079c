//! Fresh keys, with some RSA keys ready in advance.
//!
//! An RSA key takes some 90 ms to find, and a login should not wait for it. A thread that the first
//! use starts keeps a few ready.

use crate::{Result, error::Doing};
use openssl::{
    pkey::{HasPublic, Id, PKey, PKeyRef, Private},
    rsa::Rsa,
};
use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

/// Returns a key to delegate to: of the kind of the peer's, since the peer must be able to use it.
///
/// Globus answers with RSA of the peer's own length and so fails with elliptic curves. RSA is
/// 2048 here whatever the peer has: the key lives for hours. Where one such peer comes others do,
/// perhaps all at once.
pub(crate) fn like<T: HasPublic>(peer: &PKeyRef<T>) -> Result<PKey<Private>> {
    match peer.id() {
        Id::EC | Id::ED25519 | Id::ED448 => elliptic(),
        _ => {
            let mut stock = STOCK.lock();
            stock.keys_wanted = stock.keys_wanted.max(KEYS_IN_USE);
            drop(stock);
            ready_rsa()
        }
    }
}

/// Makes a P-256 key; that is quick.
pub(crate) fn elliptic() -> Result<PKey<Private>> {
    PKey::ec_gen("prime256v1").doing("making a key")
}

/// Makes an RSA key of that length, however long it takes.
pub(crate) fn rsa(bits: u32) -> Result<PKey<Private>> {
    let key = Rsa::generate(bits).doing("making a key")?;
    PKey::from_rsa(key).doing("making a key")
}

/// Takes a ready RSA key of 2048 bits, or makes one.
pub(crate) fn ready_rsa() -> Result<PKey<Private>> {
    let mut stock = STOCK.lock();
    let key = stock.keys.pop();
    if key.is_none() {
        // More clients arrive at once than expected.
        stock.keys_wanted = (stock.keys_wanted * 2).min(KEYS_MAX);
    }
    fill(stock);
    key.map_or_else(|| rsa(BITS), Ok)
}

/// Has keys made now, since one may be needed soon.
pub(crate) fn prepare() {
    fill(STOCK.lock());
}

fn fill(mut stock: MutexGuard<'static, Shelf>) {
    STOCK.wanted.notify_one();
    if stock.is_tended {
        return;
    }
    let tending = thread::Builder::new().name("keys".into()).spawn(tend);
    // Without the thread each login makes its own key: slower, not wrong.
    stock.is_tended = tending.is_ok();
}

fn tend() {
    // Keys in advance are less urgent than keys in demand.
    let _ = rustix::process::nice(10);
    loop {
        let mut stock = STOCK.lock();
        while stock.keys.len() >= stock.keys_wanted {
            stock = STOCK
                .wanted
                .wait(stock)
                .unwrap_or_else(PoisonError::into_inner);
        }
        drop(stock);
        match rsa(BITS) {
            Ok(key) => STOCK.lock().keys.push(key),
            Err(_) => {
                STOCK.lock().is_tended = false;
                return;
            }
        }
    }
}

struct Stock {
    shelf: Mutex<Shelf>,
    wanted: Condvar,
}

struct Shelf {
    keys: Vec<PKey<Private>>,
    keys_wanted: usize,
    is_tended: bool,
}

impl Stock {
    fn lock(&self) -> MutexGuard<'_, Shelf> {
        // A key is on the shelf or it is not: nothing is left half done.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static STOCK: Stock = Stock {
    shelf: Mutex::new(Shelf {
        keys: Vec::new(),
        keys_wanted: KEYS_AT_FIRST,
        is_tended: false,
    }),
    wanted: Condvar::new(),
};

const BITS: u32 = 2048;
const KEYS_AT_FIRST: usize = 4;
/// Three seconds of a processor that has nothing else to do.
const KEYS_IN_USE: usize = 32;
const KEYS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_given_twice() {
        let (one, two) = (ready_rsa().unwrap(), ready_rsa().unwrap());
        assert!(!one.public_eq(&two));
        assert_eq!(one.bits(), 2048);
    }

    #[test]
    fn elliptic_peer_gets_elliptic_key() {
        let peer = elliptic().unwrap();
        assert_eq!(like(&peer).unwrap().id(), Id::EC);
    }
}
