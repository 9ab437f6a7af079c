//! Gives a complete upload its name, and compares the file with the sent bytes and with
//! the source's hashes.

use crate::remote::{Remote, faults, names, session::RemoteSession};
use crate::store::is_no_conflict;
use crate::{
    BlockWriter, EntryKind, Error, Expected, Finished, Result, Set, Store, Verified, WriteMode,
};
use godwit_core::{Algorithm, Block, Digest, Extents, Hashing, Version};
use godwit_wire::client::{self, Family, ReplyFacts, Talk, Upload};
use parking_lot::Mutex;
use std::time::{Duration, SystemTime};

use super::{Delivering, plan::DeliveryPlan};
impl Delivering {
    pub(super) fn publish(
        &self,
        session: &mut RemoteSession,
        whole: &Expected,
    ) -> Result<Finished> {
        let plan = &self.plan;
        if let WriteMode::Replace(Some(version)) = &plan.how {
            check_unchanged(&self.remote, session, plan, version)?;
        }
        match plan.family {
            Family::Godwit if plan.is_apart() => self.publish_ours(session, whole),
            _ => self.publish_there(session, whole),
        }
    }

    fn publish_ours(&self, session: &mut RemoteSession, whole: &Expected) -> Result<Finished> {
        let plan = &self.plan;
        let size = whole.size.or(plan.size);
        let sent = size.and_then(|size| self.digest_of_sent(size));
        let named = whole
            .digest
            .as_ref()
            .filter(|d| d.algorithm() == Algorithm::Blake3);
        if let (Some(sent), Some(named)) = (&sent, named)
            && sent != named
        {
            return Err(Error::corrupt(
                plan.path.clone(),
                named.to_string(),
                sent.to_string(),
            ));
        }
        let source = self.compare_with_source(whole, size)?;
        let digest = named.or(sent.as_ref());
        let published = self.told.state().published.take();
        let is_compared_there = published.is_none();
        let told = match published {
            Some(told) => {
                self.dress(session, whole)?;
                told
            }
            None => {
                let upload = Upload {
                    size,
                    modify: whole.mtime,
                    mode: whole.mode.or(plan.mode),
                    blake3: digest,
                    how: Some(plan.how_word()),
                    ..plan.upload()
                };
                let reply = session.ask_one(upload.finish(&plan.name)?)?;
                let checked = faults::check(&session.host, &plan.path, &reply);
                checked.map_err(|error| lost_there(error, &session.host))?;
                ReplyFacts::from_reply(&reply).unwrap_or_default()
            }
        };
        let verified = match (digest, &told.blake3) {
            (Some(ours), Some(theirs)) if ours == theirs => Verified::By(Algorithm::Blake3),
            (Some(ours), Some(theirs)) => {
                return Err(Error::corrupt(
                    plan.path.clone(),
                    ours.to_string(),
                    theirs.to_string(),
                ));
            }
            // It was published only if it hashed to this.
            (Some(_), None) if is_compared_there => Verified::By(Algorithm::Blake3),
            _ => match &whole.digest {
                Some(expected) => self.compare_published(session, expected)?,
                None => Verified::SizeOnly,
            },
        };
        // The weaker of both verifications counts for the whole way.
        let verified = match (source, verified) {
            (Some(by), Verified::By(_)) => Verified::By(by),
            (_, verified) => verified,
        };
        let digest = told.blake3.clone().or(digest.cloned());
        Ok(Finished {
            version: digest.clone().map_or(Version::None, Version::Strong),
            digests: digest.into_iter().collect(),
            verified,
            reread_bytes: told.reread.unwrap_or(0),
            in_place: told.in_place,
        })
    }

    /// Compares the sent bytes with a digest of another kind that the source reported.
    fn compare_with_source(
        &self,
        whole: &Expected,
        size: Option<u64>,
    ) -> Result<Option<Algorithm>> {
        let Some(named) = whole
            .digest
            .as_ref()
            .filter(|d| d.algorithm() != Algorithm::Blake3)
        else {
            return Ok(None);
        };
        if named.algorithm() != Algorithm::Adler32 {
            return Err(Error::unsupported(
                format!("comparing an upload with {}", named.algorithm()),
                "only BLAKE3 and ADLER32 are computed on the way",
            ));
        }
        let sums = self.sums.as_ref();
        let summed = sums.and_then(|sums| sums.lock().total(size?));
        match summed {
            Some(summed) if summed != *named => Err(Error::corrupt(
                self.plan.path.clone(),
                named.to_string(),
                summed.to_string(),
            )),
            summed => Ok(summed.map(|_| Algorithm::Adler32)),
        }
    }

