//! Where `cp`, `mv` and `sync` put things: the table of docs/semantics/copy.md as one function.
//!
//! Pure: it is told what stands there. `tests/layout.rs` executes every row of
//! the table with the real program.

use std::ffi::{OsStr, OsString};

/// Which verb asks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Act {
    /// `cp`: coreutils, but a slash behind a source means its contents.
    Copy,
    /// `mv`: coreutils.
    Move,
    /// `sync`: flat, as rsync with a slash behind the source.
    Sync,
}

/// One thing to be copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    /// The last part of its path; none for a root, `.` and `..`.
    pub(crate) name: Option<&'a OsStr>,
    /// It is a directory.
    pub(crate) directory: bool,
    /// The argument ends with a slash.
    pub(crate) slash: bool,
}

/// The last argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// What stands there now.
    pub(crate) there: There,
    /// The argument ends with a slash.
    pub(crate) slash: bool,
    /// There is more than one source.
    pub(crate) many: bool,
}

/// What stands under a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum There {
    /// Nothing.
    Nothing,
    /// A file, or anything that is no directory.
    File,
    /// A directory.
    Directory,
}

/// Where a source goes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Goes {
    /// It becomes the target; of a directory, its contents go into the target.
    Here,
    /// It goes into the target under this name.
    Into(OsString),
}

/// A reason why a source goes nowhere, and what to do instead.
pub(crate) type Misfit = (&'static str, &'static str);

const SOURCE_NOT_DIRECTORY: Misfit = (
    "the source is a file, but its name ends with a slash",
    "leave out the slash behind the source",
);
const TARGET_NOT_DIRECTORY: Misfit = (
    "the target is not a directory",
    "name a directory as the last argument",
);
/// Several sources, or a slash behind the target, need a directory.
pub(crate) const TARGET_MISSING: Misfit = ("the target directory does not exist", "make it first");
const DIRECTORY_OVER_FILE: Misfit = (
    "the target is a file, the source a directory",
    "choose another name, or remove the file",
);
const NAMELESS: Misfit = (
    "a directory cannot be moved by the name . or .., nor can a root",
    "say the directory's own name",
);

/// Returns where `source` goes.
pub(crate) fn destination(act: Act, source: Source<'_>, target: Target) -> Result<Goes, Misfit> {
    if source.slash && !source.directory {
        return Err(SOURCE_NOT_DIRECTORY);
    }
    // What has no name in a directory above it cannot be taken out of that.
    if act == Act::Move && source.name.is_none() {
        return Err(NAMELESS);
    }
    match target.there {
        There::Nothing if target.many => Err(TARGET_MISSING),
        There::Nothing if target.slash && !source.directory => Err(TARGET_MISSING),
        There::Nothing => Ok(Goes::Here),
        There::File if target.many || target.slash => Err(TARGET_NOT_DIRECTORY),
        There::File if source.directory => Err(DIRECTORY_OVER_FILE),
        There::File => Ok(Goes::Here),
        There::Directory => into_directory(act, source),
    }
}

fn into_directory(act: Act, source: Source<'_>) -> Result<Goes, Misfit> {
    let contents = source.directory
        && match act {
            Act::Copy => source.slash || source.name.is_none(),
            Act::Sync => true,
            Act::Move => false,
        };
    if contents {
        return Ok(Goes::Here);
    }
    let name = source.name.ok_or(NAMELESS)?;
    Ok(Goes::Into(name.to_owned()))
}
