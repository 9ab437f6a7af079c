//! Where `cp`, `mv` and `sync` put things: the table of SEMANTICS.md as one function.
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

/// Why a source goes nowhere.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Refusal {
    /// A file was named with a slash behind it.
    #[error("the source is a file, but its name ends with a slash")]
    SourceNotDirectory,
    /// Several sources, or a slash behind the target, need a directory.
    #[error("the target is not a directory")]
    TargetNotDirectory,
    /// The same, and there is nothing yet.
    #[error("the target directory does not exist")]
    TargetMissing,
    /// A directory cannot replace a file.
    #[error("the target is a file, the source a directory")]
    DirectoryOverFile,
    /// `mv .` and the like.
    #[error("a directory cannot be moved by the name . or .., nor can a root")]
    Nameless,
}

impl Refusal {
    /// Returns what to do instead.
    pub(crate) fn next(self) -> &'static str {
        match self {
            Self::SourceNotDirectory => "leave out the slash behind the source",
            Self::TargetNotDirectory => "name a directory as the last argument",
            Self::TargetMissing => "make it first",
            Self::DirectoryOverFile => "choose another name, or remove the file",
            Self::Nameless => "say the directory's own name",
        }
    }
}

/// Returns where `source` goes.
pub(crate) fn destination(act: Act, source: Source<'_>, target: Target) -> Result<Goes, Refusal> {
    if source.slash && !source.directory {
        return Err(Refusal::SourceNotDirectory);
    }
    // What has no name in a directory above it cannot be taken out of that.
    if act == Act::Move && source.name.is_none() {
        return Err(Refusal::Nameless);
    }
    match target.there {
        There::Nothing if target.many => Err(Refusal::TargetMissing),
        There::Nothing if target.slash && !source.directory => Err(Refusal::TargetMissing),
        There::Nothing => Ok(Goes::Here),
        There::File if target.many || target.slash => Err(Refusal::TargetNotDirectory),
        There::File if source.directory => Err(Refusal::DirectoryOverFile),
        There::File => Ok(Goes::Here),
        There::Directory => into_directory(act, source),
    }
}

fn into_directory(act: Act, source: Source<'_>) -> Result<Goes, Refusal> {
    let contents = source.directory
        && match act {
            Act::Copy => source.slash || source.name.is_none(),
            Act::Sync => true,
            Act::Move => false,
        };
    if contents {
        return Ok(Goes::Here);
    }
    let name = source.name.ok_or(Refusal::Nameless)?;
    Ok(Goes::Into(name.to_owned()))
}
