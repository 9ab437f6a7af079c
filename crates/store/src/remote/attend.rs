//! One transfer seen from the control channel: bytes move in a thread of their
//! own while the server's words are heard here, and whichever fails ends both.

use super::{RemoteOptions, faults, headway::Headway, session::RemoteSession};
use crate::{
    Error, Result,
    channel::{DataChannel, Watch},
};
use godwit_sys::{Wake, wait_readable};
use godwit_wire::{client::Line, reply::Reply};
use std::{
    io,
    os::fd::AsFd,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// The first reply to a transfer command.
#[derive(Debug)]
pub(super) enum TransferStart {
    /// Data connections are up: bytes move.
    Moving,
    /// The transfer has ended with success.
    Over(Reply),
}

/// Waits for the first reply to a transfer command. A server that should prove its identity on the data connection,
/// and does not, waits too. Without the check, both sides would wait for ever.
pub(super) fn begin(
    session: &mut RemoteSession,
    channel: &mut DataChannel,
    path: &Path,
    patience: Duration,
) -> Result<TransferStart> {
    let heard = match channel.is_proving_in_thread() {
        true => session.hear_unless(TO_BEGIN, patience, Some(&mut || channel.refusal())),
        false => session.hear_within(TO_BEGIN, patience),
    };
    let begun = heard.and_then(|reply| match reply.is_final() {
        false => Ok(TransferStart::Moving),
        true => {
            faults::check(&session.host, path, &reply).map(|_| TransferStart::Over(reply.clone()))
        }
    });
    begun.map_err(|error| ours_first(session, error))
}

/// Both ends prove a data connection by our credential: if it has expired, that is the cause, whichever end noticed.
fn ours_first(session: &RemoteSession, error: Error) -> Error {
    let is_of_proof = match &error {
        Error::Trust { .. } | Error::Lost { .. } | Error::Stalled { .. } => true,
        Error::Denied { said, .. } => said.contains("data connection"),
        _ => false,
    };
    match session.check_dates() {
        Err(over) if is_of_proof => over,
        _ => error,
    }
}

/// Connects for data while the server waits, and reads its first reply. The server's refusal explains more than a
/// connection that fails.
pub(super) fn connect_and_begin(
    session: &mut RemoteSession,
    channel: &mut DataChannel,
    streams: usize,
    watch: &Watch,
    path: &Path,
    patience: Duration,
) -> Result<TransferStart> {
    let Err(error) = channel.open(streams, watch) else {
        return begin(session, channel, path, patience);
    };
    match begin(session, channel, path, patience.min(EXPLAIN_MAX)) {
        Err(refused) if !session.is_broken => Err(refused),
        _ => {
            session.is_broken = true;
            Err(error)
        }
    }
}

/// Runs `carry` in a thread until the bytes have moved and the server has confirmed them.
///
/// Calls `on_word` with every preliminary reply. A negative final reply explains more than the broken connection that
/// it causes, so the reply is waited for briefly. A fault of our own side is returned as it is.
pub(super) fn attend<R: Send>(
    session: &mut RemoteSession,
    options: &RemoteOptions,
    watch: &Watch,
    path: &Path,
    begun: TransferStart,
    carry: impl FnOnce() -> Result<R> + Send,
    on_word: &mut dyn FnMut(&Reply) -> Result<()>,
) -> Result<(R, Reply)> {
    let over = Wake::new().map_err(|cause| Error::io("a wake", cause))?;
    let (carried, last) = thread::scope(|scope| {
        let over_there = &over;
        let carrier = scope.spawn(move || {
            let carried = carry();
            over_there.raise();
            carried
        });
        let heard = Hearing {
            session,
            options,
            watch,
            over: &over,
            on_word,
        }
        .until_final(begun);
        if heard.as_ref().map_or(true, |reply| !reply.is_positive()) {
            watch.cancel();
        }
        let carried = carrier.join();
        (carried.expect("carrying does not panic"), heard)
    });
    match (carried, last) {
        (Ok(carried), Ok(reply)) => {
            faults::check(&session.host, path, &reply)?;
            Ok((carried, reply))
        }
        (carried, Ok(reply)) if !reply.is_positive() => {
            let refused = faults::check(&session.host, path, &reply).map(|_| ());
            match carried {
                // The disk here is full, say: that is why the server was cut off.
                Err(error) if is_ours(&error) => Err(error),
                _ => Err(refused.expect_err("it is negative")),
            }
        }
        (Err(error), last) => {
            session.is_broken = true;
            match (error, last) {
                // The thread was stopped because of what happened here.
                (Error::Canceled, Err(error)) => Err(error),
                (error, _) => Err(error),
            }
        }
        (Ok(_), Err(error)) => {
            session.is_broken = true;
            Err(error)
        }
    }
}

struct Hearing<'a> {
    session: &'a mut RemoteSession,
    options: &'a RemoteOptions,
    watch: &'a Watch,
    over: &'a Wake,
    on_word: &'a mut dyn FnMut(&Reply) -> Result<()>,
}

