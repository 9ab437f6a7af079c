//! Copies one large file: the missing ranges, over several streams, until it is complete.

use super::{
    CopyEvent, CopyItem, CopyOutcome, Copying, OverwriteRule, Place, retry::Retry, turns::FileTurn,
};
use crate::{
    BlockWriter, BlockWriterExt, Checks, Error, Expected, Finished, Limit, LocalFile, Origin,
    Passage, Read, Result, Sink, SinkExt, Stat, StoreExt, Verified, Width, Write, WriteMode,
    channel::width_for,
};
use godwit_core::{
    Algorithm, Block, Chain, Digest, Extents, Fault, Fragment, Home, Layout, Scheme, Url, moves,
};
use parking_lot::Mutex;
use std::{
    cell::Cell,
    collections::BTreeMap,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

/// Copies a file, trying again as long as it gets on.
pub(super) fn copy(
    copying: &Copying<'_>,
    item: &CopyItem,
    turn: &FileTurn<'_>,
) -> Result<CopyOutcome> {
    let mut run = FileCopy {
        copying,
        item,
        turn,
        stat: item.stat.clone(),
        resume: copying.options.resume,
        began: Instant::now(),
        retry: Retry::new(copying.options.retries),
        faults: 0,
        anew: 0,
        resumed_bytes: None,
        direct: Cell::new(
            !copying.options.via_us
                && copying.options.bytes_per_s.is_none()
                && item.source.is_remote()
                && item.target.is_remote(),
        ),
        told: Mutex::default(),
    };
    loop {
        let before = run.landed_bytes();
        match run.attempt() {
            Ok(outcome) => return Ok(outcome),
            Err(error) => run.again(copying.fault(error, &item.target), before)?,
        }
    }
}

/// All tries to copy one file.
struct FileCopy<'a> {
    copying: &'a Copying<'a>,
    item: &'a CopyItem,
    turn: &'a FileTurn<'a>,
    stat: Stat,
    resume: bool,
    began: Instant,
    retry: Retry,
    faults: u32,
    anew: u32,
    resumed_bytes: Option<u64>, // what lay there before our first byte
    direct: Cell<bool>,         // from server to server
    told: Mutex<Extents>,       // told as moved or resumed: progress never runs backwards
}

/// The settings of one attempt.
struct AttemptPlan {
    range: Range<u64>,
    checks: Checks,
    width: Arc<Width>,
}

