//! `CKSM`: the checksum of a file.

use super::{FtpSession, TICK_NEVER};
use godwit_core::Algorithm;
use godwit_store::{Result, Store};
use godwit_wire::server::{FtpAnswer, Refusal};
use std::{ops::Range, path::Path, time::Duration};

impl FtpSession {
    /// Returns the digest. A long read runs in a thread, so that `ABOR` and `STAT` are answered, and `113` is sent to
    /// clients that asked for it.
    pub(super) fn digest(
        &mut self,
        path: &Path,
        by: Algorithm,
        range: Option<Range<u64>>,
        markers: Option<Duration>,
    ) -> Result<FtpAnswer, Refusal> {
        let digest = self.try_digest(path, by, range, markers);
        digest.map_err(Refusal::from)
    }

    fn try_digest(
        &mut self,
        path: &Path,
        by: Algorithm,
        range: Option<Range<u64>>,
        markers: Option<Duration>,
    ) -> Result<FtpAnswer> {
        let dir = self.dir().clone();
        let size = dir.stat(path)?.size;
        let bytes = range
            .as_ref()
            .map_or(size, |r| r.end.min(size).saturating_sub(r.start));
        let digest = if bytes <= AT_ONCE_BYTES {
            dir.digest(path, by, range)?
        } else {
            let watch = self.new_watch()?;
            self.attended(
                &watch,
                markers.unwrap_or(TICK_NEVER),
                &mut |machine| machine.on_checksum_progress(watch.moved_bytes()),
                || dir.digest_watched(path, by, range, &watch),
            )?
        };
        Ok(FtpAnswer::Digest(digest.hex()))
    }
}

/// So few bytes are read before a client could cancel.
const AT_ONCE_BYTES: u64 = 16 << 20;