impl Hearing<'_> {
    fn until_final(mut self, begun: TransferStart) -> Result<Reply> {
        if let TransferStart::Over(reply) = begun {
            return Ok(reply);
        }
        let (mut moved, mut since, mut is_over) = (0, Instant::now(), false);
        let mut headway = Headway::default();
        loop {
            while let Some(reply) = self.session.heard()? {
                if reply.is_final() {
                    return Ok(reply);
                }
                if headway.gets_on(&reply) {
                    since = Instant::now();
                }
                (self.on_word)(&reply)?;
                self.session.check_patience(since, TO_END)?;
            }
            if self.watch.moved_bytes() != moved {
                (moved, since) = (self.watch.moved_bytes(), Instant::now());
            }
            self.session.check_patience(since, TO_END)?;
            is_over |= self.wait(is_over)?;
        }
    }

    /// Waits for a word, or for the end of the data; tells whether it was that.
    fn wait(&mut self, is_over: bool) -> Result<bool> {
        let cancel = self.options.cancel.as_fd();
        // Once over, the flag stays up and would end every wait.
        let waited = if is_over {
            wait_readable([self.session.as_fd(), cancel], TICK)
                .map(|[word, stop]| [word, stop, false])
        } else {
            wait_readable([self.session.as_fd(), cancel, self.over.as_fd()], TICK)
        };
        let [word, stop, over] = waited.map_err(|cause| {
            Error::lost(
                self.session.host.clone(),
                "waiting for the server's word",
                cause,
            )
        })?;
        if stop {
            return Err(Error::Canceled);
        }
        if word {
            self.session.listen("moving data")?;
        }
        Ok(over)
    }
}

/// Tells whether an error of the data side is about us and not about the connection.
fn is_ours(error: &Error) -> bool {
    !matches!(
        error,
        Error::Lost { .. }
            | Error::Stalled { .. }
            | Error::Canceled
            | Error::PeerMisbehaved { .. }
            | Error::Unreachable { .. }
    )
}

/// Ends a transfer in stream mode early, by closing its data connection; any final reply is then accepted. A session
/// that receives none is given up.
///
/// Pure-FTPd answers that with a second 150 and never a final reply. ABOR works there, if
/// it arrives before the close; vsftpd reads none until then.
pub(super) fn break_off(session: &mut RemoteSession, channel: DataChannel) -> Result<()> {
    let mut replies = 1;
    if session.peer.banner.contains("Pure-FTPd") {
        session.say(&Line::new("ABOR"))?;
        replies = 2;
        replies -= end_within(session, ABORTED_MAX);
    }
    drop(channel);
    while replies > 0 && !session.is_broken {
        replies -= end_within(session, ABANDONED_MAX);
    }
    Ok(())
}

/// Waits for a final reply; tells how many came.
fn end_within(session: &mut RemoteSession, patience: Duration) -> usize {
    loop {
        match session.hear_within("ending a transfer early", patience) {
            Ok(reply) if reply.is_final() => return 1,
            Ok(_) => {}
            Err(_) => return 0,
        }
    }
}

/// Returns an error that says the data ended before it should.
pub(super) fn ended_early(host: &str, got: u64, wanted: u64) -> Error {
    Error::lost(
        host,
        format!("reading: {got} of {wanted} bytes came"),
        io::ErrorKind::UnexpectedEof,
    )
}

/// The wait between a transfer command and its 150.
pub(super) const TO_BEGIN: &str = "waiting for the transfer to begin";
const TO_END: &str = "waiting for the end of the transfer";
/// How long a server may take to say why it closed a data port or connection.
pub(super) const EXPLAIN_MAX: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(500);
const ABANDONED_MAX: Duration = Duration::from_secs(5);
const ABORTED_MAX: Duration = Duration::from_secs(5);
