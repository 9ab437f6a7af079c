//! Files that programs of peers read and write: compared, hashed, and put under their names.

use super::{Around, BEAT, LineSink, other};
use godwit_core::{Algorithm, Digest, Hashing, Kind};
use godwit_sys::why;
use godwit_wire::door::{
    call::{Line, Name, Refusal, Text},
    run::Placed,
};
use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
};

/// A file that is hashed beside the program that reads it.
pub(super) struct HashedFile {
    file: PathBuf,
    /// The file as it was before.
    before: Option<FileStamp>,
    digest: Receiver<io::Result<(u64, Digest)>>,
    is_over: Arc<AtomicBool>,
}

/// Attributes that differ after a change of the file: device, inode, length, times of the last changes.
type FileStamp = (u64, u64, u64, (i64, i64), (i64, i64));

fn seen(file: &Path) -> Option<FileStamp> {
    let found = fs::metadata(file).ok()?;
    let changed = (found.ctime(), found.ctime_nsec());
    let written = (found.mtime(), found.mtime_nsec());
    Some((found.dev(), found.ino(), found.len(), written, changed))
}

impl HashedFile {
    /// Begins to hash a file.
    pub(super) fn begin(file: PathBuf) -> Self {
        let (before, path) = (seen(&file), file.clone());
        let (tell, digest) = channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        thread::spawn(move || {
            let hashed = File::open(&file).and_then(|file| hash(file, &over));
            // This fails once the client is gone.
            let _ = tell.send(hashed);
        });
        Self {
            file: path,
            before,
            digest,
            is_over,
        }
    }

    /// Waits for the digest, with beats to the client. Refuses a file that was changed since it was opened.
    pub(super) fn end(self, tell: &mut LineSink<'_>) -> Result<(u64, Digest), Refusal> {
        loop {
            match self.digest.recv_timeout(BEAT) {
                Ok(_) if seen(&self.file) != self.before => {
                    let said = "the program changed its input, or another one did: the result does not count";
                    return Err(Refusal::of_kind(Kind::Corrupt, said));
                }
                Ok(hashed) => return hashed.map_err(|cause| other(&cause)),
                Err(RecvTimeoutError::Timeout) => tell(Line::Beat(0))?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Refusal::of_kind(Kind::Other, "a file could not be hashed"));
                }
            }
        }
    }
}

impl Drop for HashedFile {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
    }
}

fn hash(mut file: File, is_over: &AtomicBool) -> io::Result<(u64, Digest)> {
    let (mut hashing, mut size) = (Hashing::new(Algorithm::Blake3), 0);
    let mut buffer = vec![0; PIECE_BYTES];
    while !is_over.load(Relaxed) {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((size, hashing.finish())),
            Ok(count) => {
                hashing.update(&buffer[..count]);
                size += count as u64;
            }
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}

/// Refuses the output of a program whose input was not as expected.
pub(super) fn must_be(file: &Name, expected: &Digest, found: &Digest) -> Result<(), Refusal> {
    if expected == found {
        return Ok(());
    }
    let said = format!(
        "{} is {found} there, and {expected} was meant: the result does not count",
        file.0.display()
    );
    Err(Refusal::of_kind(Kind::Corrupt, said).about(file.0.display().to_string()))
}

/// Makes a file that a program wrote in its directory durable, and puts it under its name, which must be free.
pub(super) fn place(
    around: &Around<'_>,
    file: &str,
    to: &Name,
    tell: &mut LineSink<'_>,
) -> Result<Placed, Refusal> {
    let written = around.workplace.path().join(file);
    let is_file = fs::symlink_metadata(&written).map(|found| found.is_file());
    if !matches!(is_file, Ok(true)) {
        let said = match is_file {
            Ok(_) => "the program ended with 0, and what it wrote as {out} is no plain file".into(),
            Err(cause) => format!(
                "the program ended with 0, and did not write {{out}}: {}",
                why(&cause)
            ),
        };
        let next = "have it write to the path that {out} stands for, or use --stdout";
        return Err(Refusal::of_kind(Kind::Unsupported, said).next(next));
    }
    let (size, digest) = HashedFile::begin(written.clone()).end(tell)?;
    let durable = File::open(&written).and_then(|file| file.sync_all());
    durable.map_err(|cause| other(&cause))?;
    let from = around.workplace.below_export().join(file);
    (around.place)(&from, &to.0).map_err(|error| Refusal::from(&error))?;
    Ok(Placed {
        path: to.clone(),
        size,
        digest: Text(digest),
    })
}

/// The name of `{out}` in the directory of the program.
pub(super) const WRITTEN: &str = "out";
/// The file that gets its standard output.
pub(super) const PRINTED: &str = "stdout";
const PIECE_BYTES: usize = 256 << 10;
