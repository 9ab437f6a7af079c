//! Unfinished uploads to servers that are no nodes: which are in use, and which ranges the server reported as landed.

mod notes;

pub(super) use notes::NoteTiming;

use godwit_core::Extents;
use godwit_sys::why;
use notes::PartNote;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Once},
    time::Duration,
};

/// All parts on one server that this process knows of.
#[derive(Clone, Default)]
pub(super) struct RemoteParts(Arc<SharedParts>);

#[derive(Default)]
struct SharedParts {
    known: Mutex<HashMap<Vec<u8>, PartState>>,
    notes: Option<Notes>,
}

/// The notes that other processes read.
struct Notes {
    directory: PathBuf,
    /// The server and the login, without secrets.
    server: String,
}

#[derive(Default)]
struct PartState {
    is_claimed: bool,
    landed: Extents,
}

/// The exclusive right to write to one part.
pub(super) struct Claim {
    name: Vec<u8>,
    parts: Option<RemoteParts>,
    note: Mutex<Option<PartNote>>,
}

/// Whether what lands in a part is worth a note for another process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Remembered {
    /// The server cannot be asked for its ranges, and the part's name tells its source.
    OnDisk,
    /// The server knows.
    No,
}

impl RemoteParts {
    /// Returns none yet; notes about parts on `server` are in `directory`, if there is one.
    pub(super) fn new(directory: Option<PathBuf>, server: String) -> Self {
        let notes = directory.map(|directory| Notes { directory, server });
        let known = Mutex::default();
        Self(Arc::new(SharedParts { known, notes }))
    }

    /// Claims a part; if it is in use, another one that `or` names.
    pub(super) fn claim(
        &self,
        name: Vec<u8>,
        remembered: Remembered,
        or: impl Fn(String) -> Vec<u8>,
    ) -> Claim {
        if self.take(&name) {
            match self.note(&name, remembered) {
                Ok(note) => return self.claimed(name, note),
                Err(InUse) => self.give_up(&name),
            }
        }
        let mut others = (1..).map(|serial: u32| or(format!("{}-{serial}", std::process::id())));
        let name = others.find(|name| self.take(name));
        self.claimed(name.expect("there is always a higher number"), None)
    }

    fn claimed(&self, name: Vec<u8>, note: Option<PartNote>) -> Claim {
        if let Some(note) = &note
            && let Some(part) = self.lock().get_mut(&name)
            && part.landed.is_empty()
        {
            part.landed = note.read();
        }
        Claim {
            name,
            parts: Some(self.clone()),
            note: Mutex::new(note),
        }
    }

    fn take(&self, name: &[u8]) -> bool {
        let mut parts = self.lock();
        let part = parts.entry(name.into()).or_default();
        !std::mem::replace(&mut part.is_claimed, true)
    }

    fn give_up(&self, name: &[u8]) {
        let mut parts = self.lock();
        match parts.get_mut(name) {
            Some(part) if part.landed.is_empty() => drop(parts.remove(name)),
            Some(part) => part.is_claimed = false,
            None => {}
        }
    }

    /// Opens the note of a part; `None`: no note can be kept, and the upload continues without.
    fn note(&self, name: &[u8], remembered: Remembered) -> Result<Option<PartNote>, InUse> {
        let Some(notes) = self.0.notes.as_ref() else {
            return Ok(None);
        };
        if remembered == Remembered::No {
            return Ok(None);
        }
        SWEPT.call_once(|| {
            // There may be no directory yet.
            let _ = notes::sweep(&notes.directory, AGE_MAX);
        });
        let of = format!("{} {}", notes.server, name.escape_ascii());
        match PartNote::open(&notes.directory, &of) {
            Ok(Some(note)) => Ok(Some(note)),
            Ok(None) => Err(InUse),
            Err(error) => {
                tracing::warn!(error = why(&error), "what lands is not noted");
                Ok(None)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, PartState>> {
        self.0.known.lock()
    }
}

/// Another process writes to the part.
struct InUse;

impl Claim {
    /// Returns a name that needs no claim.
    pub(super) fn of_nothing(name: Vec<u8>) -> Self {
        Self {
            name,
            parts: None,
            note: Mutex::default(),
        }
    }

    /// Returns the name of the part.
    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the ranges that are known to have landed.
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
    pub(super) fn note(&self, landed: &Extents, when: NoteTiming) {
        let Some(parts) = &self.parts else {
            return;
        };
        if let Some(part) = parts.lock().get_mut(&self.name) {
            part.landed = landed.clone();
        }
        let mut note = self.note.lock();
        let noted = note.as_mut().map(|note| match landed.is_empty() {
            true => note.clear(),
            false => note.write(landed, when),
        });
        if let Some(Err(error)) = noted {
            // A full disk here is no fault of the upload.
            tracing::warn!(error = why(&error), "what landed was not noted");
            *note = None;
        }
    }

    /// Forgets the part: it is under its name now, or gone.
    pub(super) fn forget(&self) {
        self.note(&Extents::new(), NoteTiming::Now);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(parts) = &self.parts {
            // Releases the note for other processes first, then the name for this one, which opens the note again.
            self.note.lock().take();
            parts.give_up(&self.name);
        }
    }
}

static SWEPT: Once = Once::new();
/// A note that was unused for this long is removed.
const AGE_MAX: Duration = Duration::from_secs(30 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    fn or(serial: String) -> Vec<u8> {
        serial.into_bytes()
    }

    fn claim(parts: &RemoteParts) -> Claim {
        parts.claim(b"x".to_vec(), Remembered::OnDisk, or)
    }

    #[test]
    fn a_part_in_use_is_never_shared() {
        let parts = RemoteParts::default();
        let one = claim(&parts);
        let two = claim(&parts);
        assert_eq!(one.name(), b"x");
        assert_ne!(two.name(), b"x");
        one.note(&(0..5).into(), NoteTiming::Now);
        drop(one);
        assert_eq!(claim(&parts).landed(), (0..5).into());
    }

    #[test]
    fn landed_ranges_are_shared_until_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        // Each knows only its own server's reports, and the notes.
        let process = || RemoteParts::new(Some(directory.path().into()), "ftp://fermi:21".into());
        let (one, two) = (process(), process());
        let first = claim(&one);
        first.note(&(0..5).into(), NoteTiming::InTime);
        assert_ne!(claim(&two).name(), b"x", "in use");
        drop(first);
        let second = claim(&two);
        assert_eq!((second.name(), second.landed()), (&b"x"[..], (0..5).into()));
        second.forget();
        drop(second);
        assert!(claim(&process()).landed().is_empty());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
