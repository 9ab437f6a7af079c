//! The plan of a copy: pending deliveries arrive first, then each source gets its target.

use super::layout::{
    self, CopySource, CopyVerb, Existing, Misfit, Placement, TARGET_MISSING, Target,
};
use crate::{
    args::MoveOptions,
    client::pending::{self, NameScope, Turn},
    config, names,
    out::{CliError, Run, Screen, mark, progress::make_first, silence},
    places::{self, Place},
};
use godwit_core::Url;
use godwit_store::engine::{CopyOptions, Stores};
use godwit_store::{EntryKind, Error, Stat, TrustOptions};
use std::{
    collections::HashSet,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// A source and its target.
#[derive(Clone)]
pub(crate) struct Pair {
    /// The file or directory to copy.
    pub(crate) source: Place,
    /// The target, with the last part of its name.
    pub(crate) target: Place,
    /// The source is a directory.
    pub(crate) tree: bool,
    /// The permission bits of the source.
    pub(crate) mode: Option<u32>,
}

/// The pairs to copy, and the number of sources that were refused and reported.
pub(crate) struct Planned {
    pub(crate) pairs: Vec<Pair>,
    pub(crate) refused: usize,
}

/// Returns the options of the engine, from those of the command line.
pub(crate) fn options(moving: &MoveOptions) -> Run<CopyOptions> {
    let ours = CopyOptions::new(places::cancel()?);
    Ok(names::with_names(CopyOptions {
        streams: moving.streams.map(usize::from).or(ours.streams),
        parallel: moving.parallel.map(usize::from).or(ours.parallel),
        via_us: moving.via_me,
        verify: !moving.no_verify,
        resume: !moving.no_resume,
        retries: moving.retries,
        stall: moving.stall_timeout.unwrap_or(ours.stall),
        tcp_buffer: moving.tcp_buffer,
        trust: TrustOptions {
            by: moving.by(),
            level: moving.level(),
            home: config::home(),
            ..TrustOptions::default()
        },
        notes: config::state_directory().map(|state| state.join("uploads")),
        mark: mark(),
        choice: moving.choosing.0.clone(),
        bytes_per_s: moving.bwlimit,
        ..ours
    }))
}

/// Decides the target of each source. A source without a place is reported, and
/// the others go on, as with coreutils; a hopeless target ends the verb.
pub(crate) fn pairs(
    screen: &Screen,
    act: CopyVerb,
    sources: &[Url],
    target: &Url,
    moving: &MoveOptions,
    stores: &Stores,
    turn: &mut Turn<'_>,
) -> Run<Planned> {
    let whom = &moving.whom;
    turn.wait(
        target,
        NameScope::Name,
        &format!("{} to {target}", word(act)),
    )?;
    let place = places::open_as(stores, target, whom.target())?;
    let there = silence::broken_by(screen, &answer_of(target), || what_is_there(&place));
    let there = match there {
        // A hop that cannot see its target promises the rename to that very name.
        Err(Error::Beyond { .. }) if act == CopyVerb::Move => Existing::Nothing,
        there => {
            there.map_err(|error| CliError::store(format!("{} to {target}", word(act)), error))?
        }
    };
    let ask = Target {
        there,
        slash: target.path().ends_with(b"/"),
        many: sources.len() > 1,
    };
    let (mut pairs, mut taken) = (Vec::new(), HashSet::new());
    let mut silent: Vec<&Url> = Vec::new();
    for source in sources {
        // One wait for an unreachable server is enough.
        if let Some(server) = silent.iter().find(|other| other.same_server(source)) {
            let wanted = format!("{} {source} to {target}", word(act));
            screen.trouble(&CliError::store(wanted, unreachable(server.host_port())));
            continue;
        }
        let there = match act {
            CopyVerb::Move => turn.wait(
                source,
                NameScope::Name,
                &format!("move {source} to {target}"),
            ),
            CopyVerb::Copy | CopyVerb::Sync => {
                pending::note(screen, source, NameScope::Below);
                Ok(())
            }
        };
        let from = there.and_then(|()| places::open_as(stores, source, whom.source()));
        let found = silence::broken_by(screen, &answer_of(source), || {
            from.and_then(|from| pair(act, source, from, &place, (ask, moving)))
        });
        match found {
            Ok(pair) if ask.many && !taken.insert(pair.target.path.clone()) => {
                let wanted = format!("{} {source} to {}", word(act), pair.target.url);
                let fact = "another source of the same name goes there";
                screen.trouble(&CliError::asked(wanted, fact));
            }
            Ok(pair) => pairs.push(pair),
            Err(trouble) => {
                if trouble.is_of_server() {
                    silent.push(source);
                }
                screen.trouble(&trouble);
            }
        }
    }
    let refused = sources.len() - pairs.len();
    Ok(Planned { pairs, refused })
}

/// Names the server of a request, as something to wait for.
pub(crate) fn answer_of(url: &Url) -> String {
    match url.is_local() {
        false => format!("{} to answer", url.host_port()),
        true => format!("{url} to be looked at"),
    }
}

/// Waits until earlier puts to the changed names are at their server. Returns the pairs whose puts arrived, and the
/// number of the others, which were reported.
pub(crate) fn in_turn(
    screen: &Screen,
    act: CopyVerb,
    mut pairs: Vec<Pair>,
    turn: &mut Turn<'_>,
) -> (Vec<Pair>, usize) {
    let asked = pairs.len();
    pairs.retain(|pair| {
        let (source, target) = (&pair.source.url, &pair.target.url);
        let wanted = format!("{} {source} to {target}", word(act));
        let reach = match pair.tree {
            true => NameScope::Below,
            false => NameScope::Name,
        };
        let mut waited = turn.wait(target, reach, &wanted);
        if act == CopyVerb::Move {
            waited = waited.and_then(|()| turn.wait(source, reach, &wanted));
        }
        waited.map_err(|trouble| screen.trouble(&trouble)).is_ok()
    });
    let left = asked - pairs.len();
    (pairs, left)
}

fn unreachable(host: String) -> Error {
    let cause = std::io::Error::other("not tried again: it did not answer a moment ago");
    Error::unreachable(host, cause)
}

fn pair(
    act: CopyVerb,
    url: &Url,
    source: Place,
    target: &Place,
    (ask, moving): (Target, &MoveOptions),
) -> Run<Pair> {
    let wanted = format!("{} {url} to {}", word(act), target.url);
    let trouble = |error: Error| CliError::store(wanted.clone(), error);
    let refused = |misfit: Misfit| {
        let next = match misfit {
            TARGET_MISSING => make_first(&target.url),
            (_, next) => next.into(),
        };
        CliError::asked(wanted.clone(), misfit.0).next(next)
    };
    let stat = source.store.stat(&source.path);
    let stat = match act {
        // A rename is of the link itself, wherever that leads.
        CopyVerb::Move => stat.or_else(|error| link(&source).ok_or(error)),
        CopyVerb::Copy | CopyVerb::Sync => stat,
    };
    let stat = stat.map_err(trouble)?;
    let tree = stat.kind == EntryKind::Directory;
    let asked = CopySource {
        name: url.file_name().map(OsStr::from_bytes),
        directory: tree,
        slash: url.path().ends_with(b"/"),
    };
    let goes = match layout::destination(act, asked, ask) {
        Err(TARGET_MISSING) if moving.parents => {
            let there = Existing::Directory;
            layout::destination(act, asked, Target { there, ..ask })
        }
        goes => goes,
    };
    let target = match goes.map_err(refused)? {
        Placement::Here => target.clone(),
        Placement::Into(name) => places::inside(target, Path::new(&name)).map_err(trouble)?,
    };
    refuse_itself(&source, &stat, &target).map_err(|fact| CliError::asked(wanted.clone(), fact))?;
    if moving.parents && ask.there == Existing::Nothing && !moving.dry_run {
        make_parents(&target).map_err(trouble)?;
    }
    Ok(Pair {
        source,
        target,
        tree,
        mode: stat.mode,
    })
}

/// Makes the directory of a target, if it has one.
pub(crate) fn make_parents(target: &Place) -> Result<(), Error> {
    let (Some(url), Some(path)) = (target.url.parent(), target.path.parent()) else {
        return Ok(());
    };
    let (store, path) = (target.store.clone(), path.to_owned());
    match path.as_os_str().is_empty() {
        true => Ok(()),
        false => places::make_with_parents(&Place { store, path, url }),
    }
}

/// Returns the entry of a link whose target cannot be seen.
fn link(place: &Place) -> Option<Stat> {
    let stat = places::stat_unfollowed(place).ok();
    stat.filter(|stat| stat.kind == EntryKind::Link)
}

/// Returns the kind of entry under a name.
pub(crate) fn what_is_there(place: &Place) -> Result<Existing, Error> {
    match place.store.stat(&place.path) {
        Ok(stat) if stat.kind == EntryKind::Directory => Ok(Existing::Directory),
        Ok(_) => Ok(Existing::File),
        Err(Error::Missing { .. }) => Ok(Existing::Nothing),
        Err(error) => Err(error),
    }
}

fn refuse_itself(source: &Place, stat: &Stat, target: &Place) -> Result<(), &'static str> {
    if !source.url.same_server(&target.url) {
        return Ok(());
    }
    let (from, to) = (real_path(&source.url), real_path(&target.url));
    if from == to {
        return Err("they are the same file");
    }
    if stat.kind == EntryKind::Directory && to.starts_with(&from) {
        return Err("the target is inside the source");
    }
    // Two names of one file: a link, or a second path to it.
    let unique = stat
        .unique
        .as_ref()
        .filter(|_| stat.kind == EntryKind::File);
    match (unique, target.store.stat(&target.path)) {
        (Some(unique), Ok(there)) if there.unique.as_ref() == Some(unique) => {
            Err("they are the same file")
        }
        _ => Ok(()),
    }
}

