//! Appends by programs: piece by piece, or as a stream whose lines are kept whole.

use crate::local::refusals;
use godwit_core::Url;
use godwit_depot::{Appending, Error};
use godwit_local::Refusal;
use parking_lot::{Condvar, Mutex};
use std::{
    io::{self, Read},
    os::unix::net::UnixStream,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// A pipe whose bytes are appended to a file.
pub(crate) struct AppendPipe {
    appending: Arc<Appending>,
    pub(crate) url: Url,
    ended: Mutex<Option<Result<(), Error>>>,
    changed: Condvar,
}

impl AppendPipe {
    /// Begins one, and returns the end that a program writes into.
    pub(crate) fn begin(
        url: &Url,
        appending: Arc<Appending>,
    ) -> Result<(Arc<Self>, UnixStream), Refusal> {
        let wanted = format!("append to {}", url.without_password());
        let bad = |error: io::Error| refusals::disk(&wanted, &error);
        let (ours, theirs) = UnixStream::pair().map_err(bad)?;
        let stream = Arc::new(Self {
            appending,
            url: url.clone(),
            ended: Mutex::new(None),
            changed: Condvar::new(),
        });
        let kept = Arc::clone(&stream);
        thread::Builder::new()
            .name("append".into())
            .spawn(move || kept.end(take_lines(ours, &kept.appending)))
            .map_err(bad)?;
        Ok((stream, theirs))
    }

    fn end(&self, outcome: Result<(), Error>) {
        *self.ended.lock() = Some(outcome);
        self.changed.notify_all();
    }

    /// Waits until the writer has closed it, and all bytes were read.
    pub(crate) fn wait(&self, limit: Duration) -> Result<&Appending, Error> {
        let until = Instant::now() + limit;
        let mut ended = self.ended.lock();
        loop {
            match &*ended {
                Some(outcome) => return outcome.clone().map(|()| &*self.appending),
                None if Instant::now() >= until => {
                    let what = "a copy of the descriptor is still open".into();
                    let waited = limit;
                    return Err(Error::TimedOut { waited, what });
                }
                None => drop(self.changed.wait_until(&mut ended, until)),
            }
        }
    }
}

/// Reads to the end, and appends what ends in a newline; of what does not, a piece when it is long, and the
/// rest at the end.
fn take_lines(mut from: UnixStream, appending: &Appending) -> Result<(), Error> {
    let mut kept: Vec<u8> = Vec::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => {
                kept.extend(&buffer[..len]);
                let whole = match kept.iter().rposition(|&byte| byte == b'\n') {
                    Some(last) => last + 1,
                    None if kept.len() >= LINE_MAX => kept.len(),
                    None => 0,
                };
                if whole > 0 {
                    appending.add(&kept[..whole])?;
                    kept.drain(..whole);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break, // its writer is gone
        }
    }
    match kept.is_empty() {
        true => Ok(()),
        false => appending.add(&kept),
    }
}

const BUFFER_BYTES: usize = 64 << 10;

/// A longer line may be divided.
const LINE_MAX: usize = 256 << 10;
