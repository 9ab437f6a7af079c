//! Reports pending changes that are not delivered: by a line in the log, and by a command of the user.
//!
//! A change is reported once until its delivery resumes: when it is put on hold, and when it has waited longer than a
//! bound. The command receives one event as JSON in `GODWIT_EVENT`. It has a deadline, one runs at a time, and a minute
//! has a limited number of runs; events beyond that are only logged.

use crate::config::OnFault;
use crate::local::keeping::DepotState;
use godwit_depot::{Pending, Scope, Stage};
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// A thread that watches the pending changes until this is dropped.
pub(crate) struct AlertThread {
    is_over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl AlertThread {
    pub(crate) fn start(keeping: &Arc<DepotState>, told: OnFault) -> std::io::Result<Self> {
        let is_over = Arc::new((Mutex::new(false), Condvar::new()));
        let (keeping, over) = (Arc::clone(keeping), Arc::clone(&is_over));
        let thread = thread::Builder::new()
            .name("faults".into())
            .spawn(move || watch(&keeping, told, &over))?;
        let thread = Some(thread);
        Ok(Self { is_over, thread })
    }
}

impl Drop for AlertThread {
    fn drop(&mut self) {
        let (over, changed) = &*self.is_over;
        *over.lock() = true;
        changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(keeping: &DepotState, told: OnFault, (over, changed): &(Mutex<bool>, Condvar)) {
    let mut faults = Faults::new(told.after);
    let mut runs = Runs::default();
    let mut pause = LOOK_EVERY;
    loop {
        let mut is_over = over.lock();
        changed.wait_while_for(&mut is_over, |over| !*over, pause);
        if *is_over {
            return runs.end();
        }
        drop(is_over);
        let began = Instant::now();
        for event in faults.look(&keeping.depot.pending_of(&Scope::All)) {
            tracing::warn!(%event, "event");
            if let Some(command) = &told.command {
                runs.ask(command, &event);
            }
        }
        runs.look();
        // A long queue is read less often.
        pause = LOOK_EVERY.max(began.elapsed() * 20);
    }
}

/// The events that were reported already.
struct Faults {
    after: Duration,
    told: HashMap<String, &'static str>,
}

impl Faults {
    fn new(after: Duration) -> Self {
        Self {
            after,
            told: HashMap::new(),
        }
    }

    /// Returns the changes that have become faults since the last call.
    fn look(&mut self, queue: &[Pending]) -> Vec<Value> {
        let mut now = HashMap::new();
        let mut events = Vec::new();
        for change in queue {
            let kind = match &change.stage {
                Stage::Held => "held",
                Stage::Waiting { .. } if change.age >= self.after => "waiting",
                // It is tried just now, and was told.
                Stage::Sending | Stage::Queued if self.told.contains_key(&change.id) => {
                    self.told[&change.id]
                }
                _ => continue,
            };
            if self.told.get(&change.id) != Some(&kind) {
                events.push(json!({
                    "kind": kind,
                    "id": change.id,
                    "what": change.what,
                    "url": change.url.without_password().to_string(),
                    "why": change.why,
                    "age_s": change.age.as_secs(),
                    "owed_bytes": change.pending_bytes,
                }));
            }
            now.insert(change.id.clone(), kind);
        }
        self.told = now;
        events
    }
}

/// The commands that were asked for.
#[derive(Default)]
struct Runs {
    waiting: Vec<(String, String)>,
    running: Option<(Child, Instant)>,
    /// When the last were begun.
    begun: Vec<Instant>,
}

impl Runs {
    fn ask(&mut self, command: &str, event: &Value) {
        let now = Instant::now();
        self.begun.retain(|at| now - *at < MINUTE);
        if self.begun.len() + self.waiting.len() >= IN_A_MINUTE {
            tracing::warn!("so many events in a minute are not told to the command");
            return;
        }
        self.waiting.push((command.into(), event.to_string()));
    }

    /// Ends a command that exceeds its time, and starts the next.
    fn look(&mut self) {
        if let Some((child, begun)) = &mut self.running {
            match child.try_wait() {
                Ok(None) if begun.elapsed() < DEADLINE => return,
                Ok(None) => {
                    tracing::warn!("the command for events takes too long and is ended");
                    self.end();
                }
                Ok(Some(status)) if !status.success() => {
                    tracing::warn!(%status, "the command for events failed");
                    self.running = None;
                }
                _ => self.running = None,
            }
        }
        if self.waiting.is_empty() {
            return;
        }
        let (command, event) = self.waiting.remove(0);
        let child = Command::new("/bin/sh")
            .args(["-c", &command])
            .env("GODWIT_EVENT", event)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        match child {
            Ok(child) => {
                self.begun.push(Instant::now());
                self.running = Some((child, Instant::now()));
            }
            Err(error) => tracing::warn!(%error, "the command for events cannot be run"),
        }
    }

    fn end(&mut self) {
        if let Some((mut child, _)) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(30);
const MINUTE: Duration = Duration::from_secs(60);
const IN_A_MINUTE: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use godwit_core::Url;

    fn change(id: &str, stage: Stage, age: u64) -> Pending {
        Pending {
            id: id.into(),
            what: "publish",
            to: None,
            url: Url::from_argument("ftp://far/a").unwrap(),
            stage,
            waits_for: None,
            size: 1,
            pending_bytes: 1,
            age: Duration::from_secs(age),
            tries: 1,
            why: "no".into(),
            is_conflict: false,
            last: None,
            is_committed: true,
            session: String::new(),
        }
    }

    fn waiting() -> Stage {
        Stage::Waiting {
            again_in: Duration::ZERO,
        }
    }

    #[test] //= KANGAROO-31
    fn fault_is_reported_once_until_resolved() {
        let mut faults = Faults::new(Duration::from_secs(10));
        assert!(faults.look(&[change("a", waiting(), 9)]).is_empty());
        let told = faults.look(&[change("a", waiting(), 10), change("b", Stage::Held, 0)]);
        let kinds: Vec<_> = told.iter().map(|event| event["kind"].clone()).collect();
        assert_eq!(kinds, ["waiting", "held"]);
        let same = [change("a", Stage::Sending, 11), change("b", Stage::Held, 1)];
        assert!(faults.look(&same).is_empty());
        assert!(faults.look(&[change("a", waiting(), 12)]).is_empty());
        // The user released the change, and it is on hold again.
        assert_eq!(faults.look(&[change("b", Stage::Held, 3)]).len(), 1);
    }

    #[test] //= KANGAROO-31
    fn flood_does_not_run_the_command() {
        let mut runs = Runs::default();
        for _ in 0..100 {
            runs.ask("true", &json!({}));
        }
        assert_eq!(runs.waiting.len(), IN_A_MINUTE);
    }

    #[test] //= KANGAROO-31
    fn the_command_is_told_the_event() {
        let name = format!("godwit-node-told-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        let mut runs = Runs::default();
        let command = format!("printf %s \"$GODWIT_EVENT\" > {}", file.display());
        runs.ask(&command, &json!({"kind": "held"}));
        runs.look();
        let (mut child, _) = runs.running.take().unwrap();
        assert!(child.wait().unwrap().success());
        let told = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(told, "{\"kind\":\"held\"}");
    }
}
