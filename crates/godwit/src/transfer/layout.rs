//! The place of each source of `cp`, `mv` and `sync`: the table of docs/semantics/copy.md as one function.
//!
//! Pure: the caller passes in what the target is. `tests/layout.rs` executes every row of
//! the table with the real program.

use std::ffi::{OsStr, OsString};

/// The verb that copies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CopyVerb {
    /// `cp`: coreutils, but a slash behind a source means its contents.
    Copy,
    /// `mv`: coreutils.
    Move,
    /// `sync`: flat, as rsync with a slash behind the source.
    Sync,
}

/// A source of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopySource<'a> {
    /// The last part of its path; none for a root, `.` and `..`.
    pub(crate) name: Option<&'a OsStr>,
    /// The source is a directory.
    pub(crate) directory: bool,
    /// The argument ends with a slash.
    pub(crate) slash: bool,
}

/// The last argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// The entry under that name now.
    pub(crate) there: Existing,
    /// The argument ends with a slash.
    pub(crate) slash: bool,
    /// There is more than one source.
    pub(crate) many: bool,
}

/// The entry under a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Existing {
    /// Nothing.
    Nothing,
    /// A file, or anything that is no directory.
    File,
    /// A directory.
    Directory,
}

/// The place of a source.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Placement {
    /// The source becomes the target. The contents of a directory go into the target.
    Here,
    /// The source goes into the target under this name.
    Into(OsString),
}

/// The reason why a source has no place, and what to do instead.
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

/// Returns the place of `source`.
pub(crate) fn destination(
    act: CopyVerb,
    source: CopySource<'_>,
    target: Target,
) -> Result<Placement, Misfit> {
    if source.slash && !source.directory {
        return Err(SOURCE_NOT_DIRECTORY);
    }
    // An entry without a name in a directory above it cannot be taken out of that directory.
    if act == CopyVerb::Move && source.name.is_none() {
        return Err(NAMELESS);
    }
    match target.there {
        Existing::Nothing if target.many => Err(TARGET_MISSING),
        Existing::Nothing if target.slash && !source.directory => Err(TARGET_MISSING),
        Existing::Nothing => Ok(Placement::Here),
        Existing::File if target.many || target.slash => Err(TARGET_NOT_DIRECTORY),
        Existing::File if source.directory => Err(DIRECTORY_OVER_FILE),
        Existing::File => Ok(Placement::Here),
        Existing::Directory => into_directory(act, source),
    }
}

fn into_directory(act: CopyVerb, source: CopySource<'_>) -> Result<Placement, Misfit> {
    let contents = source.directory
        && match act {
            CopyVerb::Copy => source.slash || source.name.is_none(),
            CopyVerb::Sync => true,
            CopyVerb::Move => false,
        };
    if contents {
        return Ok(Placement::Here);
    }
    let name = source.name.ok_or(NAMELESS)?;
    Ok(Placement::Into(name.to_owned()))
}
