//! Shows and records the events of the engine: one bar, plain lines or objects.

use crate::{
    args::Progress,
    out::{
        CliError, Facts, Screen,
        meter::{Meter, Snapshot},
        silence::SILENT_MAX,
        transfer_log::{TransferLog, tuning, verified},
        typed,
        waiting::Waiting,
    },
    units,
};
use godwit_core::Url;
use godwit_store::engine::{CopyEvent, CopyOutcome, OverwriteRule, Place, Summary, Tries};
use godwit_store::{Error, Tuned, Verified};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::{Condvar, Mutex};
use serde_json::json;
use std::{
    env,
    io::IsTerminal,
    time::{Duration, Instant},
};

/// Reports a transfer to people, programs and the log.
pub(crate) struct Reporter<'a> {
    screen: &'a Screen,
    style: Progress,
    /// How long until the bar is drawn.
    first: Duration,
    /// Continues "cannot": `copy`, `move`.
    act: &'static str,
    rule: OverwriteRule,
    /// The command that goes on with the whole work, if it is not the same command.
    go_on: Option<String>,
    /// The hosts between which bytes move.
    hosts: Vec<String>,
    /// A closing line is shown even after a short transfer.
    closes: bool,
    started: Instant,
    state: Mutex<State>,
    over: Mutex<bool>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    meter: Meter,
    record: TransferLog,
    bar: Option<ProgressBar>,
    /// The cause of the wait, as long as nothing moves.
    waiting: Option<Waiting>,
    lines: u32,
    outcomes: u64,
    /// Digest of the file, if there was only one.
    digest: Option<String>,
    weakest: Option<String>,
    size_only: Vec<(Place, Place)>,
    left_out: Vec<String>,
}

impl<'a> Reporter<'a> {
    /// Returns a reporter without events.
    pub(crate) fn new(
        screen: &'a Screen,
        wanted: Progress,
        act: &'static str,
        rule: OverwriteRule,
    ) -> Self {
        let style = choose(screen, wanted);
        let reporter = Self {
            closes: style == Progress::Bar || wanted == Progress::Plain,
            ..Self::shown(screen, style, act, rule)
        };
        reporter.state.lock().record = TransferLog::open();
        reporter
    }

    /// Returns a reporter that shows a bar on a terminal after two seconds, and records nothing.
    pub(crate) fn patient(screen: &'a Screen) -> Self {
        let style = match choose(screen, Progress::Auto) {
            Progress::Bar => Progress::Bar,
            _ => Progress::None,
        };
        Self {
            first: SILENT_MAX,
            ..Self::shown(screen, style, "", OverwriteRule::Always)
        }
    }

    fn shown(screen: &'a Screen, style: Progress, act: &'static str, rule: OverwriteRule) -> Self {
        Self {
            screen,
            style,
            first: BAR_EVERY,
            act,
            rule,
            go_on: None,
            hosts: Vec::new(),
            closes: false,
            started: Instant::now(),
            state: Mutex::default(),
            over: Mutex::new(false),
            wake: Condvar::new(),
        }
    }

    /// Sets the command that goes on after a passing fault, if it is not the same command.
    pub(crate) fn going_on_by(self, go_on: Option<String>) -> Self {
        Self { go_on, ..self }
    }

    /// Names the hosts that are waited for while nothing moves.
    pub(crate) fn between(self, hosts: Vec<String>) -> Self {
        Self { hosts, ..self }
    }

    /// Tells whether anything is shown.
    pub(crate) fn is_shown(&self) -> bool {
        self.style != Progress::None
    }

    /// Takes counts of files and bytes: the part that is over, and the total.
    pub(crate) fn at(&self, files: (u64, u64), bytes: (u64, u64)) {
        let now = self.started.elapsed();
        self.state.lock().meter.at(files, bytes, now);
    }

    /// Takes the end of a file.
    pub(crate) fn over(&self) {
        self.state.lock().meter.over();
    }