impl FileCopy<'_> {
    fn attempt(&mut self) -> Result<CopyOutcome> {
        let CopyItem { source, target, .. } = self.item;
        if self.faults + self.anew > 0 {
            self.look_again()?;
        }
        let range = self.item.range.clone().unwrap_or(0..u64::MAX);
        let range = range.start.min(self.stat.size)..range.end.min(self.stat.size);
        let whole_file = self.item.range.is_none();
        let mut plan = self.plan(range)?;

        let seen_at = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let origin = Origin {
            name: source.url.to_string(),
            version: self.stat.version(seen_at),
        };
        let sink = target
            .store
            .write(&target.path, &self.write(&plan, &origin))?;
        self.resumed(&sink.done(), &plan.range);

        let read = match self.fill(&*sink, &plan) {
            Err(error)
                if source.passage().is_some()
                    || whole_file && matches!(error, Error::Changed { .. }) =>
            {
                // The bytes of this version are of no further use.
                if let Err(error) = sink.abandon() {
                    tracing::warn!(%error, "what arrived of another version stays there");
                }
                return Err(error);
            }
            read => read?,
        };
        if let (Some(read), None) = (&read, self.stat.known_size()) {
            plan.range.end = read.stat.size;
        }
        let reread_source_bytes = self.show(&*sink)?;
        let digest = match read {
            _ if !whole_file || !self.copying.options.verify => None,
            Some(Read {
                digest: Some(digest),
                ..
            }) if self.is_comparable(digest.algorithm())? => Some(digest),
            _ => self.source_digest(&plan)?,
        };
        let whole = Expected {
            size: whole_file.then_some(plan.range.end),
            digest,
            mtime: self
                .stat
                .mtime
                .filter(|_| whole_file && self.copying.options.keep_times),
            mode: self
                .copying
                .options
                .mode(self.stat.mode)
                .filter(|_| whole_file),
        };
        let mut finished = sink.finish(&whole)?;
        if !whole_file && self.copying.options.verify && finished.verified == Verified::SizeOnly {
            finished.verified = self.compare_range(&plan.range)?;
        }
        Ok(self.outcome(&plan, finished, reread_source_bytes))
    }

    /// Compares a range written in place at both ends, by a checksum that both know. One end must be a server.
    fn compare_range(&self, range: &Range<u64>) -> Result<Verified> {
        let CopyItem { source, target, .. } = self.item;
        if range.is_empty() || !(source.is_remote() || target.is_remote()) {
            return Ok(Verified::SizeOnly);
        }
        let (ours, theirs) = (source.store.can()?.digests, target.store.can()?.digests);
        let Some(by) = ours.into_iter().find(|by| theirs.contains(by)) else {
            return Ok(Verified::SizeOnly);
        };
        let digest = |place: &Place| place.store.digest(&place.path, by, Some(range.clone()));
        match (digest(source), digest(target)) {
            // A hop may not reach what has it.
            (_, Err(Error::Unsupported { .. } | Error::Beyond { .. })) => Ok(Verified::SizeOnly),
            (Ok(expected), Ok(found)) if expected == found => Ok(Verified::By(by)),
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(expected), Ok(found)) => Err(Error::corrupt(
                target.path.clone(),
                format!("{expected} for bytes {} to {}", range.start, range.end),
                found.to_string(),
            )),
        }
    }

    /// Reads the ranges that the sink lacks, until it has all.
    fn fill(&self, sink: &dyn Sink, plan: &AttemptPlan) -> Result<Option<Read>> {
        let CopyItem { source, .. } = self.item;
        let (told, copying) = (&self.told, self.copying);
        let already = told.lock().len_bytes();
        let whole = plan.range.end - plan.range.start;
        let is_measured = self.stat.known_size().is_some();
        let landed = |range| {
            let (fresh, all) = tell(told, range);
            if !is_measured {
                copying.tell(&CopyEvent::Found {
                    files: 0,
                    bytes: fresh,
                    complete: false,
                });
            }
            copying.moved(fresh);
            let (moved, left) = (all.saturating_sub(already), whole.saturating_sub(all));
            self.turn.moved(Instant::now(), moved, left);
        };
        let counting = Counting {
            sink,
            copying,
            landed: &landed,
            width: &plan.width,
        };
        let streams = plan.width.most();
        let mut last = None;
        for _ in 0..LEGS_MAX {
            let want = self.missing(&sink.settle()?, plan);
            if want.is_empty() {
                return Ok(last);
            }
            let drawn = match self.direct.get() || self.item.target.passage().is_some() {
                true => sink.draw(&*source.store, &source.path, &want, streams, &landed)?,
                false => None,
            };
            self.direct.set(drawn.is_some());
            let read = match drawn {
                Some(read) => read,
                None => {
                    let source = &source.store;
                    source.read(&self.item.source.path, &want, streams, &counting)?
                }
            };
            if !is_measured {
                return Ok(Some(read)); // all there is
            }
            self.check_unchanged(&read.stat)?;
            // A digest told with a part is the whole file's, so the latest counts.
            last = Some(read);
        }
        let left = self.missing(&sink.settle()?, plan);
        if left.is_empty() {
            return Ok(last);
        }
        Err(Error::corrupt(
            self.item.target.path.clone(),
            "what the source announced",
            format!("something else, each time, in bytes {left}"),
        ))
    }

    /// Reads the bytes that an earlier attempt sent, if their hashes are unknown.
    fn show(&self, sink: &dyn Sink) -> Result<u64> {
        let unseen = if self.copying.options.verify {
            sink.unseen()
        } else {
            Extents::new()
        };
        if unseen.is_empty() {
            return Ok(0);
        }
        let CopyItem { source, .. } = self.item;
        let read = source
            .store
            .read(&source.path, &unseen, 1, &ShowingSink(sink))?;
        self.check_unchanged(&read.stat)?;
        Ok(unseen.len_bytes())
    }

    /// Asks the planner what has still to move: a copy is one fragment with one
    /// home that is to get another.
    fn missing(&self, done: &Extents, plan: &AttemptPlan) -> Extents {
        let layout = |url: &Url| {
            let homes = vec![Home::at(url.clone())];
            Layout::new([Fragment {
                range: plan.range.clone(),
                homes,
            }])
        };
        let CopyItem { source, target, .. } = self.item;
        let done = BTreeMap::from([(target.url.clone(), done.clone())]);
        match (layout(&source.url), layout(&target.url)) {
            (Some(from), Some(to)) if source.url != target.url => moves(&from, &to, &done)
                .map(|moves| moves.into_iter().map(|step| step.range).collect())
                .unwrap_or_else(|unfilled| unfilled.0),
            _ => done[&target.url].missing(plan.range.clone()),
        }
    }

    fn plan(&self, range: Range<u64>) -> Result<AttemptPlan> {
        let CopyItem { source, .. } = self.item;
        let verify = self.copying.options.verify;
        // A source of ours tells BLAKE3 on the way; a foreign one can be asked
        // for ADLER32 behind us, which can be computed of blocks in any order.
        let adler32 = verify && source.is_remote() && {
            let can = source.store.can()?;
            !can.leaves && can.digests.contains(&Algorithm::Adler32)
        };
        let width = self.width(&range)?;
        Ok(AttemptPlan {
            range,
            checks: Checks {
                blake3: verify,
                adler32,
            },
            width: Arc::new(width),
        })
    }

    /// Returns how many streams a file may have. Only this program and nodes vary the number during a transfer: a
    /// sender sees how the network behaves.
    fn width(&self, range: &Range<u64>) -> Result<Width> {
        let CopyItem { source, target, .. } = self.item;
        if source.passage().or(target.passage()).is_some() {
            return Ok(Width::fixed(1, Limit::Server));
        }
        let stripes = source.store.stripes().max(target.store.stripes());
        if let Some(streams) = self.copying.options.streams {
            return Ok(Width::fixed(streams.max(stripes), Limit::Asked));
        }
        let distance = source.distance().max(target.distance());
        let is_ours =
            |place: &Place| Ok::<_, Error>(!place.is_remote() || place.store.can()?.leaves);
        let lanes = if !is_ours(target)? {
            LANES_OF_OTHERS
        } else if [source, target]
            .iter()
            .any(|end| end.url.scheme() == Scheme::Gsiftp)
        {
            LANES_PROVED
        } else {
            LANES
        };
        let width = width_for(distance, &Extents::from(range.clone()), lanes);
        Ok(match width.is_tuned() {
            // Each host of a striped server needs one at least, and decides for itself.
            _ if stripes > 1 => {
                let streams = width.most().min(LANES_OF_OTHERS);
                Width::fixed(streams.max(stripes), Limit::Server)
            }
            // A web server is asked for one range after the other.
            _ if source.is_remote()
                && crate::door::Door::of(&*source.store).is_none()
                && matches!(source.url.scheme(), Scheme::Http | Scheme::Https) =>
            {
                Width::fixed(1, Limit::Server)
            }
            true if !is_ours(source)? => Width::fixed(LANES_OF_OTHERS, Limit::Server),
            // A door does not show what the network does to each stream.
            true if [source, target]
                .iter()
                .any(|end| crate::door::Door::of(&*end.store).is_some()) =>
            {
                Width::fixed(width.most().min(LANES_OF_OTHERS), Limit::Most)
            }
            _ => width,
        })
    }

    fn write<'b>(&self, plan: &'b AttemptPlan, origin: &'b Origin) -> Write<'b> {
        let how = match (&self.item.range, self.item.rule) {
            (Some(_), _) => WriteMode::InPlace,
            (None, OverwriteRule::NoClobber) => WriteMode::New,
            (None, _) => WriteMode::Replace(None),
        };
        let is_whole = self.item.range.is_none();
        let is_kept = self.item.source.passage().is_none();
        Write {
            how,
            size: self.stat.known_size().filter(|_| is_whole),
            origin: is_kept.then_some(origin),
            id: None,
            attempt: 0,
            mode: self.copying.options.mode(self.stat.mode),
            checks: plan.checks,
            resume: self.resume && is_whole && is_kept,
            watch: None,
            streams: plan.width.most(),
            width: Some(&plan.width),
            passed: &[],
        }
    }

    /// Asks a server for the digest of the file, where that was not told on the way.
    fn source_digest(&self, plan: &AttemptPlan) -> Result<Option<Digest>> {
        let CopyItem { source, .. } = self.item;
        if !source.is_remote() || self.stat.size == 0 {
            return Ok(None);
        }
        let can = source.store.can()?;
        let by = match self.is_comparable(Algorithm::Blake3)? {
            true if can.leaves => Algorithm::Blake3,
            // In a copy between servers, both must know the algorithm.
            false if can.leaves => Algorithm::Adler32,
            _ if plan.checks.adler32 => Algorithm::Adler32,
            _ => return Ok(None),
        };
        if !self.is_comparable(by)? {
            return Ok(None);
        }
        source.store.digest(&source.path, by, None).map(Some)
    }

    /// Tells whether the target's side can tell this digest too. What went through
    /// here was hashed here.
    fn is_comparable(&self, by: Algorithm) -> Result<bool> {
        Ok(!self.direct.get() || self.item.target.store.can()?.digests.contains(&by))
    }

    fn look_again(&mut self) -> Result<()> {
        let CopyItem { source, .. } = self.item;
        let now = source.store.stat(&source.path)?;
        if (now.size, now.mtime) != (self.stat.size, self.stat.mtime) {
            // Never mix two versions. The sink's bytes are of another version, which it detects; our attributes of
            // the source are stale.
            self.stat = now;
        }
        Ok(())
    }

    fn check_unchanged(&self, now: &Stat) -> Result<()> {
        // Listings may tell whole seconds where a final reply tells more.
        let is_told = now.mtime.is_some() && self.stat.mtime.is_some();
        let same_time = !is_told || now.is_of_time(&self.stat);
        if now.size == self.stat.size && same_time {
            return Ok(());
        }
        let what = format!("it was {} bytes, and is {} now", self.stat.size, now.size);
        let what = if same_time {
            what
        } else {
            "it was written to while it was read".into()
        };
        Err(Error::changed(self.item.source.path.clone(), what))
    }

    /// Decides whether to try again, and waits.
    fn again(&mut self, error: Error, landed_before: u64) -> Result<()> {
        if self.landed_bytes() > landed_before {
            self.retry.progressed();
        }
        let anew = matches!(error, Error::Changed { .. } | Error::Corrupt { .. });
        let CopyItem { source, target, .. } = self.item;
        let is_once = |place: &Place| place.passage() == Some(Passage::Once);
        // A pipe gives nothing twice, and takes nothing back.
        let is_gone = self.landed_bytes() > 0 && (is_once(source) || anew && is_once(target));
        let pause = match self.copying.fault_of(&error) {
            _ if is_gone => None,
            _ if anew && self.anew < ANEW_MAX => {
                (self.resume, self.anew) = (false, self.anew + 1);
                Some(Duration::ZERO)
            }
            Fault::Lasting => None,
            fault => {
                self.resume = self.copying.options.resume;
                self.retry.after(fault)
            }
        };
        let Some(pause) = pause else {
            return Err(error);
        };
        self.faults += 1;
        let tries = self.retry.tries();
        self.copying.tries_again(source, target, &error, tries);
        self.copying.pause(pause)
    }

    fn resumed(&mut self, done: &Extents, range: &Range<u64>) {
        let bytes: u64 = done.within(range.clone()).map(|r| r.end - r.start).sum();
        self.resumed_bytes.get_or_insert(bytes);
        let fresh = {
            let mut told = self.told.lock();
            let before = told.len_bytes();
            done.within(range.clone()).for_each(|r| told.insert(r));
            told.len_bytes() - before
        };
        if fresh > 0 {
            self.copying.tell(&CopyEvent::Resumed { bytes: fresh });
        }
    }

    fn landed_bytes(&self) -> u64 {
        self.told.lock().len_bytes()
    }

    fn outcome(
        &self,
        plan: &AttemptPlan,
        finished: Finished,
        reread_source_bytes: u64,
    ) -> CopyOutcome {
        let verify = self.copying.options.verify;
        CopyOutcome {
            source: self.item.source.clone(),
            target: self.item.target.clone(),
            bytes: plan.range.end - plan.range.start,
            resumed_bytes: self.resumed_bytes.unwrap_or(0),
            reread_source_bytes,
            reread_target_bytes: finished.reread_bytes,
            in_place: finished.in_place || self.item.range.is_some(),
            seconds: self.began.elapsed().as_secs_f64(),
            tuned: plan.width.now(),
            verified: if verify {
                finished.verified
            } else {
                Verified::SizeOnly
            },
            digest: finished.digests.into_iter().next(),
            faults: self.faults,
            third_party: self.direct.get() && self.item.source.is_remote(),
        }
    }
}

