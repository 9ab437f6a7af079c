//! A node's own keys: the current key, and older ones that a peer may still know.
//!
//! A key is replaced without manual work: the old key is kept, and peers that pinned it receive the
//! new one. They receive it over a connection that the old key proves. Each side writes a file
//! before it sends a message that relies on it. So a node that crashes in between is still known
//! afterwards:
//!
//! 1. we note by which key each peer knows us (`knows`), keep the old key below `old/`, and replace ours;
//! 2. a peer that receives the new key notes it as `next`: from now on both count there;
//! 3. we note that the peer has it (`told`), and show it the new key from now on;
//! 4. the peer sees the new key, moves it to the place of the old (`key`), and we note so (`knows`);
//! 5. when every peer knows the new key, and no pending invite has the old one, the old key is removed.

use super::{Peer, PeersDir, Replace, removed};
use crate::{Credential, Error, Result, door::Fingerprint, kept::Stamp, lab};
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Stamps that tell whether a home's own keys have changed since they were read.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeysSeen([Option<Stamp>; 2]);

/// Stamp that tells whether the record of a peer has changed since it was read.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PeerSeen(Option<Stamp>);

impl PeersDir {
    /// Returns the stamp of a peer's record.
    pub fn peer_seen(&self, name: &str) -> PeerSeen {
        let file = self.peer_file(name).ok().flatten();
        let meta = file.and_then(|file| fs::metadata(file).ok());
        PeerSeen(meta.as_ref().map(Stamp::of))
    }

    /// Returns the node's own key, if it has one.
    pub fn key(&self) -> Result<Option<Credential>> {
        let file = self.0.join(KEY);
        match file.exists() {
            true => self.read_own(&file).map(Some),
            false => Ok(None),
        }
    }

    /// Returns the node's own key, made now if there was none.
    pub fn key_or_new(&self) -> Result<Credential> {
        if let Some(key) = self.key()? {
            return Ok(key);
        }
        let made = lab::throw_away(KEY_LIFETIME)?;
        self.write(Path::new(KEY), &made.to_pem()?, Replace::Never)?;
        self.key()?
            .ok_or_else(|| Error::io(self.0.join(KEY), io::ErrorKind::NotFound))
    }

    /// Returns the node's own keys: the current key first, then older keys that a peer may still
    /// know.
    pub fn keys(&self) -> Result<Vec<Credential>> {
        let mut keys = vec![self.key_or_new()?];
        let newest = Fingerprint::of_credential(&keys[0])?;
        for file in self.old_keys()? {
            let old = self.read_own(&file)?;
            if Fingerprint::of_credential(&old)? != newest {
                keys.push(old);
            }
        }
        Ok(keys)
    }

    /// Returns the hashes of older keys that still count, each with the time of its replacement.
    pub fn old_keys_since(&self) -> Result<Vec<(Fingerprint, SystemTime)>> {
        let (files, mut old) = (self.old_keys()?, Vec::new());
        if files.is_empty() {
            return Ok(old);
        }
        let newest = Fingerprint::of_credential(&self.key_or_new()?)?;
        for file in files {
            let key = Fingerprint::of_credential(&self.read_own(&file)?)?;
            let written = fs::metadata(&file).and_then(|meta| meta.modified());
            let since = written.map_err(|cause| Error::Io { path: file, cause })?;
            if key != newest {
                old.push((key, since));
            }
        }
        Ok(old)
    }

    /// Returns the stamps of the files with the keys.
    pub fn keys_seen(&self) -> KeysSeen {
        let look = |name| {
            let meta = fs::metadata(self.0.join(name)).ok()?;
            Some(Stamp::of(&meta))
        };
        KeysSeen([look(KEY), look(OLD)])
    }

