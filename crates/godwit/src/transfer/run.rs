//! The run of the engine over a plan, with progress; or a rehearsal of it.

use super::plan::Pair;
use crate::{
    args::MoveOptions,
    out::{CliError, Facts, Run, Screen, facts, plain, progress::Reporter, typed},
    places::{self, Place},
    signals::SignalStop,
};
use godwit_core::{Choice, Url};
use godwit_store::engine::{self, CopyOptions, CopyTask, OverwriteRule, Summary};
use godwit_store::{Entry, EntryKind, Error, Passage, Stat};
use serde_json::{Value, json};
use std::{ops::Range, path::PathBuf};

/// A task for the engine.
pub(crate) struct TransferWork {
    /// Continues "cannot": `copy`, `move`.
    pub(crate) act: &'static str,
    /// The pairs to copy.
    pub(crate) pairs: Vec<Pair>,
    /// The rule for files that exist at the target.
    pub(crate) rule: OverwriteRule,
    /// Only these bytes of each file.
    pub(crate) range: Option<Range<u64>>,
    /// Files that only the target has are removed.
    pub(crate) delete: bool,
}

/// The result of a run of the engine.
pub(crate) struct CopyResult {
    /// For the summary.
    pub(crate) facts: Facts,
    /// Everything that was asked for is done.
    pub(crate) all: bool,
    /// Copies of which only the sizes were compared.
    pub(crate) size_only: Vec<(Place, Place)>,
}

/// Lets the engine copy, with progress, until the work is done or cancelled.
pub(crate) fn run(
    screen: &Screen,
    moving: &MoveOptions,
    work: TransferWork,
    options: &CopyOptions,
) -> CopyResult {
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
    let tasks = work.pairs.into_iter().map(|pair| CopyTask {
        source: pair.source,
        target: pair.target,
        tree: pair.tree,
        mode: pair.mode,
        range: work.range.clone(),
        rule: work.rule,
        delete: work.delete && pair.tree,
    });
    let tasks = tasks.collect();
    let stop = SignalStop::watch(options.cancel.clone());
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
        screen.trouble(&CliError::signal(format!("{act} everything"), code).maybe_next(go_on));
    }
    CopyResult {
        facts,
        all: summary.failed == 0 && stopped.is_none() && !screen.gone(),
        size_only: reporter.size_only(),
    }
}

/// Returns the command that goes on with an interrupted tree: `cp -r a b` again makes `b/a`, and
/// `cp -r a/ b` sends all files again.
fn to_go_on(work: &TransferWork) -> Option<String> {
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
    let is_again = !pair.tree
        || matches!(
            work.rule,
            OverwriteRule::Update | OverwriteRule::UpdateByDigest
        );
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

/// Lists sources that were not copied, since they have names of unfinished
/// uploads. Local directories show these; servers do not.
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

/// How many names a person is told.
const LEFT_OUT_MAX: usize = 10;

/// Lists the files that a run would copy, and copies none.
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
            let stat = places::stat_unfollowed(&pair.source);
            stat.and_then(|stat| each(Entry { path, stat }))
        };
        if let Err(error) = told {
            let wanted = format!("{act} {} to {}", pair.source.url, pair.target.url);
            screen.trouble(&CliError::store(wanted, error));
        }
    }
    rehearsed(files, bytes)
}

/// Returns the facts of a rehearsal.
pub(crate) fn rehearsed(files: u64, bytes: u64) -> Facts {
    let (files, bytes) = (files.into(), bytes.into());
    facts([("dry_run", true.into()), ("files", files), ("bytes", bytes)])
}

/// Prints the act that a run would do on one file.
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

/// Reports the error that ended a verb before it began: then all sources failed.
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
