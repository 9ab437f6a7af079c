//! Errand: work that a process does as an account, once. It returns an open socket or a refusal,
//! and ends.
//!
//! The steward learns the work at its start, as a function and not as words. The node may name the
//! account, and pass one word that the function interprets. The process has the environment of a
//! login of that account, and no variable of ours.

#![allow(unsafe_code)] // each block says who guarantees what

use super::{passing, rights::UserAccount};
use rustix::{
    fs::{Mode, stat},
    process::{chdir, umask},
};
use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    time::Duration,
};

/// Work that is done as an account.
#[derive(Clone, Debug)]
pub struct Errand {
    /// Does the work, with the word of the node. There is one thread, and there must be no other.
    pub run: fn(&str) -> ErrandResult,
    /// Variables added to those of a login of the account.
    pub variables: Vec<(OsString, OsString)>,
}

/// Result of an errand: a socket, or a refusal in words that the sender understands.
pub type ErrandResult = Result<OwnedFd, Vec<u8>>;

/// Runs a process on an errand, which becomes its account by `begin`.
pub(super) fn go(
    line: &OwnedFd,
    begin: impl FnOnce() -> io::Result<UserAccount>,
    errand: &Errand,
    word: &str,
) {
    // SAFETY: this asks the kernel for a signal that no code here catches, so a hung errand ends.
    // Programs started from here have none, since a fork inherits no alarm.
    unsafe { libc::alarm(TIME.as_secs() as libc::c_uint) };
    let begun = begin().and_then(|user| log_in(&user, &errand.variables));
    let (sign, words, socket) = match begun.map(|()| (errand.run)(word)) {
        Ok(Ok(socket)) => (DONE, Vec::new(), Some(socket)),
        Ok(Err(words)) => (REFUSED, words, None),
        Err(error) => (NOT_BEGUN, error.to_string().into_bytes(), None),
    };
    let mut said = vec![sign];
    said.extend(words.into_iter().take(WORDS_MAX));
    let passed = socket.as_ref().map(AsFd::as_fd);
    // If the caller has gone, the socket is closed with this process.
    let _ = passing::send(line, &said, passed);
}

/// Waits for the result of an errand.
pub(super) fn await_back(line: &OwnedFd) -> io::Result<ErrandResult> {
    passing::patience(line, TIME + MORE)?;
    let mut said = vec![0; 1 + WORDS_MAX];
    let lost = |error: io::Error| match passing::is_silence(&error) {
        true => io::Error::new(io::ErrorKind::TimedOut, "its process does not answer"),
        false => io::Error::other("its process ended without an answer"),
    };
    let (len, socket) = passing::receive(line, &mut said).map_err(lost)?;
    let words = &said[1..len];
    match (said[0], socket) {
        (DONE, Some(socket)) => Ok(Ok(socket)),
        (REFUSED, None) => Ok(Err(words.to_vec())),
        (NOT_BEGUN, None) => {
            let why = String::from_utf8_lossy(words).into_owned();
            Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
        }
        _ => Err(io::Error::other("its process answers what is no answer")),
    }
}

/// Gives this process the environment of a login of that account.
fn log_in(user: &UserAccount, variables: &[(OsString, OsString)]) -> io::Result<()> {
    chdir("/")?;
    umask(Mode::from_bits_retain(0o022));
    // SAFETY: there is one thread, and no code keeps a variable.
    if unsafe { libc::clearenv() } != 0 {
        return Err(io::Error::other("the environment cannot be emptied"));
    }
    let path = |path: &Option<PathBuf>| path.clone().map(OsString::from);
    let runtime = PathBuf::from(format!("/run/user/{}", user.uid));
    let is_theirs = stat(&runtime).is_ok_and(|there| there.st_uid == user.uid);
    let of_login = [
        ("USER", Some(OsString::from(&user.name))),
        ("LOGNAME", Some(OsString::from(&user.name))),
        ("HOME", path(&user.home)),
        ("SHELL", path(&user.shell)),
        ("PATH", Some(OsString::from(PATH))),
        ("XDG_RUNTIME_DIR", is_theirs.then(|| runtime.into())),
    ];
    let of_login = of_login
        .iter()
        .filter_map(|(name, value)| Some((OsStr::new(name), value.as_deref()?)));
    let more = variables.iter().map(|(name, value)| (&**name, &**value));
    for (name, value) in of_login.chain(more) {
        // SAFETY: there is one thread.
        unsafe { env::set_var(name, value) };
    }
    Ok(())
}

const DONE: u8 = b'+';
const REFUSED: u8 = b'-';
const NOT_BEGUN: u8 = b'!';
/// Words are some sentences.
const WORDS_MAX: usize = 16 << 10;
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Longest time of an errand: a server that must start takes seconds on a busy machine.
const TIME: Duration = Duration::from_secs(60);
/// Added to the caller's wait, so that it still hears that the errand timed out.
const MORE: Duration = Duration::from_secs(5);