    /// Takes an event of the engine, from any of its threads.
    pub(crate) fn on(&self, event: &CopyEvent<'_>) {
        let now = self.started.elapsed();
        match *event {
            CopyEvent::Found {
                files,
                bytes,
                complete,
            } => self.state.lock().meter.found(files, bytes, complete),
            CopyEvent::Moved { bytes } => {
                let mut state = self.state.lock();
                state.meter.moved(bytes, now);
                state.waiting = None;
            }
            CopyEvent::Resumed { bytes } => self.state.lock().meter.already(bytes),
            CopyEvent::Done(outcome) => self.done(outcome),
            CopyEvent::Failed {
                source,
                target,
                error,
                again,
            } => self.failed(source, target, error, again),
            CopyEvent::Skipped {
                source,
                target,
                bytes,
            } => self.skipped(source, target, bytes),
            CopyEvent::Directory { target } => self.changed("made", target),
            CopyEvent::Removed { target } => self.changed("removed", target),
            CopyEvent::LeftOut { source } => {
                self.state.lock().left_out.push(source.url.to_string())
            }
        }
    }

    /// Runs `work` and shows its progress meanwhile.
    pub(crate) fn while_running<T>(&self, work: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            scope.spawn(|| self.tick_until_over());
            let result = work();
            *self.over.lock() = true;
            self.wake.notify_all();
            self.screen.show(None);
            result
        })
    }

    /// Prints the closing line, and returns the facts of the summary.
    pub(crate) fn finish(&self, summary: &Summary) -> Facts {
        let seconds = self.started.elapsed().as_secs_f64();
        let mut state = self.state.lock();
        state.record.flush();
        if self.closes || state.lines > 0 {
            self.screen.note(&closing_line(summary, &state, seconds));
        }
        if summary.not_deleted {
            self.screen.note(
                "what only the target has was left there, since something could not be copied",
            );
        }
        let facts = json!({
            "files": summary.files,
            "bytes": summary.bytes,
            "seconds": seconds,
            "streams": summary.streams,
            "resumed_bytes": summary.resumed_bytes,
            "reread_bytes": summary.reread_source_bytes + summary.reread_target_bytes,
            "reread_source_bytes": summary.reread_source_bytes,
            "reread_target_bytes": summary.reread_target_bytes,
            "in_place": summary.in_place,
            "directories": summary.directories,
            "removed": summary.removed,
            "failed": summary.failed,
            "not_deleted": summary.not_deleted,
            "skipped": summary.skipped,
            "faults": summary.faults,
            "verified": state.weakest,
            "digest": state.digest,
        });
        match facts {
            serde_json::Value::Object(facts) => facts,
            _ => unreachable!("an object was written above"),
        }
    }

    /// Returns the copies of which only the sizes were compared.
    pub(crate) fn size_only(&self) -> Vec<(Place, Place)> {
        std::mem::take(&mut self.state.lock().size_only)
    }

    /// Returns the sources that were not copied, since they have names of unfinished uploads.
    pub(crate) fn left_out(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().left_out)
    }

    fn done(&self, outcome: &CopyOutcome) {
        let mut state = self.state.lock();
        state.meter.over();
        state.waiting = None;
        state.outcomes += 1;
        let digest = outcome.digest.as_ref().map(ToString::to_string);
        state.digest = digest.clone().filter(|_| state.outcomes == 1);
        let strength = verified(&outcome.verified);
        if state.weakest.is_none() || outcome.verified == Verified::SizeOnly {
            state.weakest = Some(strength.clone());
        }
        if outcome.verified == Verified::SizeOnly {
            state
                .size_only
                .push((outcome.source.clone(), outcome.target.clone()));
        }
        state.record.done(outcome);
        drop(state);
        if self.screen.json() {
            self.object(json!({
                "event": "done",
                "source": outcome.source.to_string(),
                "target": outcome.target.to_string(),
                "bytes": outcome.bytes,
                "seconds": outcome.seconds,
                "streams": outcome.tuned.streams,
                "tuning": tuning(&outcome.tuned),
                "resumed_bytes": outcome.resumed_bytes,
                "reread_bytes": outcome.reread_source_bytes + outcome.reread_target_bytes,
                "reread_source_bytes": outcome.reread_source_bytes,
                "reread_target_bytes": outcome.reread_target_bytes,
                "in_place": outcome.in_place,
                "faults": outcome.faults,
                "verified": strength,
                "digest": digest,
            }));
        } else if self.screen.verbose() {
            let in_place = if outcome.in_place { ", in place" } else { "" };
            self.line(format!(
                "{} -> {} ({}, {strength}{in_place}, {})",
                outcome.source,
                outcome.target,
                units::size(outcome.bytes),
                streams(&outcome.tuned)
            ));
        }
    }

    fn failed(&self, source: &Place, target: &Place, error: &Error, again: Option<Tries>) {
        if let Some(tries) = again {
            self.wait(source, error, tries);
            let text = format!("{source}: {error}; trying again");
            if self.screen.json() {
                self.object(json!({
                    "event": "retry",
                    "source": source.to_string(),
                    "target": target.to_string(),
                    "message": error.to_string(),
                    "try": tries.nth,
                    "tries": tries.most,
                }));
            } else if self.screen.verbose() {
                self.screen.note(&text);
            }
            tracing::info!(%source, %target, %error, "fault, trying again");
            return;
        }
        let mut state = self.state.lock();
        state.meter.over();
        state.waiting = None;
        state
            .record
            .failed(&source.to_string(), &target.to_string(), &error.to_string());
        drop(state);
        let trouble = CliError::store(format!("{} {source} to {target}", self.act), error);
        let is_sync = matches!(
            self.rule,
            OverwriteRule::Update | OverwriteRule::UpdateByDigest
        );
        let next = match error {
            Error::IsDirectory { path } | Error::NotDirectory { path }
                if is_sync && *path == target.path =>
            {
                "add --delete to have it replaced, or remove it"
            }
            Error::IsDirectory { path } if *path == target.path && *path != source.path => {
                "a directory has the name of the copy: choose another, or remove it"
            }
            Error::NotDirectory { path } if *path == target.path => {
                "a file has the name of the directory: choose another, or remove it"
            }
            Error::Missing { path } if *path == target.path && *path != source.path => {
                let above = target.url.parent();
                &above.map_or_else(String::new, |above| make_first(&above))
            }
            Error::NoSpace { .. } if self.go_on.is_some() => {
                &format!("make room; {}", self.go_on.as_deref().unwrap_or_default())
            }
            Error::Lost { .. }
            | Error::Stalled { .. }
            | Error::Corrupt { .. }
            | Error::Changed { .. }
                if !error.is_of_contact() =>
            {
                match &self.go_on {
                    Some(go_on) => go_on.as_str(),
                    None => return self.screen.trouble(&trouble),
                }
            }
            _ => return self.screen.trouble(&trouble),
        };
        self.screen.trouble(&trouble.next(next));
    }

    /// Shows the cause of a wait in the bar. Plain lines show it once, when the next try has failed as well.
    fn wait(&self, source: &Place, error: &Error, tries: Tries) {
        let mut state = self.state.lock();
        let was_said = state.waiting.as_ref().is_some_and(|before| before.was_said);
        let mut waiting = Waiting::new(error, tries);
        let is_news = self.style == Progress::Plain && !was_said && tries.nth > 1;
        waiting.was_said = was_said || is_news;
        if is_news && !self.screen.verbose() {
            self.screen.note(&format!("{source}: {waiting}"));
        }
        state.waiting = Some(waiting);
    }

    fn skipped(&self, source: &Place, target: &Place, bytes: u64) {
        let mut state = self.state.lock();
        state.meter.dropped(bytes);
        state.meter.over();
        drop(state);
        // A sync skips nearly everything.
        if self.screen.json() || self.rule == OverwriteRule::NoClobber {
            tell_skipped(self.screen, source, target);
        }
    }

    fn changed(&self, how: &str, target: &Place) {
        if self.screen.json() {
            self.object(json!({ "event": how, "target": target.to_string() }));
        } else if self.screen.verbose() {
            self.line(format!("{how} {target}"));
        }
    }

    fn tick_until_over(&self) {
        let (mut patience, every) = match self.style {
            Progress::Bar => (self.first, BAR_EVERY),
            Progress::Json => (Duration::from_secs(1), Duration::from_secs(1)),
            _ => (SILENT_MAX, Duration::from_secs(5)),
        };
        let mut over = self.over.lock();
        while !*over {
            let waited = self.wake.wait_for(&mut over, patience);
            if waited.timed_out() && !*over {
                drop(over);
                patience = every;
                self.tick();
                over = self.over.lock();
            }
        }
    }

    fn tick(&self) {
        let mut state = self.state.lock();
        state.record.flush();
        let look = state.meter.look(self.started.elapsed());
        let words = words(&look, state.waiting.as_ref(), &self.hosts);
        match self.style {
            Progress::Bar => {
                let bar = state.bar.get_or_insert_with(|| {
                    let bar = new_bar();
                    self.screen.show(Some(bar.clone()));
                    bar
                });
                bar.set_position((look.share.unwrap_or(0.0) * BAR_STEPS as f64) as u64);
                bar.set_message(words);
            }
            Progress::Json => {
                drop(state);
                self.object(object(&look));
            }
            Progress::Plain => {
                state.lines += 1;
                drop(state);
                self.screen.note(&words);
            }
            Progress::Auto | Progress::None => {}
        }
    }

    fn line(&self, text: String) {
        // A reader that went away is noticed when the verb ends.
        let _ = self.screen.line(text);
    }

    fn object(&self, object: serde_json::Value) {
        let _ = self.screen.object(&object);
    }
}