    /// Returns the key by which a peer surely knows us.
    pub fn key_for(&self, peer: &Peer) -> Result<Credential> {
        let newest = self.key_or_new()?;
        let Some(wanted) = peer.told.or(peer.knows) else {
            return Ok(newest);
        };
        let file = self.0.join(OLD).join(format!("{wanted}.pem"));
        if wanted == Fingerprint::of_credential(&newest)? || !file.exists() {
            return Ok(newest);
        }
        self.read_own(&file)
    }

    /// Makes another key, and keeps the one that peers know. `false`: the one before is not known to all
    /// peers yet, so no other was made.
    pub fn rotate(&self) -> Result<bool> {
        let _lock = self.lock()?;
        if !self.waiting_for_key()?.is_empty() {
            return Ok(false);
        }
        self.replace_key()?;
        Ok(true)
    }

    /// Replaces the key even if a peer has not received the one before.
    pub fn rotate_anew(&self) -> Result<()> {
        let _lock = self.lock()?;
        if self.old_keys()?.len() >= OLD_MAX {
            return Err(Error::bad_request(format!(
                "{OLD_MAX} older keys are still kept for peers that know no newer one: see godwit peers"
            )));
        }
        self.replace_key()
    }

    fn replace_key(&self) -> Result<()> {
        let old = self.key_or_new()?;
        let known_by = Fingerprint::of_credential(&old)?;
        for peer in self.peers()? {
            if peer.knows.is_none() {
                self.put(&Peer {
                    knows: Some(known_by),
                    ..peer
                })?;
            }
        }
        let kept = Path::new(OLD).join(format!("{known_by}.pem"));
        self.write(&kept, &old.to_pem()?, Replace::Never)?;
        let new = lab::throw_away(KEY_LIFETIME)?;
        self.write(Path::new(KEY), &new.to_pem()?, Replace::Whole)
    }

    /// Returns the peers that do not know our newest key, as far as we have seen.
    pub fn waiting_for_key(&self) -> Result<Vec<Peer>> {
        if self.old_keys()?.is_empty() {
            return Ok(Vec::new());
        }
        let newest = Fingerprint::of_credential(&self.key_or_new()?)?;
        let mut peers = self.peers()?;
        peers.retain(|peer| peer.knows.is_some_and(|key| key != newest));
        Ok(peers)
    }

    /// Notes that a peer has taken note of that key of ours.
    pub fn note_told(&self, name: &str, ours: Fingerprint) -> Result<()> {
        self.amend(name, |peer| {
            peer.told = Some(ours).filter(|key| peer.knows != Some(*key));
        })
        .map(drop)
    }

    /// Notes that a peer knows us by that key: it was used between us. Removes keys that are no
    /// longer needed.
    pub fn note_knows(&self, name: &str, ours: Fingerprint) -> Result<()> {
        self.amend(name, |peer| {
            peer.knows = Some(ours);
            peer.told = peer.told.filter(|told| *told != ours);
        })?;
        self.drop_unneeded().map(drop)
    }

    /// Notes that a peer, which one of its keys proved, says that it has another one now.
    pub fn expect_key(&self, name: &str, next: Fingerprint) -> Result<()> {
        if let Some(other) = self.peer_with(&next)?
            && !super::is_same_name(&other.name, name)
        {
            return Err(Error::bad_request("another node is known here by that key"));
        }
        self.amend(name, |peer| {
            peer.next = Some(next).filter(|next| *next != peer.key);
        })
        .map(drop)
    }

    /// Notes that a peer has shown this key: if it said that it would, the one before counts no more.
    pub fn has_shown(&self, name: &str, key: Fingerprint) -> Result<()> {
        self.amend(name, |peer| {
            if peer.next == Some(key) {
                (peer.key, peer.next) = (key, None);
            }
        })
        .map(drop)
    }

