//! The result of work in a thread of its own, which is waited for later.

use crate::watch::{Patience, TICK};
use crate::{Error, Result};
use parking_lot::Mutex;
use std::{
    io,
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
};

/// The result of a thread that is never joined. A caller that no longer needs the result drops this, and makes the
/// work end itself.
#[derive(Debug)]
pub(super) struct Awaited<T> {
    told: Mutex<Receiver<Result<T>>>,
    /// The result, once it was received.
    came: Option<Box<Result<T>>>,
}

impl<T: Send + 'static> Awaited<T> {
    /// Begins the work.
    pub(super) fn begin(work: impl FnOnce() -> Result<T> + Send + 'static) -> io::Result<Self> {
        let (tell, told) = mpsc::sync_channel(1);
        let run = move || {
            // The receiver may have been dropped.
            let _ = tell.send(work());
        };
        thread::Builder::new().name("proof".into()).spawn(run)?;
        Ok(Self {
            told: Mutex::new(told),
            came: None,
        })
    }

    /// Returns the error that refuses the peer, if the work ended with one by now. [`Awaited::wait`] returns any
    /// other error.
    pub(super) fn refusal(&mut self) -> Option<Error> {
        let told = self.told.get_mut();
        if self.came.is_none() {
            self.came = told.try_recv().ok().map(Box::new);
        }
        let is_refusal = |came: &mut Box<Result<T>>| matches!(**came, Err(Error::Trust { .. }));
        self.came.take_if(is_refusal)?.err()
    }

    /// Waits for the result.
    pub(super) fn wait(
        &mut self,
        host: &str,
        during: &str,
        patience: &mut Patience<'_>,
    ) -> Result<T> {
        if let Some(came) = self.came.take() {
            return *came;
        }
        let told = self.told.get_mut();
        loop {
            match told.recv_timeout(TICK) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => patience.waited(host, during)?,
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Canceled),
            }
        }
    }
}