/// Reports a source that was skipped, since its target exists.
pub(crate) fn tell_skipped(screen: &Screen, source: &Place, target: &Place) {
    // A reader that went away is noticed when the verb ends.
    let _ = if screen.json() {
        screen.object(&json!({
            "event": "skipped",
            "source": source.to_string(),
            "target": target.to_string(),
        }))
    } else if screen.verbose() {
        screen.line(format!("{source}: skipped, {target} is there"))
    } else {
        Ok(())
    };
}

/// Returns the number of streams of a file, and the reason, as text.
fn streams(tuned: &Tuned) -> String {
    let (streams, why) = (tuned.streams, tuned.why.sentence());
    let some = if streams == 1 { "stream" } else { "streams" };
    if tuned.rate == 0.0 {
        return format!("{streams} {some}: {why}");
    }
    let rate = units::size(tuned.rate as u64);
    let (millis, lost) = (tuned.round_trip.as_secs_f64() * 1e3, tuned.lost * 100.0);
    format!("{streams} {some} at {rate}/s, {millis:.1} ms, {lost:.3} % lost: {why}")
}

/// Returns the hint to make a target directory.
pub(crate) fn make_first(directory: &Url) -> String {
    format!(
        "add --parents, or make it first: godwit mkdir -p {}",
        typed(directory)
    )
}