    /// Compares a published file with a foreign source's digest, of an algorithm that is not computed on the way. A
    /// wrong file is removed from its name.
    fn compare_published(
        &self,
        session: &mut RemoteSession,
        expected: &Digest,
    ) -> Result<Verified> {
        let (plan, by) = (&self.plan, expected.algorithm());
        let reply = session.ask_one(client::checksum(by, None, &plan.name)?)?;
        faults::check(&session.host, &plan.path, &reply)?;
        let found = client::checksum_of(&reply, by)?;
        if found == *expected {
            return Ok(Verified::By(by));
        }
        names::remove(session, &plan.path, &plan.name, crate::RemovalKind::File)?;
        Err(Error::corrupt(
            plan.path.clone(),
            expected.to_string(),
            found.to_string(),
        ))
    }

    fn publish_there(&self, session: &mut RemoteSession, whole: &Expected) -> Result<Finished> {
        let plan = &self.plan;
        let found = names::stat(session, &plan.path, plan.file())?;
        if let Some(size) = whole.size
            && found.size > size
            && plan.how == WriteMode::InPlace
        {
            let cut = Set::of_length(size);
            names::set(session, &plan.path, plan.file(), &cut)?;
        } else if let Some(size) = whole.size
            && found.size != size
        {
            return Err(Error::corrupt(
                plan.path.clone(),
                format!("{size} bytes"),
                format!("{} bytes", found.size),
            ));
        }
        let digest = self.compare(session, whole, whole.size.unwrap_or(found.size))?;
        let verified = match &digest {
            Some(digest) => Verified::By(digest.algorithm()),
            None if plan.how == WriteMode::InPlace => self.compare_ranges(session)?,
            None => Verified::SizeOnly,
        };
        self.dress(session, whole)?;
        if plan.is_apart() {
            self.move_in(session)?;
        }
        let stat = names::stat(session, &plan.path, &plan.name)?;
        Ok(Finished {
            version: stat.version(now()),
            verified,
            digests: self
                .digest_of_sent(stat.size)
                .into_iter()
                .chain(digest)
                .collect(),
            ..Finished::default()
        })
    }

    /// Compares the published file with the expected hash, by a checksum that both know.
    fn compare(
        &self,
        session: &mut RemoteSession,
        whole: &Expected,
        size: u64,
    ) -> Result<Option<Digest>> {
        let offered = session.peer.features.checksums();
        let named = whole
            .digest
            .clone()
            .filter(|d| offered.contains(&d.algorithm()));
        let summed = || {
            let sums = self.sums.as_ref()?.lock();
            sums.total(size)
                .filter(|_| offered.contains(&Algorithm::Adler32))
        };
        let Some(expected) = named.or_else(summed) else {
            return Ok(None);
        };
        let by = expected.algorithm();
        let reply = session.ask_one(client::checksum(by, None, self.plan.file())?)?;
        faults::check(&session.host, &self.plan.path, &reply)?;
        let found = client::checksum_of(&reply, by)?;
        if found == expected {
            return Ok(Some(expected));
        }
        Err(Error::corrupt(
            self.plan.path.clone(),
            expected.to_string(),
            found.to_string(),
        ))
    }

    /// Compares each range that was written in place with the sent bytes, if the server computes checksums.
    fn compare_ranges(&self, session: &mut RemoteSession) -> Result<Verified> {
        const BY: Algorithm = Algorithm::Adler32;
        let plan = &self.plan;
        let (given, is_drawn) = {
            let given = self.given.lock();
            (given.bytes.clone(), given.is_drawn)
        };
        // What another server sent was not summed up here.
        let Some(sums) = self.sums.as_ref().filter(|_| !is_drawn) else {
            return Ok(Verified::SizeOnly);
        };
        for range in given.iter() {
            let line = client::checksum(BY, Some(range.clone()), plan.file())?;
            let found = match names::digest(session, &plan.path, line, BY) {
                // A hop may have forwarded the range, and not reach what has it.
                Err(_) if session.peer.features.passes_on() && !session.is_broken => {
                    return Ok(Verified::SizeOnly);
                }
                found => found?,
            };
            let sent = sums.lock().of(range.clone());
            if sent.as_ref() == Some(&found) {
                continue;
            }
            let sent = sent.map_or("one sum".into(), |sent| sent.to_string());
            return Err(Error::corrupt(
                plan.path.clone(),
                format!("{sent} for bytes {} to {}", range.start, range.end),
                found.to_string(),
            ));
        }
        Ok(Verified::By(BY))
    }