    /// Removes old keys that no peer knows us by; returns how many are left.
    pub fn drop_unneeded(&self) -> Result<usize> {
        if self.old_keys()?.is_empty() && self.files(super::INVITES)?.is_empty() {
            return Ok(0);
        }
        let _lock = self.lock()?;
        let (peers, invites) = (self.peers()?, self.sweep_invites(SystemTime::now())?);
        let newest = Fingerprint::of_credential(&self.key_or_new()?)?;
        let is_needed = |key: Option<Fingerprint>| {
            let by_peer = |peer: &Peer| peer.knows == key || peer.told == key;
            // A key that was kept just before a crash, without a successor, is not older.
            key.is_some_and(|key| key != newest)
                && (peers.iter().any(by_peer) || invites.iter().any(|i| i.key == key))
        };
        let mut left = 0;
        for file in self.old_keys()? {
            let stem = file.file_stem().and_then(|stem| stem.to_str());
            match is_needed(stem.and_then(|stem| stem.parse().ok())) {
                true => left += 1,
                false => drop(removed(&file)?),
            }
        }
        Ok(left)
    }

    /// Removes all old keys. A peer that knows no newer key does not know us any more.
    pub fn forget_old_keys(&self) -> Result<usize> {
        let _lock = self.lock()?;
        let old = self.old_keys()?;
        for file in &old {
            removed(file)?;
        }
        Ok(old.len())
    }

    fn old_keys(&self) -> Result<Vec<PathBuf>> {
        let mut files = self.files(OLD)?;
        files.retain(|file| file.extension().is_some_and(|end| end == "pem"));
        files.sort();
        Ok(files)
    }

    /// Reads a key of our own. Root may read the keys of the home's owner.
    fn read_own(&self, file: &Path) -> Result<Credential> {
        let io = |cause| Error::io(file, cause);
        let (home, key) = (fs::metadata(&self.0), fs::metadata(file));
        let (home, key) = (home.map_err(io)?, key.map_err(io)?);
        if godwit_sys::user_id() != 0 || key.uid() == 0 || key.uid() != home.uid() {
            return Credential::from_file(file);
        }
        if key.mode() & 0o077 != 0 {
            let what = format!("others may use it (mode {:04o})", key.mode() & 0o777);
            return Err(Error::exposed(file, what));
        }
        Credential::from_pem(&fs::read(file).map_err(io)?)
    }
}

