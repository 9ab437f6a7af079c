//! Small files: whole ones, many in flight together.

use super::{CopyItem, CopyOutcome, Copying, queue::QueueTake};
use crate::{
    Error, Finished, Limit, Result, Small, SmallWrite, Stat, StoreExt, Verified, Width, WriteMode,
};
use std::{
    cell::RefCell,
    collections::VecDeque,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

/// Copies `first`, and the items behind it in the queue between the same two stores. An item that was not begun,
/// because the connection failed, is returned.
pub(super) fn copy(copying: &Copying<'_>, first: CopyItem) -> Option<(CopyItem, Error)> {
    let batch = SmallBatch {
        copying,
        source: first.source.clone(),
        target: first.target.clone(),
        first: RefCell::new(Some(first)),
        flying: RefCell::default(),
        began: Instant::now(),
    };
    let broken = if batch.target.is_remote() {
        batch.write()
    } else {
        batch.read()
    };
    let error = match broken {
        Err(error) => error,
        // A store that says nothing of a file has not copied it.
        Ok(()) => broke_off(&batch.source),
    };
    if let Some(first) = batch.first.into_inner() {
        return Some((first, error));
    }
    again(copying, batch.flying.into_inner(), error);
    None
}

/// Puts back a file as one that a try failed for.
pub(super) fn failed(copying: &Copying<'_>, item: CopyItem, error: Error) {
    let flying = Flying {
        item,
        since: Instant::now(),
        read: None,
    };
    again(copying, VecDeque::from([flying]), error);
}

/// Files on their way over one conversation.
struct SmallBatch<'a> {
    copying: &'a Copying<'a>,
    source: super::Place,
    target: super::Place,
    first: RefCell<Option<CopyItem>>,
    flying: RefCell<VecDeque<Flying>>,
    began: Instant,
}

struct Flying {
    item: CopyItem,
    since: Instant,
    read: Option<Verified>,
}

