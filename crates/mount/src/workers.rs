//! Threads for what may wait: as many as wait at once.

use parking_lot::{Condvar, Mutex};
use std::{collections::VecDeque, sync::Arc, thread, time::Duration};

/// A pool that grows with the jobs that wait, and shrinks after them.
#[derive(Clone, Default)]
pub(crate) struct Workers(Arc<WorkerPool>);

#[derive(Default)]
struct WorkerPool {
    state: Mutex<State>,
    came: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Box<dyn FnOnce() + Send>>,
    idle: usize,
    alive: usize,
}

impl Workers {
    /// Does a job on another thread: on one that is free, or a new one.
    pub(crate) fn give(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state.lock();
        state.jobs.push_back(Box::new(job));
        if state.jobs.len() <= state.idle {
            self.0.came.notify_one();
            return;
        }
        if state.alive >= ALIVE_MAX {
            return; // taken by the next that is free
        }
        let pool = Arc::clone(&self.0);
        let begun = thread::Builder::new()
            .name("asks".into())
            .spawn(move || pool.work());
        match begun {
            Ok(_) => state.alive += 1,
            Err(_) if state.alive > 0 => {}
            Err(_) => {
                let job = state.jobs.pop_back();
                drop(state);
                job.into_iter().for_each(|job| job());
            }
        }
    }
}

impl WorkerPool {
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            while let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state.lock();
            }
            state.idle += 1;
            let rested = self.came.wait_for(&mut state, IDLE);
            state.idle -= 1;
            if rested.timed_out() && state.jobs.is_empty() {
                state.alive -= 1;
                return;
            }
        }
    }
}

const ALIVE_MAX: usize = 256;
const IDLE: Duration = Duration::from_secs(5);