/// Tells of progress, and stops when told to.
struct Counting<'a> {
    sink: &'a dyn Sink,
    copying: &'a Copying<'a>,
    landed: &'a (dyn Fn(Range<u64>) + Sync),
    width: &'a Arc<Width>,
}

impl BlockWriter for Counting<'_> {
    fn put(&self, block: Block<'_>) -> Result<()> {
        self.copying.options.cancel.check()?;
        self.copying.pace(block.bytes.len() as u64)?;
        self.sink.put(block)?;
        (self.landed)(block.range());
        Ok(())
    }

    fn said(&self, leaf: u64, chain: Chain) -> Result<()> {
        self.sink.said(leaf, chain)
    }

    crate::has!(self, Fast);
}

impl crate::Fast for Counting<'_> {
    fn put_from(&self, file: &LocalFile<'_>, range: Range<u64>, buffer: &mut [u8]) -> Result<()> {
        self.copying.options.cancel.check()?;
        self.copying.pace(range.end - range.start)?;
        self.sink.put_from(file, range.clone(), buffer)?;
        (self.landed)(range);
        Ok(())
    }

    fn width(&self) -> Option<&Arc<Width>> {
        Some(self.width)
    }
}

/// Returns how many bytes of `range` had not been told of, and how many have been now.
fn tell(told: &Mutex<Extents>, range: Range<u64>) -> (u64, u64) {
    let mut told = told.lock();
    let before = told.len_bytes();
    told.insert(range);
    let now = told.len_bytes();
    (now - before, now)
}

/// Shows blocks to a sink.
struct ShowingSink<'a>(&'a dyn Sink);

impl BlockWriter for ShowingSink<'_> {
    fn put(&self, block: Block<'_>) -> Result<()> {
        self.0.show(block)
    }
}

/// Connections that are made for a transfer which may turn out to need them.
const LANES: usize = 64;
/// Each that has to prove itself costs both ends some milliseconds of work.
const LANES_PROVED: usize = 16;
/// A number of streams that any server accepts.
const LANES_OF_OTHERS: usize = 16;
/// How often a file is started anew because it changed or came wrong.
const ANEW_MAX: u32 = 2;
/// The most passes over the missing ranges within one attempt.
const LEGS_MAX: u32 = 4;
