//! What comes of work that goes on by itself, in a thread of its own.

use super::watch::{Patience, TICK};
use crate::{Error, Result};
use std::{
    io,
    sync::{
        Mutex,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
};

/// The result of a thread that nobody joins: who loses interest drops this, and sees
/// to it that the work ends.
#[derive(Debug)]
pub(super) struct Awaited<T>(Mutex<Receiver<Result<T>>>);

impl<T: Send + 'static> Awaited<T> {
    /// Begins the work.
    pub(super) fn begin(work: impl FnOnce() -> Result<T> + Send + 'static) -> io::Result<Self> {
        let (tell, told) = mpsc::sync_channel(1);
        let run = move || {
            // Nobody may be interested any more.
            let _ = tell.send(work());
        };
        thread::Builder::new().name("proof".into()).spawn(run)?;
        Ok(Self(Mutex::new(told)))
    }

    /// Waits for what comes of it.
    pub(super) fn wait(
        &mut self,
        host: &str,
        during: &str,
        patience: &mut Patience<'_>,
    ) -> Result<T> {
        let told = self
            .0
            .get_mut()
            .expect("no thread panics while it holds this");
        loop {
            match told.recv_timeout(TICK) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => patience.waited(host, during)?,
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Canceled),
            }
        }
    }
}