/// Tells whether `inner` is below `outer`, as far as their names tell.
pub(crate) fn holds(outer: &Place, inner: &Place) -> bool {
    outer.url.same_server(&inner.url) && real_path(&inner.url).starts_with(real_path(&outer.url))
}

/// Returns the path without links, as far as it exists; of a remote one as it is.
fn real_path(url: &Url) -> PathBuf {
    let path = url.as_path();
    if !url.is_local() {
        return path.components().collect();
    }
    let (mut above, mut rest) = (path, PathBuf::new());
    loop {
        let here = if above.as_os_str().is_empty() {
            Path::new(".")
        } else {
            above
        };
        if let Ok(real) = here.canonicalize() {
            // Joining an empty path would add a slash.
            return if rest.as_os_str().is_empty() {
                real
            } else {
                real.join(rest)
            };
        }
        let (Some(name), Some(parent)) = (above.file_name(), above.parent()) else {
            return path.into();
        };
        rest = if rest.as_os_str().is_empty() {
            name.into()
        } else {
            Path::new(name).join(rest)
        };
        above = parent;
    }
}

fn word(act: CopyVerb) -> &'static str {
    match act {
        CopyVerb::Copy => "copy",
        CopyVerb::Move => "move",
        CopyVerb::Sync => "sync",
    }
}
