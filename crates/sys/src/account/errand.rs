//! What a process does that becomes an account, once, before it ends: it brings back an open socket, or says why not.
//!
//! What that is, the steward was told when it began, as a function and not as words; the node may say for which account, and
//! a word that the function makes of what it can. The process has the environment of a login of that account, and nothing
//! of ours.

#![allow(unsafe_code)] // each block says who guarantees what

use super::{passing, rights::User};
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

/// What is done as an account.
#[derive(Clone, Debug)]
pub struct Errand {
    /// Does it, with the word that the node has for it. There is one thread, and there must be no other.
    pub run: fn(&str) -> Back,
    /// What is in the environment besides what a login of the account has.
    pub variables: Vec<(OsString, OsString)>,
}

/// What comes back of an errand: a socket, or words that say why not, as whoever sent it understands them.
pub type Back = Result<OwnedFd, Vec<u8>>;

/// The life of a process on an errand, which becomes by `begin` who it is to be.
pub(super) fn go(
    line: &OwnedFd,
    begin: impl FnOnce() -> io::Result<User>,
    errand: &Errand,
    word: &str,
) {
    // SAFETY: it asks the kernel for a signal, which nobody here catches: whatever
    // hangs ends us. What is started from here has none, since a fork inherits no alarm.
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
    // Nobody waits any more: nothing is left of it.
    let _ = passing::send(line, &said, passed);
}

/// Waits for whoever was sent.
pub(super) fn await_back(line: &OwnedFd) -> io::Result<Back> {
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

/// Makes this process what a login of that account begins with.
fn log_in(user: &User, variables: &[(OsString, OsString)]) -> io::Result<()> {
    chdir("/")?;
    umask(Mode::from_bits_retain(0o022));
    // SAFETY: there is one thread, and nobody holds on to a variable.
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
/// So long an errand may take: a server that has to begin takes seconds, on a machine that is busy.
const TIME: Duration = Duration::from_secs(60);
/// Who waits hears that it was ended.
const MORE: Duration = Duration::from_secs(5);