    /// Gives the file its time and mode. A server that cannot is no reason to fail.
    fn dress(&self, session: &mut RemoteSession, whole: &Expected) -> Result<()> {
        let plan = &self.plan;
        let mode = match whole.mode.or(plan.mode) {
            // A replaced file keeps its mode.
            None if plan.is_apart() => names::stat(session, &plan.path, &plan.name)
                .ok()
                .and_then(|stat| stat.mode),
            mode => mode,
        };
        let sets = [
            Set {
                mode,
                ..Set::default()
            },
            Set {
                mtime: whole.mtime,
                ..Set::default()
            },
        ];
        for set in sets {
            match names::set(session, &plan.path, plan.file(), &set) {
                Err(error) if session.is_broken => return Err(error),
                Err(error) => tracing::debug!(%error, "attributes were not set"),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Renames the part to its name.
    fn move_in(&self, session: &mut RemoteSession) -> Result<()> {
        let plan = &self.plan;
        // The lock keeps other uploads of this process from coming between the check and the rename. Another program
        // may, since FTP has no "only if the name is free".
        let _alone = self.remote.0.publishing.lock();
        if plan.how == WriteMode::New && names::exists(session, &plan.path, &plan.name)? {
            return Err(Error::exists(plan.path.clone()));
        }
        let reply = client::rename(session, plan.file(), &plan.name)?;
        if reply.is_positive() {
            return Ok(());
        }
        // Some servers rename only to names that are free.
        let refused = faults::check(&session.host, &plan.path, &reply).map(drop);
        match names::stat(session, &plan.path, &plan.name) {
            Ok(stat) if stat.kind == EntryKind::Directory => {
                return Err(Error::directory(plan.path.clone()));
            }
            Ok(_) => names::remove(session, &plan.path, &plan.name, crate::RemovalKind::File)?,
            Err(_) => return refused,
        }
        let reply = client::rename(session, plan.file(), &plan.name)?;
        faults::check(&session.host, &plan.path, &reply).map(drop)
    }
}

/// Landed bytes that were lost in a restart of the server are sent again; no other writer changed the file.
fn lost_there(error: Error, host: &str) -> Error {
    match error {
        Error::Changed { what, .. } if what.contains(LACKS) => {
            Error::lost(host, "publishing", std::io::Error::other(what))
        }
        error => error,
    }
}

/// How a node of ours says that an upload lacks bytes.
const LACKS: &str = " bytes are missing (";

/// Refuses if the file is not the version that was to be replaced.
pub(super) fn check_unchanged(
    remote: &Remote,
    session: &mut RemoteSession,
    plan: &DeliveryPlan,
    version: &Version,
) -> Result<()> {
    let found = match version {
        Version::Strong(digest) => {
            digest_of(remote, session, plan, digest.algorithm()).map(Version::Strong)
        }
        _ => names::stat(session, &plan.path, &plan.name).map(|stat| stat.version(now())),
    };
    let found = match found {
        Ok(found) => found,
        Err(Error::Missing { .. }) => Version::None,
        Err(error) => return Err(error),
    };
    match is_no_conflict(version, &found) {
        true => Ok(()),
        false => Err(Error::changed(
            plan.path.clone(),
            "it is not the version that was to be replaced",
        )),
    }
}

/// Returns the digest of what stands under the name, read back if the server computes none.
fn digest_of(
    remote: &Remote,
    session: &mut RemoteSession,
    plan: &DeliveryPlan,
    by: Algorithm,
) -> Result<Digest> {
    if session.peer.features.checksums().contains(&by) {
        let reply = session.ask_one(client::checksum(by, None, &plan.name)?)?;
        faults::check(&session.host, &plan.path, &reply)?;
        return Ok(client::checksum_of(&reply, by)?);
    }
    let hashing = ReadBack(Mutex::new(Some(Hashing::new(by))));
    remote.read(&plan.path, &Extents::from(0..u64::MAX), 1, &hashing)?;
    let hashed = hashing.0.lock().take();
    Ok(hashed.expect("it is taken here only").finish())
}

/// Hashes bytes that arrive in order, as on one stream.
struct ReadBack(Mutex<Option<Hashing>>);

impl BlockWriter for ReadBack {
    fn put(&self, block: Block<'_>) -> Result<()> {
        if let Some(hashing) = &mut *self.0.lock() {
            hashing.update(block.bytes);
        }
        Ok(())
    }
}

pub(super) fn now() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}