impl SmallBatch<'_> {
    /// Reads many files of a remote source in one request, and writes each as it arrives.
    fn read(&self) -> Result<()> {
        self.source.store.read_small(
            &mut || {
                let item = self.next()?;
                let path = item.source.path.clone();
                self.flying.borrow_mut().push_back(Flying {
                    item,
                    since: Instant::now(),
                    read: None,
                });
                Some(path)
            },
            &mut |path, small| {
                let Some(flying) = self.landed(|item| item.source.path == path) else {
                    return;
                };
                match small {
                    Ok(small) => self.store(flying, small),
                    Err(error) => self.fail(flying.item, error),
                }
            },
        )
    }

    /// Hands a target that is far many files at once, each read when there is room for it.
    fn write(&self) -> Result<()> {
        let mut read = VecDeque::new();
        self.target.store.write_small(
            &mut || {
                if read.is_empty() {
                    read = self.read_some();
                }
                let (item, small): (CopyItem, Small) = read.pop_front()?;
                let given = self.given(&item, small.bytes, &small.stat);
                let read = Some(small.verified);
                let flying = Flying {
                    item,
                    since: Instant::now(),
                    read,
                };
                self.flying.borrow_mut().push_back(flying);
                Some(given)
            },
            &mut |path, finished| {
                let Some(flying) = self.landed(|item| item.target.path == path) else {
                    return;
                };
                match finished {
                    Ok(finished) => self.finish(flying, finished),
                    Err(error) => self.fail(flying.item, error),
                }
            },
        )
    }

    /// Reads the next file, or several at once of a source that is far. None: there are no more.
    fn read_some(&self) -> VecDeque<(CopyItem, Small)> {
        loop {
            let (mut items, mut bytes) = (VecDeque::new(), 0);
            let most = if self.source.is_remote() { READ_MAX } else { 1 };
            while items.len() < most
                && bytes < READ_BYTES_MAX
                && let Some(item) = self.next()
            {
                bytes += item.stat.size;
                match self.copying.pace(item.stat.size) {
                    Ok(()) => items.push_back(item),
                    Err(error) => self.fail(item, error),
                }
            }
            if items.is_empty() {
                return VecDeque::new();
            }
            let mut paths = items.iter().map(|item| item.source.path.clone());
            let mut told = Vec::with_capacity(items.len());
            let broken = self
                .source
                .store
                .read_small(&mut || paths.next(), &mut |_, small| told.push(small));
            let mut told = told.into_iter();
            let (mut read, mut broken) = (VecDeque::new(), broken.err());
            for item in items {
                // A store tells of each in the order in which they were named.
                let lost = || Err(broken.take().unwrap_or_else(|| broke_off(&self.source)));
                match told.next().unwrap_or_else(lost) {
                    Ok(small) => read.push_back((item, small)),
                    Err(error) => self.fail(item, error),
                }
            }
            if !read.is_empty() {
                return read;
            }
        }
    }

    /// Removes the file that a store reported. That is nearly always the first, but a name that cannot be sent is
    /// reported before those in flight.
    fn landed(&self, is_it: impl Fn(&CopyItem) -> bool) -> Option<Flying> {
        let mut flying = self.flying.borrow_mut();
        let at = flying.iter().position(|one| is_it(&one.item))?;
        flying.remove(at)
    }

    /// Takes the next file between the same two stores, if one was found by now.
    fn next(&self) -> Option<CopyItem> {
        if let Some(first) = self.first.borrow_mut().take() {
            return Some(first);
        }
        // A batch that never ended would never tell a slow finder's files apart.
        if self.copying.options.cancel.is_canceled() || self.began.elapsed() > BATCH_MAX {
            return None;
        }
        let fits = |item: &CopyItem| {
            Arc::ptr_eq(&item.source.store, &self.source.store)
                && Arc::ptr_eq(&item.target.store, &self.target.store)
        };
        // Files found right behind the first are sent with it.
        let patience = if self.flying.borrow().is_empty() {
            LULL
        } else {
            GATHER.saturating_sub(self.began.elapsed())
        };
        match self.copying.small.take(patience, fits) {
            QueueTake::Item(item) => Some(item),
            QueueTake::NotNow | QueueTake::Closed => None,
        }
    }

    fn given(&self, item: &CopyItem, bytes: Vec<u8>, stat: &Stat) -> SmallWrite {
        let options = self.copying.options;
        SmallWrite {
            path: item.target.path.clone(),
            bytes,
            how: if item.rule == super::OverwriteRule::NoClobber {
                WriteMode::New
            } else {
                WriteMode::Replace(None)
            },
            mtime: stat.mtime.filter(|_| options.keep_times),
            mode: options.mode(stat.mode),
        }
    }

    fn store(&self, mut flying: Flying, small: Small) {
        flying.read = Some(small.verified.clone());
        // The attributes sent with the bytes may lack some that the listing had.
        let mode = small.stat.mode.or(flying.item.stat.mode);
        flying.item.stat = Stat { mode, ..small.stat };
        if let Err(error) = self.copying.pace(small.bytes.len() as u64) {
            return self.fail(flying.item, error);
        }
        let mut given = Some(self.given(&flying.item, small.bytes, &flying.item.stat));
        let mut outcome = None;
        let broken = flying
            .item
            .target
            .store
            .write_small(&mut || given.take(), &mut |_: PathBuf, finished| {
                outcome = Some(finished)
            });
        match outcome.unwrap_or_else(|| broken.and(Err(Error::Canceled))) {
            Ok(finished) => self.finish(flying, finished),
            Err(error) => self.fail(flying.item, error),
        }
    }

    fn finish(&self, flying: Flying, finished: Finished) {
        let Flying { item, since, read } = flying;
        let bytes = item.stat.size;
        self.copying.moved(bytes);
        let verified = match finished.verified {
            Verified::SizeOnly => read.unwrap_or_default(),
            stronger => stronger,
        };
        self.copying.done(CopyOutcome {
            bytes,
            resumed_bytes: 0,
            reread_source_bytes: 0,
            reread_target_bytes: finished.reread_bytes,
            in_place: finished.in_place,
            seconds: since.elapsed().as_secs_f64(),
            tuned: Width::fixed(1, Limit::Brief).now(),
            verified,
            digest: finished.digests.into_iter().next(),
            faults: item.tries,
            third_party: false,
            source: item.source,
            target: item.target,
        });
    }

    fn fail(&self, item: CopyItem, error: Error) {
        failed(self.copying, item, error);
    }
}

/// Puts files back to be tried again, after a pause, or gives them up.
fn again(copying: &Copying<'_>, left: VecDeque<Flying>, error: Error) {
    let Some(tries) = left.iter().map(|flying| flying.item.tries).max() else {
        // The conversation broke though nothing was under way in it.
        return;
    };
    let mut retry = super::retry::Retry::new(copying.options.retries);
    let fault = copying.fault_of(&error);
    let pause = (0..=tries).map(|_| retry.after(fault)).last().flatten();
    if pause.is_some() {
        // The user learns before the pause what is waited for.
        for Flying { item, .. } in &left {
            copying.tries_again(&item.source, &item.target, &error, retry.tries());
        }
    }
    let mut error = Some(error);
    let stopped = pause.is_some_and(|pause| copying.pause(pause).is_err());
    for Flying { mut item, .. } in left {
        if pause.is_none() || stopped {
            if error.is_none() && copying.is_vain(&item.source, &item.target) {
                copying.given_up();
                continue;
            }
            let told = error.take().unwrap_or_else(|| broke_off(&item.source));
            copying.failed(&item.source, &item.target, told);
            continue;
        }
        item.tries += 1;
        copying.small.put_back(item);
    }
}

fn broke_off(source: &super::Place) -> Error {
    Error::lost(
        source.url.host_port(),
        "many files were under way",
        std::io::ErrorKind::ConnectionAborted,
    )
}

/// How long a batch waits for the finder when it has nothing else to do.
const LULL: Duration = Duration::from_millis(20);
/// How long a batch that has begun waits for more to begin with.
const GATHER: Duration = Duration::from_millis(5);
const BATCH_MAX: Duration = Duration::from_secs(60);
/// How many files of a remote source are in flight, and how many of their bytes are in memory.
const READ_MAX: usize = 64;
const READ_BYTES_MAX: u64 = 16 << 20;