fn choose(screen: &Screen, wanted: Progress) -> Progress {
    let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    match wanted {
        Progress::Auto if screen.json() => Progress::Json,
        Progress::Auto if screen.quiet() => Progress::None,
        Progress::Auto if std::io::stderr().is_terminal() && !dumb => Progress::Bar,
        Progress::Auto => Progress::Plain,
        // Objects on standard output would mix with text.
        Progress::Json if !screen.json() => Progress::Plain,
        other => other,
    }
}

fn new_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(BAR_STEPS), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:16} {wide_msg}")
        .expect("the template is right")
        .progress_chars("=> ");
    bar.with_style(style)
}

/// Returns a snapshot as text: `37 %  1.20 GiB of 4.00 GiB  3/8 files  812 MiB/s  3.4s left`, or the
/// cause of the wait while nothing moves.
fn words(look: &Snapshot, waiting: Option<&Waiting>, hosts: &[String]) -> String {
    let share = look
        .share
        .map(|share| format!("{:3.0} %  ", (share * 100.0).floor()))
        .unwrap_or_default();
    if let Some(waiting) = waiting {
        return format!("{share}{waiting}");
    }
    let more = if look.counted { "" } else { " and more" };
    let left = look
        .left
        .map(|left| format!("  {} left", units::duration(left)))
        .unwrap_or_default();
    let idle = match look.bytes_per_second > 0.0 || hosts.is_empty() {
        true => String::new(),
        false => format!("  waiting for {}", hosts.join(" and ")),
    };
    format!(
        "{share}{} of {}{more}  {}/{} files{more}  {}/s{left}{idle}",
        units::size(look.bytes_over),
        units::size(look.bytes_found),
        look.files_over,
        look.files_found,
        units::size(look.bytes_per_second as u64),
    )
}

