//! What comes of work that goes on by itself, in a thread of its own.

use super::watch::{Patience, TICK};
use crate::{Error, Result};
use parking_lot::Mutex;
use std::{
    io,
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
};

/// The result of a thread that nobody joins: who loses interest drops this, and sees
/// to it that the work ends.
#[derive(Debug)]
pub(super) struct Awaited<T> {
    told: Mutex<Receiver<Result<T>>>,
    /// What came of it, if somebody has looked.
    came: Option<Box<Result<T>>>,
}

impl<T: Send + 'static> Awaited<T> {
    /// Begins the work.
    pub(super) fn begin(work: impl FnOnce() -> Result<T> + Send + 'static) -> io::Result<Self> {
        let (tell, told) = mpsc::sync_channel(1);
        let run = move || {
            // Nobody may be interested any more.
            let _ = tell.send(work());
        };
        thread::Builder::new().name("proof".into()).spawn(run)?;
        Ok(Self {
            told: Mutex::new(told),
            came: None,
        })
    }

    /// Returns why we refuse whoever is there, if that is known by now. Any other fault is
    /// told by [`Awaited::wait`].
    pub(super) fn refusal(&mut self) -> Option<Error> {
        let told = self.told.get_mut();
        if self.came.is_none() {
            self.came = told.try_recv().ok().map(Box::new);
        }
        let is_refusal = |came: &mut Box<Result<T>>| matches!(**came, Err(Error::Trust { .. }));
        self.came.take_if(is_refusal)?.err()
    }

    /// Waits for what comes of it.
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
