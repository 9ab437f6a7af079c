//! Uploads to servers of others that are not whole yet: which of them somebody is
//! writing now, and what the server said that it has of the rest.

use godwit_core::Extents;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

/// All parts on one server that this process knows of.
#[derive(Clone, Default)]
pub(super) struct Parts(Arc<Mutex<HashMap<Vec<u8>, Part>>>);

#[derive(Default)]
struct Part {
    is_claimed: bool,
    landed: Extents,
}

/// The right to write to one part, which nobody else has meanwhile.
pub(super) struct Claim {
    name: Vec<u8>,
    parts: Option<Parts>,
}

impl Parts {
    /// Claims a part; if somebody writes to it, another one that `or` names.
    pub(super) fn claim(&self, name: Vec<u8>, or: impl Fn(String) -> Vec<u8>) -> Claim {
        let mut parts = self.lock();
        let others = (1..).map(|serial: u32| or(format!("{}-{serial}", std::process::id())));
        let name = [name].into_iter().chain(others).find(|name| {
            let part = parts.entry(name.clone()).or_default();
            !std::mem::replace(&mut part.is_claimed, true)
        });
        Claim {
            name: name.expect("there is always a higher number"),
            parts: Some(self.clone()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Part>> {
        self.0.lock().expect("no thread panics while it holds this")
    }
}

impl Claim {
    /// Returns a name that needs no claim.
    pub(super) fn of_nothing(name: Vec<u8>) -> Self {
        Self { name, parts: None }
    }

    /// Returns what it is called.
    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns what is known to have landed.
    pub(super) fn landed(&self) -> Extents {
        let Some(parts) = &self.parts else {
            return Extents::new();
        };
        let parts = parts.lock();
        parts
            .get(&self.name)
            .map_or_else(Extents::new, |part| part.landed.clone())
    }

    /// Notes what landed.
    pub(super) fn note(&self, landed: &Extents) {
        if let Some(parts) = &self.parts
            && let Some(part) = parts.lock().get_mut(&self.name)
        {
            part.landed = landed.clone();
        }
    }

    /// Forgets the part: it is under its name now, or gone.
    pub(super) fn forget(&self) {
        self.note(&Extents::new());
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(parts) = &self.parts else {
            return;
        };
        let mut parts = parts.lock();
        match parts.get_mut(&self.name) {
            Some(part) if part.landed.is_empty() => drop(parts.remove(&self.name)),
            Some(part) => part.is_claimed = false,
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_in_use_is_never_shared() {
        let parts = Parts::default();
        let or = |serial: String| serial.into_bytes();
        let one = parts.claim(b"x".to_vec(), or);
        let two = parts.claim(b"x".to_vec(), or);
        assert_eq!(one.name(), b"x");
        assert_ne!(two.name(), b"x");
        one.note(&Extents::from(0..5));
        drop(one);
        assert_eq!(parts.claim(b"x".to_vec(), or).landed(), Extents::from(0..5));
    }
}