fn object(look: &Snapshot) -> serde_json::Value {
    json!({
        "event": "progress",
        "files": look.files_over,
        "files_total": look.files_found,
        "bytes": look.bytes_over,
        "bytes_total": look.bytes_found,
        "counted": look.counted,
        "share": look.share,
        "bytes_per_second": look.bytes_per_second,
        "seconds_left": look.left.map(|left| left.as_secs_f64()),
    })
}

fn closing_line(summary: &Summary, state: &State, seconds: f64) -> String {
    let mut line = format!(
        "{}, {} in {} ({}/s)",
        files(summary.files),
        units::size(summary.bytes),
        units::duration(Duration::from_secs_f64(seconds)),
        units::size((summary.bytes as f64 / seconds.max(0.001)) as u64),
    );
    if summary.resumed_bytes > 0 {
        line.push_str(&format!(
            ", {} of it kept from before",
            units::size(summary.resumed_bytes)
        ));
    }
    for (count, what) in [(summary.skipped, "skipped"), (summary.failed, "failed")] {
        if count > 0 {
            line.push_str(&format!(", {count} {what}"));
        }
    }
    if let Some(weakest) = &state.weakest {
        line.push_str(&format!(", {weakest}"));
    }
    line
}

fn files(count: u64) -> String {
    match count {
        1 => "1 file".into(),
        count => format!("{count} files"),
    }
}

const BAR_STEPS: u64 = 10_000;
const BAR_EVERY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_names_cause_while_waiting() {
        let mut meter = Meter::default();
        meter.found(1, 100, true);
        meter.moved(50, Duration::from_secs(1));
        let error = Error::busy("lab", "full");
        let waiting = Waiting::new(&error, Tries { nth: 1, most: 5 });
        let text = words(&meter.look(Duration::from_secs(2)), Some(&waiting), &[]);
        assert!(
            text.ends_with(" %  waiting for lab to answer again (full), try 1 of 5"),
            "{text}"
        );
    }

    #[test]
    fn share_is_shown_after_counting() {
        let mut meter = Meter::default();
        meter.found(2, 3 << 30, false);
        meter.moved(1 << 30, Duration::from_secs(1));
        let text = words(&meter.look(Duration::from_secs(1)), None, &[]);
        assert_eq!(
            text,
            "1.00 GiB of 3.00 GiB and more  0/2 files and more  1.00 GiB/s"
        );
        meter.found(0, 1 << 30, true);
        let text = words(&meter.look(Duration::from_secs(1)), None, &[]);
        assert_eq!(
            text,
            " 24 %  1.00 GiB of 4.00 GiB  0/2 files  1.00 GiB/s  3.0s left"
        );
    }
}