pub(super) const KEY: &str = "node.pem";
pub(super) const OLD: &str = "old";
/// More than a node needs; each key costs a context of TLS.
const OLD_MAX: usize = 8;
const KEY_LIFETIME: Duration = Duration::from_secs(100 * 365 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn home(scratch: &tempfile::TempDir, name: &str) -> PeersDir {
        let home = PeersDir::at(&scratch.path().join(name));
        home.call_myself(name, &[]).unwrap();
        home
    }

    fn pin(home: &PeersDir) -> Fingerprint {
        Fingerprint::of_credential(&home.key_or_new().unwrap()).unwrap()
    }

    fn knows_each_other(a: &PeersDir, b: &PeersDir) {
        for (here, there) in [(a, b), (b, a)] {
            here.add(&there.myself().unwrap().unwrap()).unwrap();
        }
    }

    /// Does the steps of a visit of `from` to `to`, up to the given point.
    fn visit(from: &PeersDir, to: &PeersDir, points: usize) {
        let name = |home: &PeersDir| home.myself().unwrap().unwrap().name;
        let (we, they) = (name(from), name(to));
        let shown = |key: &Credential| Fingerprint::of_credential(key).unwrap();
        let known = |key| to.peer_with(&key).unwrap().is_some_and(|p| p.name == we);
        let old = shown(&from.key_for(&from.peer(&they).unwrap().unwrap()).unwrap());
        assert!(known(old), "not known any more");
        let mut steps: Vec<Box<dyn Fn()>> = vec![
            Box::new(|| to.has_shown(&we, old).unwrap()),
            Box::new(|| to.expect_key(&we, pin(from)).unwrap()),
            Box::new(|| from.note_told(&they, pin(from)).unwrap()),
            Box::new(|| to.has_shown(&we, pin(from)).unwrap()),
            Box::new(|| from.note_knows(&they, pin(from)).unwrap()),
        ];
        steps.truncate(points);
        steps.iter().for_each(|step| step());
    }

    #[test]
    fn crash_between_steps_keeps_peers_connected() {
        for (first, second) in (0..=5).flat_map(|a| (0..=5).map(move |b| (a, b))) {
            let scratch = tempfile::tempdir().unwrap();
            let (a, b) = (home(&scratch, "a"), home(&scratch, "b"));
            knows_each_other(&a, &b);
            let before = pin(&a);
            assert!(a.rotate().unwrap());
            visit(&a, &b, first);
            // Another key follows before the one before was known.
            a.rotate_anew().unwrap();
            visit(&a, &b, second);
            visit(&a, &b, 5);
            let known = b.peer("a").unwrap().unwrap();
            assert_eq!((known.key, known.next), (pin(&a), None));
            assert!(!known.has(&before));
            assert_eq!(a.keys().unwrap().len(), 1, "{first} {second}");
        }
    }

    #[test]
    fn old_key_stays_while_needed() {
        let scratch = tempfile::tempdir().unwrap();
        let (a, b) = (home(&scratch, "a"), home(&scratch, "b"));
        knows_each_other(&a, &b);
        let before = pin(&a);
        a.rotate().unwrap();
        assert!(
            !a.rotate().unwrap(),
            "one that is not known yet is replaced"
        );
        assert_eq!(a.keys().unwrap().len(), 2);
        assert_eq!(a.drop_unneeded().unwrap(), 1);
        assert_eq!(a.waiting_for_key().unwrap().len(), 1);
        let shown = a.key_for(&a.peer("b").unwrap().unwrap()).unwrap();
        assert_eq!(Fingerprint::of_credential(&shown).unwrap(), before);
        assert_eq!(a.forget_old_keys().unwrap(), 1);
        assert_eq!(a.keys().unwrap().len(), 1);
    }

    #[test]
    fn invite_keeps_its_key() {
        let scratch = tempfile::tempdir().unwrap();
        let a = home(&scratch, "a");
        let invite = a.invite(DAY, None, false).unwrap();
        a.rotate().unwrap();
        assert_eq!(a.drop_unneeded().unwrap(), 1);
        a.take_back(&invite.secret, SystemTime::now()).unwrap();
        assert_eq!(a.drop_unneeded().unwrap(), 0);
        assert_eq!(a.invite(DAY, None, false).unwrap().key, pin(&a));
    }

    #[test]
    fn nobody_takes_the_key_of_another() {
        let scratch = tempfile::tempdir().unwrap();
        let (a, b, c) = (
            home(&scratch, "a"),
            home(&scratch, "b"),
            home(&scratch, "c"),
        );
        knows_each_other(&a, &b);
        knows_each_other(&a, &c);
        let error = a.expect_key("b", pin(&c)).unwrap_err().to_string();
        assert!(error.contains("another node"), "{error}");
        // An unannounced key changes nothing.
        a.has_shown("b", pin(&c)).unwrap();
        assert_eq!(a.peer("b").unwrap().unwrap().key, pin(&b));
    }

    #[test]
    fn home_writable_by_others_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = tempfile::tempdir().unwrap();
        let (a, b) = (home(&scratch, "a"), home(&scratch, "b"));
        knows_each_other(&a, &b);
        for place in ["a", "a/peers"] {
            let place = scratch.path().join(place);
            fs::set_permissions(&place, fs::Permissions::from_mode(0o770)).unwrap();
            let error = a.peers().unwrap_err().to_string();
            assert!(error.contains("others may write there"), "{error}");
            fs::set_permissions(&place, fs::Permissions::from_mode(0o750)).unwrap();
        }
        assert_eq!(a.peers().unwrap().len(), 1);
    }
}
