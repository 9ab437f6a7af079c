//! What `cp`, `mv` and `sync` share: what goes where, and letting the engine do it.

use crate::{
    args::Moving,
    layout::{self, Act, Goes, Misfit, Source, TARGET_MISSING, Target, There},
    names,
    owed::{self, Reach, Turn},
    places::{self, Place},
    progress::Reporter,
    record,
    screen::Screen,
    signals::Stop,
    silence,
    trouble::{CliError, Run, plain},
    verbs::{Facts, mkdir::make_with_parents, rm},
};
use godwit_core::{Choice, Url};
use godwit_store::engine::{self, Options, Rule, Stores, Summary, Task};
use godwit_store::{Entry, EntryKind, Error, Passage, Stat, Trust};
use serde_json::{Value, json};
use std::{
    collections::HashSet,
    ffi::OsStr,
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// One thing and where it goes.
#[derive(Clone)]
pub(crate) struct Pair {
    /// What is to be copied.
    pub(crate) source: Place,
    /// Under which name, to the last part.
    pub(crate) target: Place,
    /// The source is a directory.
    pub(crate) tree: bool,
    /// The permission bits of the source.
    pub(crate) mode: Option<u32>,
}

/// What goes where, and how many sources go nowhere: those were told.
pub(crate) struct Planned {
    pub(crate) pairs: Vec<Pair>,
    pub(crate) refused: usize,
}

/// What the engine shall do.
pub(crate) struct Work {
    /// Continues "cannot": `copy`, `move`.
    pub(crate) act: &'static str,
    /// What goes where.
    pub(crate) pairs: Vec<Pair>,
    /// What happens to files that are there already.
    pub(crate) rule: Rule,
    /// Only these bytes of each file.
    pub(crate) range: Option<Range<u64>>,
    /// What only the target has is removed.
    pub(crate) delete: bool,
}

/// What came of a run of the engine.
pub(crate) struct Moved {
    /// For the summary.
    pub(crate) facts: Facts,
    /// Everything that was asked for is done.
    pub(crate) all: bool,
    /// Copies of which only the sizes were compared.
    pub(crate) size_only: Vec<(Place, Place)>,
}

/// Returns the engine's options for the command line's.
pub(crate) fn options(moving: &Moving) -> Run<Options> {
    let ours = Options::new(places::cancel()?);
    Ok(names::with_names(Options {
        streams: moving.streams.map(usize::from).or(ours.streams),
        parallel: moving.parallel.map(usize::from).or(ours.parallel),
        via_us: moving.via_me,
        verify: !moving.no_verify,
        resume: !moving.no_resume,
        retries: moving.retries,
        stall: moving.stall_timeout.unwrap_or(ours.stall),
        tcp_buffer: moving.tcp_buffer,
        trust: Trust {
            by: moving.by(),
            level: moving.level(),
            home: record::home(),
            ..Trust::default()
        },
        notes: record::state_directory().map(|state| state.join("uploads")),
        mark: places::mark(),
        choice: moving.choosing.0.clone(),
        bytes_per_s: moving.bwlimit,
        ..ours
    }))
}

/// Decides where each source goes. A source that goes nowhere is reported, and
/// the others go on, as with coreutils; a hopeless target ends it.
pub(crate) fn pairs(
    screen: &Screen,
    act: Act,
    sources: &[Url],
    target: &Url,
    moving: &Moving,
    stores: &Stores,
    turn: &mut Turn<'_>,
) -> Run<Planned> {
    let whom = &moving.whom;
    turn.wait(target, Reach::Name, &format!("{} to {target}", word(act)))?;
    let place = places::open_as(stores, target, whom.target())?;
    let there = silence::broken_by(screen, &answer_of(target), || what_is_there(&place));
    let there = match there {
        // A hop that cannot tell promises the rename to that very name.
        Err(Error::Beyond { .. }) if act == Act::Move => There::Nothing,
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
        // One wait for a server that is not there is enough.
        if let Some(server) = silent.iter().find(|other| other.same_server(source)) {
            let wanted = format!("{} {source} to {target}", word(act));
            screen.trouble(&CliError::store(wanted, unreachable(server.host_port())));
            continue;
        }
        let there = match act {
            Act::Move => turn.wait(source, Reach::Name, &format!("move {source} to {target}")),
            Act::Copy | Act::Sync => {
                owed::note(screen, source, Reach::Below);
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

/// Names what a question is asked of, as something to wait for.
pub(crate) fn answer_of(url: &Url) -> String {
    match url.is_local() {
        false => format!("{} to answer", url.host_port()),
        true => format!("{url} to be looked at"),
    }
}

/// Tells what ended a verb before it did anything: then all sources failed.
pub(crate) fn or_all_failed(screen: &Screen, sources: usize, run: Run<Facts>) -> Facts {
    run.unwrap_or_else(|trouble| {
        screen.trouble(&trouble);
        with_failed(Facts::new(), sources)
    })
}

/// Counts sources that were not even begun among what failed.
pub(crate) fn with_failed(facts: Facts, more: usize) -> Facts {
    with_more(facts, "failed", more as u64)
}

/// Adds to a count of the summary.
pub(crate) fn with_more(mut facts: Facts, count: &str, more: u64) -> Facts {
    let so_far = facts.get(count).and_then(Value::as_u64).unwrap_or(0);
    facts.insert(count.into(), (so_far + more).into());
    facts
}

/// Waits until what was put before of what is changed now is at its server. Of what will not get there is told, and the
/// others are left, with how many are not.
pub(crate) fn in_turn(
    screen: &Screen,
    act: Act,
    mut pairs: Vec<Pair>,
    turn: &mut Turn<'_>,
) -> (Vec<Pair>, usize) {
    let asked = pairs.len();
    pairs.retain(|pair| {
        let (source, target) = (&pair.source.url, &pair.target.url);
        let wanted = format!("{} {source} to {target}", word(act));
        let reach = match pair.tree {
            true => Reach::Below,
            false => Reach::Name,
        };
        let mut waited = turn.wait(target, reach, &wanted);
        if act == Act::Move {
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
    act: Act,
    url: &Url,
    source: Place,
    target: &Place,
    (ask, moving): (Target, &Moving),
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
        Act::Move => stat.or_else(|error| link(&source).ok_or(error)),
        Act::Copy | Act::Sync => stat,
    };
    let stat = stat.map_err(trouble)?;
    let tree = stat.kind == EntryKind::Directory;
    let asked = Source {
        name: url.file_name().map(OsStr::from_bytes),
        directory: tree,
        slash: url.path().ends_with(b"/"),
    };
    let goes = match layout::destination(act, asked, ask) {
        Err(TARGET_MISSING) if moving.parents => {
            let there = There::Directory;
            layout::destination(act, asked, Target { there, ..ask })
        }
        goes => goes,
    };
    let target = match goes.map_err(refused)? {
        Goes::Here => target.clone(),
        Goes::Into(name) => places::inside(target, Path::new(&name)).map_err(trouble)?,
    };
    refuse_itself(&source, &stat, &target).map_err(|fact| CliError::asked(wanted.clone(), fact))?;
    if moving.parents && ask.there == There::Nothing && !moving.dry_run {
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
        false => make_with_parents(&Place { store, path, url }),
    }
}

/// Says how a target directory comes to be.
pub(crate) fn make_first(directory: &Url) -> String {
    format!(
        "add --parents, or make it first: godwit mkdir -p {}",
        typed(directory)
    )
}

/// Returns what is known of a link that leads to nothing that can be seen.
fn link(place: &Place) -> Option<Stat> {
    let stat = rm::stat_unfollowed(place).ok();
    stat.filter(|stat| stat.kind == EntryKind::Link)
}

/// Lets the engine copy, with progress, until it is done or somebody stops it.
pub(crate) fn run(screen: &Screen, moving: &Moving, work: Work, options: &Options) -> Moved {
    let act = work.act;
    let go_on = to_go_on(&work);
    let mut hosts: Vec<String> = Vec::new();
    for pair in &work.pairs {
        for url in [&pair.source.url, &pair.target.url] {
            if !hosts.contains(&url.host_port()) {
                hosts.push(url.host_port());
            }
        }
    }
    let tasks = work.pairs.into_iter().map(|pair| Task {
        source: pair.source,
        target: pair.target,
        tree: pair.tree,
        mode: pair.mode,
        range: work.range.clone(),
        rule: work.rule,
        delete: work.delete && pair.tree,
    });
    let tasks = tasks.collect();
    let stop = Stop::watch(options.cancel.clone());
    let reporter = Reporter::new(screen, moving.progress, act, work.rule);
    let reporter = reporter.going_on_by(go_on.clone()).between(hosts);
    let summary: Summary =
        reporter.while_running(|| engine::copy(tasks, options, &|event| reporter.on(event)));
    let mut facts = reporter.finish(&summary);
    let left_out = reporter.left_out();
    tell_left_out(screen, &left_out);
    facts.insert("left_out".into(), left_out.into());
    let stopped = stop.exit_code();
    if let Some(code) = stopped {
        let trouble = CliError::signal(format!("{act} everything"), code);
        screen.trouble(&match go_on {
            Some(go_on) => trouble.next(go_on),
            None => trouble,
        });
    }
    Moved {
        facts,
        all: summary.failed == 0 && stopped.is_none() && !screen.gone(),
        size_only: reporter.size_only(),
    }
}

/// Says how to go on with a tree that was broken off: `cp -r a b` again makes `b/a`, and
/// `cp -r a/ b` sends all files again.
fn to_go_on(work: &Work) -> Option<String> {
    let [pair] = &work.pairs[..] else {
        return None;
    };
    match (pair.source.passage(), pair.target.passage()) {
        (None, None) => {}
        (_, Some(Passage::Once)) => {
            return Some("do not use what was printed; run the command again".into());
        }
        (Some(Passage::Once), _) if work.range.is_some() => {
            return Some("what arrived before stands in the file".into());
        }
        (Some(Passage::Once), _) if pair.target.is_remote() => {
            let host = pair.target.url.host_port();
            return Some(format!(
                "a hidden part may be left at {host}; nothing goes on with it"
            ));
        }
        _ => return Some("nothing was kept; run the command again".into()),
    }
    let is_again = !pair.tree || matches!(work.rule, Rule::Update | Rule::UpdateByDigest);
    if is_again || work.range.is_some() {
        return None;
    }
    let (source, target) = (typed(&pair.source.url), typed(&pair.target.url));
    let then = match work.act {
        "move" => format!(", then godwit rm -r {source}"),
        _ => String::new(),
    };
    Some(format!(
        "what arrived is kept; to go on and leave alone what is whole: godwit sync {source} {target}{then}"
    ))
}

/// Returns a URL as it is typed in a shell.
fn typed(url: &Url) -> String {
    let shown = String::from_utf8_lossy(&places::shown(url)).into_owned();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/.:-_~%@+,=[]".contains(c);
    match shown.chars().all(is_plain) {
        true => shown,
        false => format!("'{}'", shown.replace('\'', "'\\''")),
    }
}

/// Says what of the sources was not copied since it has the name of an unfinished
/// upload. Local directories show that; servers do not.
fn tell_left_out(screen: &Screen, left_out: &[String]) {
    if !left_out.is_empty() {
        let some = left_out.iter().take(LEFT_OUT_MAX).map(|path| plain(path));
        let some = some.collect::<Vec<_>>().join(", ");
        let (count, more) = (left_out.len(), left_out.len() > LEFT_OUT_MAX);
        let more = if more { ", and more" } else { "" };
        screen.aside(&format!(
            "{count} left out, with names of unfinished uploads: {some}{more}"
        ));
    }
}

/// So many names are told to a person.
const LEFT_OUT_MAX: usize = 10;

/// Says what a run would do, and does nothing.
pub(crate) fn rehearse(
    screen: &Screen,
    pairs: &[Pair],
    act: &'static str,
    choice: &Choice,
    moves: &dyn Fn(&Place, &Stat, &Place) -> Result<bool, Error>,
) -> Facts {
    let (mut files, mut bytes) = (0u64, 0u64);
    for pair in pairs {
        let mut each = |entry: Entry| {
            if entry.stat.kind == EntryKind::Directory || !choice.has(&entry.path, false) {
                return Ok(());
            }
            let source = places::inside(&pair.source, &entry.path)?;
            let target = places::inside(&pair.target, &entry.path)?;
            if !moves(&source, &entry.stat, &target)? {
                return Ok(());
            }
            let size = entry.stat.known_size().unwrap_or(0);
            (files, bytes) = (files + 1, bytes + size);
            would(screen, act, &source.url, Some(&target.url), size)
        };
        let told = if pair.tree {
            places::walk(screen, act, &pair.source, &mut each)
        } else {
            let path = PathBuf::new();
            let stat = rm::stat_unfollowed(&pair.source);
            stat.and_then(|stat| each(Entry { path, stat }))
        };
        if let Err(error) = told {
            let wanted = format!("{act} {} to {}", pair.source.url, pair.target.url);
            screen.trouble(&CliError::store(wanted, error));
        }
    }
    rehearsed(files, bytes)
}

/// Returns the facts of a run that did nothing.
pub(crate) fn rehearsed(files: u64, bytes: u64) -> Facts {
    let mut facts = Facts::new();
    facts.insert("dry_run".into(), true.into());
    facts.insert("files".into(), files.into());
    facts.insert("bytes".into(), bytes.into());
    facts
}

/// Says what would be done to one file.
pub(crate) fn would(
    screen: &Screen,
    act: &'static str,
    source: &Url,
    target: Option<&Url>,
    bytes: u64,
) -> Result<(), Error> {
    if screen.json() {
        return screen.object(&json!({
            "event": "would",
            "act": act,
            "source": source.to_string(),
            "target": target.map(ToString::to_string),
            "bytes": bytes,
        }));
    }
    match target {
        Some(target) => screen.line(format!("would {act} {source} -> {target}")),
        None => screen.line(format!("would {act} {source}")),
    }
}

/// Returns what stands under a name.
pub(crate) fn what_is_there(place: &Place) -> Result<There, Error> {
    match place.store.stat(&place.path) {
        Ok(stat) if stat.kind == EntryKind::Directory => Ok(There::Directory),
        Ok(_) => Ok(There::File),
        Err(Error::Missing { .. }) => Ok(There::Nothing),
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

fn word(act: Act) -> &'static str {
    match act {
        Act::Copy => "copy",
        Act::Move => "move",
        Act::Sync => "sync",
    }
}
