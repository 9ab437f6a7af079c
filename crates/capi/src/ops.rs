//! Operations that continue while the program does something else.
//!
//! An [`Op`] is a small machine that the calls about it drive, since there is no thread. A call
//! reads an answer that has arrived, or moves one unit of bytes. Then the operation pauses until
//! the next call.

use crate::{
    failure::{Failure, Result, odd},
    files::give_up,
    puts::Puts,
    system::CallerBuffer,
};
use godwit_local::{Kind, NodeAnswer, PendingRequest, Refusal, SharedConnection};
use godwit_wire::local::{
    Handle, Request, Response,
    request::{self, Wait},
};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::FileExt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::SeqCst},
    time::Instant,
};

/// Number of an operation.
pub(crate) type Number = i64;

/// Operations that are in flight, or have ended without a question since.
#[derive(Debug)]
pub(crate) struct Ops {
    all: Mutex<OpTable>,
    /// Takes note of writes that end.
    puts: Arc<Puts>,
}

#[derive(Debug, Default)]
struct OpTable {
    last: Number,
    ops: BTreeMap<Number, Op>,
    /// Taken back while they were being opened: what was opened all the same is given back.
    strays: Vec<PendingRequest>,
    /// Directories that are served.
    served: usize,
}

/// How the program wants it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpOptions {
    pub(crate) unit_bytes: usize,
    pub(crate) wait: Wait,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Op {
    work: OpWork,
    unit_bytes: usize,
    pub(crate) done: u64,
    pub(crate) total: Option<u64>,
    end: Option<Result<End>>,
    is_told: bool,
}

/// How it ended.
#[derive(Debug)]
pub(crate) enum End {
    Bytes(u64),
    Memory(File, u64),
}

#[derive(Debug)]
enum OpWork {
    /// One ask, which says by itself what was done.
    One(PendingRequest),
    /// A get whose answer is a file in memory.
    Memory(PendingRequest),
    /// A range in the body of an answer, or in a file in memory.
    Get(PendingRequest, OpTarget),
    /// A file is being opened, to be read or to be written.
    Opening(PendingRequest, Part),
    /// Ranges of a shared file are fetched, some at a time.
    Ensuring(PendingRequest, Handle, Vec<Vec<(u64, u64)>>),
    /// Bytes are moved from it.
    Reading(ReadSide, OpTarget),
    /// Bytes are moved into it.
    Writing(WriteSide, OpSource),
    /// A write whose file is being closed at the node.
    Ending(PendingRequest),
    Over,
}

#[derive(Debug)]
enum Part {
    Read {
        offset: u64,
        len: u64,
        into: OpTarget,
    },
    Write {
        from: OpSource,
        wait: Wait,
        puts: Arc<Puts>,
    },
}

/// A file that is read.
#[derive(Debug)]
struct ReadSide {
    file: File,
    at: u64,
    end: u64,
    /// To be given back.
    open: Option<(u64, Handle)>,
}

/// A file that is written.
#[derive(Debug)]
struct WriteSide {
    file: File,
    at: u64,
    era: u64,
    handle: Handle,
    wait: Wait,
    puts: Arc<Puts>,
}

/// Target of the bytes.
#[derive(Debug)]
pub(crate) enum OpTarget {
    Buffer(CallerBuffer),
    Descriptor(File),
}

/// Origin of the bytes.
#[derive(Debug)]
pub(crate) enum OpSource {
    Buffer(CallerBuffer),
    Descriptor(File),
}

impl Ops {
    pub(crate) fn new(puts: &Arc<Puts>) -> Self {
        Self {
            all: Mutex::default(),
            puts: Arc::clone(puts),
        }
    }

    /// Begins to get a range.
    pub(crate) fn get(
        &self,
        talk: &SharedConnection,
        url: String,
        (offset, len): (u64, u64),
        into: OpTarget,
        options: OpOptions,
    ) -> Result<Number> {
        let end = offset.checked_add(len);
        let is_short = matches!(into, OpTarget::Buffer(_)) && len <= AT_ONCE_BYTES;
        // What is long is read from the depot's file: one version of it, and nothing held twice in memory.
        if !is_short {
            let open = request::OpenRequest {
                url,
                read: true,
                ..request::OpenRequest::default()
            };
            let ticket = talk.send(None, Request::Open(open), b"")?;
            let part = Part::Read { offset, len, into };
            return Ok(self.begin(talk, OpWork::Opening(ticket, part), options));
        }
        let Some(end) = end else {
            let words = "it would reach beyond what a file can have";
            return Err(Failure::invalid(format!("read {url}"), words));
        };
        let get = request::Get {
            url,
            start: offset,
            end: Some(end),
            ..request::Get::default()
        };
        let ticket = talk.send(None, Request::Get(get), b"")?;
        Ok(self.begin(talk, OpWork::Get(ticket, into), options))
    }

    /// Begins to replace a file.
    pub(crate) fn put(
        &self,
        talk: &SharedConnection,
        url: String,
        from: OpSource,
        options: OpOptions,
    ) -> Result<Number> {
        let size = match &from {
            OpSource::Buffer(buffer) => Some(buffer.len() as u64),
            OpSource::Descriptor(_) => None,
        };
        let put = request::PutRequest {
            url,
            size,
            ..request::PutRequest::default()
        };
        let ticket = talk.send(None, Request::Put(put), b"")?;
        let wait = options.wait;
        let puts = Arc::clone(&self.puts);
        let part = Part::Write { from, wait, puts };
        let number = self.begin(talk, OpWork::Opening(ticket, part), options);
        self.with(number, |op| op.total = size)?;
        Ok(number)
    }

    /// Begins what is one ask; with `body` it is about so many bytes.
    pub(crate) fn one(
        &self,
        talk: &SharedConnection,
        ask: Request,
        body: &[u8],
        options: OpOptions,
    ) -> Result<Number> {
        let is_memory = matches!(ask, Request::Memory(_));
        let ticket = talk.send(None, ask, body)?;
        let work = match is_memory {
            true => OpWork::Memory(ticket),
            false => OpWork::One(ticket),
        };
        let number = self.begin(talk, work, options);
        self.with(number, |op| {
            op.total = (!body.is_empty()).then_some(body.len() as u64)
        })?;
        Ok(number)
    }

    /// Begins to fetch ranges of a shared file, the last part first. There is one part at least.
    pub(crate) fn ensure(
        &self,
        talk: &SharedConnection,
        (era, handle): (u64, Handle),
        mut parts: Vec<Vec<(u64, u64)>>,
    ) -> Result<Number> {
        let ranges = parts.pop().unwrap_or_default();
        let ticket = talk.send(
            Some(era),
            Request::Ensure(request::Ensure { handle, ranges }),
            b"",
        )?;
        let options = OpOptions {
            unit_bytes: 0,
            wait: Wait::default(),
        };
        Ok(self.begin(talk, OpWork::Ensuring(ticket, handle, parts), options))
    }

    fn begin(&self, talk: &SharedConnection, work: OpWork, options: OpOptions) -> Number {
        let mut all = self.lock();
        all.last += 1;
        let number = all.last;
        let op = Op {
            work,
            unit_bytes: options.unit_bytes,
            done: 0,
            total: None,
            end: None,
            is_told: false,
        };
        all.ops.insert(number, op);
        talk.under_way.store(all.count(), SeqCst);
        // Its answer may have been taken by others before it was here.
        talk.ready.raise();
        number
    }

    /// Does what can be done now. Returns those that ended and were not told before, at most `max`, and tells whether
    /// something can go on without an answer.
    pub(crate) fn work(&self, talk: &SharedConnection, max: usize) -> (Vec<Number>, bool) {
        let mut all = self.lock();
        all.strays.retain(|&ticket| is_astray(talk, ticket));
        let (mut ended, mut goes_on) = (Vec::new(), false);
        for (number, op) in &mut all.ops {
            goes_on |= op.step(talk);
            if op.end.is_some() && !op.is_told {
                if ended.len() == max {
                    goes_on = true;
                    continue;
                }
                op.is_told = true;
                ended.push(*number);
            }
        }
        (ended, goes_on)
    }

    /// Works until some have ended, or the deadline.
    pub(crate) fn poll(
        &self,
        talk: &SharedConnection,
        max: usize,
        deadline: Option<Instant>,
    ) -> Vec<Number> {
        talk.ready.lower();
        loop {
            let turns = talk.turns();
            let (ended, goes_on) = self.work(talk, max);
            let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
            let is_idle = self.lock().ops.values().all(|op| op.end.is_some());
            if !ended.is_empty() || is_late || (is_idle && !goes_on) {
                if goes_on {
                    talk.ready.raise();
                }
                return ended;
            }
            if !goes_on {
                talk.await_turn(turns, deadline);
            }
        }
    }

    /// Works until that one has ended.
    pub(crate) fn wait(
        &self,
        talk: &SharedConnection,
        number: Number,
        deadline: Option<Instant>,
    ) -> Result<()> {
        loop {
            let turns = talk.turns();
            let (has_ended, goes_on) = {
                let mut all = self.lock();
                let op = all.ops.get_mut(&number).ok_or_else(unknown)?;
                let goes_on = op.step(talk);
                op.is_told |= op.end.is_some();
                (op.end.is_some(), goes_on)
            };
            if has_ended {
                return Ok(());
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                let words = "it has not ended yet";
                return Err(Refusal::new(Kind::Late, "wait for it", words)
                    .waiting(godwit_core::Fault::Passing)
                    .into());
            }
            if !goes_on {
                talk.await_turn(turns, deadline);
            }
        }
    }

    /// Returns how it ended, and forgets it.
    pub(crate) fn end(&self, talk: &SharedConnection, number: Number) -> Result<End> {
        let mut all = self.lock();
        let op = all.ops.get_mut(&number).ok_or_else(unknown)?;
        op.step(talk);
        let Some(end) = op.end.take() else {
            return Err(Failure::under_way("tell how it ended"));
        };
        all.ops.remove(&number);
        talk.under_way.store(all.count(), SeqCst);
        end
    }

    /// Waits for one, and returns how it ended.
    pub(crate) fn outcome(&self, talk: &SharedConnection, number: Number) -> Result<End> {
        self.wait(talk, number, None)?;
        self.end(talk, number)
    }

    /// Ends it, and forgets it.
    pub(crate) fn cancel(&self, talk: &SharedConnection, number: Number) -> Result<()> {
        let mut all = self.lock();
        let op = all.ops.remove(&number).ok_or_else(unknown)?;
        match op.work {
            OpWork::Opening(ticket, _) => {
                talk.take_back(ticket);
                all.strays.push(ticket);
            }
            work => abandon(work, talk),
        }
        all.strays.retain(|&ticket| is_astray(talk, ticket));
        talk.under_way.store(all.count(), SeqCst);
        Ok(())
    }

    /// Something is served from now on, or is not any more.
    pub(crate) fn serves(&self, talk: &SharedConnection, is_begun: bool) {
        let mut all = self.lock();
        all.served = match is_begun {
            true => all.served + 1,
            false => all.served.saturating_sub(1),
        };
        talk.under_way.store(all.count(), SeqCst);
        talk.ready.raise();
    }

    /// Looks at one.
    pub(crate) fn with<T>(&self, number: Number, look: impl FnOnce(&mut Op) -> T) -> Result<T> {
        let mut all = self.lock();
        all.ops.get_mut(&number).map(look).ok_or_else(unknown)
    }

    fn lock(&self) -> MutexGuard<'_, OpTable> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpTable {
    fn count(&self) -> usize {
        self.ops.len() + self.strays.len() + self.served
    }
}

impl Op {
    /// Takes one step if one is possible without waiting; tells whether another may follow.
    fn step(&mut self, talk: &SharedConnection) -> bool {
        if self.end.is_some() {
            return false;
        }
        match self.advance(talk) {
            Ok(Turn::Again) => true,
            Ok(Turn::Waits) => false,
            Ok(Turn::Ended(end)) => {
                self.end = Some(Ok(end));
                self.work = OpWork::Over;
                false
            }
            Err(failure) => {
                let work = std::mem::replace(&mut self.work, OpWork::Over);
                abandon(work, talk);
                self.end = Some(Err(failure));
                false
            }
        }
    }

    fn advance(&mut self, talk: &SharedConnection) -> Result<Turn> {
        let ticket = match &mut self.work {
            OpWork::One(ticket)
            | OpWork::Memory(ticket)
            | OpWork::Get(ticket, _)
            | OpWork::Opening(ticket, _)
            | OpWork::Ensuring(ticket, ..)
            | OpWork::Ending(ticket) => *ticket,
            OpWork::Reading(read, into) => {
                let moved = read.step(into, self.done, self.unit_bytes)?;
                self.done += moved;
                if read.at < read.end {
                    return Ok(Turn::Again);
                }
                if let Some((era, handle)) = read.open.take() {
                    give_up(talk, era, handle);
                }
                return Ok(Turn::Ended(End::Bytes(self.done)));
            }
            OpWork::Writing(write, from) => {
                let moved = write.step(from, self.unit_bytes)?;
                self.done += moved;
                if moved == 0 {
                    self.end_writing(talk)?;
                }
                return Ok(Turn::Again);
            }
            OpWork::Over => return Ok(Turn::Waits),
        };
        let Some(answer) = talk.look(ticket)? else {
            return Ok(Turn::Waits);
        };
        self.take(talk, ticket, answer)
    }

    fn take(
        &mut self,
        talk: &SharedConnection,
        ticket: PendingRequest,
        mut answer: NodeAnswer,
    ) -> Result<Turn> {
        match answer.tell {
            Response::Refused(refusal) => {
                self.work = OpWork::Over;
                return Err((*refusal).into());
            }
            Response::Progress { done, total } => {
                if matches!(self.work, OpWork::One(_) | OpWork::Memory(_)) {
                    (self.done, self.total) = (done, total.or(self.total));
                }
                return Ok(Turn::Again);
            }
            ref tell if !tell.is_last() => return Ok(Turn::Again),
            _ => {}
        }
        let file = answer.files.pop().map(File::from);
        match (std::mem::replace(&mut self.work, OpWork::Over), answer.tell) {
            (OpWork::One(_), Response::Done(done)) => {
                self.done = self.total.unwrap_or(done.bytes);
                Ok(Turn::Ended(End::Bytes(self.done)))
            }
            (OpWork::Ensuring(ticket, handle, mut rest), Response::Done(_)) => {
                let Some(ranges) = rest.pop() else {
                    return Ok(Turn::Ended(End::Bytes(0)));
                };
                let ask = Request::Ensure(request::Ensure { handle, ranges });
                self.work = OpWork::Ensuring(talk.send(Some(ticket.era), ask, b"")?, handle, rest);
                Ok(Turn::Again)
            }
            // This answer has no count of bytes: the count of written bytes is known here.
            (OpWork::Ending(_), Response::Done(_)) => Ok(Turn::Ended(End::Bytes(self.done))),
            (OpWork::Memory(_), Response::Bytes { len, .. }) => memory(file, answer.body, len),
            (OpWork::Get(_, into), Response::Bytes { len, .. }) => {
                self.got(into, file, answer.body, len)
            }
            (OpWork::Opening(_, part), Response::Opened(opened)) => {
                let open = (ticket.era, opened.handle);
                let Some(file) = file else {
                    give_up(talk, open.0, open.1);
                    return Err(odd("it", "a file that was to come did not").into());
                };
                self.work = match part {
                    Part::Read { offset, len, into } => {
                        let end = offset.saturating_add(len).min(opened.size);
                        self.total = Some(end.saturating_sub(offset));
                        let open = Some(open);
                        let at = offset;
                        OpWork::Reading(
                            ReadSide {
                                file,
                                at,
                                end,
                                open,
                            },
                            into,
                        )
                    }
                    Part::Write { from, wait, puts } => {
                        let (era, handle) = open;
                        let at = 0;
                        let write = WriteSide {
                            file,
                            at,
                            era,
                            handle,
                            wait,
                            puts,
                        };
                        OpWork::Writing(write, from)
                    }
                };
                Ok(Turn::Again)
            }
            (_, tell) => Err(odd("it", &format!("{tell:?}")).into()),
        }
    }

    /// Ends a write after its last byte. The descriptor is closed first, since the node waits for
    /// every writer.
    fn end_writing(&mut self, talk: &SharedConnection) -> Result<()> {
        let OpWork::Writing(write, _) = std::mem::replace(&mut self.work, OpWork::Over) else {
            return Ok(());
        };
        drop(write.file);
        write.puts.wrote(write.era, write.wait);
        let close = request::Close {
            handle: write.handle,
            wait: write.wait,
            give_up: false,
            timeout_ms: None,
        };
        let ticket = talk.send(Some(write.era), Request::End(close), b"")?;
        self.work = OpWork::Ending(ticket);
        Ok(())
    }

    /// Bytes came that were asked for.
    fn got(
        &mut self,
        mut into: OpTarget,
        file: Option<File>,
        body: Vec<u8>,
        len: u64,
    ) -> Result<Turn> {
        let OpTarget::Buffer(buffer) = &mut into else {
            return Err(odd("it", "bytes that were not asked for").into());
        };
        if len > buffer.len() as u64 || (file.is_none() && body.len() as u64 != len) {
            return Err(odd("it", "another number of bytes than was asked for").into());
        }
        self.total = Some(len);
        match file {
            Some(file) => {
                let read = ReadSide {
                    file,
                    at: 0,
                    end: len,
                    open: None,
                };
                self.work = OpWork::Reading(read, into);
                Ok(Turn::Again)
            }
            None => {
                buffer.part_mut(0, body.len()).copy_from_slice(&body);
                self.done = len;
                Ok(Turn::Ended(End::Bytes(len)))
            }
        }
    }
}

/// Tells whether it has not been answered yet; what was opened is given back.
fn is_astray(talk: &SharedConnection, ticket: PendingRequest) -> bool {
    match talk.look(ticket) {
        Ok(None) => true,
        Ok(Some(answer)) => {
            if let Response::Opened(opened) = answer.tell {
                drop(answer.files);
                give_up(talk, ticket.era, opened.handle);
            }
            false
        }
        Err(_) => false,
    }
}

/// Ends what is no longer wanted.
fn abandon(work: OpWork, talk: &SharedConnection) {
    match work {
        OpWork::One(ticket)
        | OpWork::Memory(ticket)
        | OpWork::Get(ticket, _)
        | OpWork::Opening(ticket, _)
        | OpWork::Ensuring(ticket, ..)
        | OpWork::Ending(ticket) => talk.cancel(ticket),
        OpWork::Reading(read, _) => {
            if let Some((era, handle)) = read.open {
                give_up(talk, era, handle);
            }
        }
        OpWork::Writing(write, _) => {
            drop(write.file);
            give_up(talk, write.era, write.handle);
        }
        OpWork::Over => {}
    }
}

enum Turn {
    Again,
    Waits,
    Ended(End),
}

impl ReadSide {
    /// Moves a unit at most, and tells how much that was.
    fn step(&mut self, into: &mut OpTarget, done: u64, unit_bytes: usize) -> Result<u64> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let unit = left.min(unit_bytes);
        if unit == 0 {
            return Ok(0);
        }
        let moved = match into {
            OpTarget::Buffer(buffer) => {
                let part = buffer.part_mut(usize::try_from(done).unwrap_or(usize::MAX), unit);
                retried(|| self.file.read_at(part, self.at))
            }
            OpTarget::Descriptor(out) => {
                let mut piece = vec![0; unit];
                let came = retried(|| self.file.read_at(&mut piece, self.at));
                came.and_then(|came| out.write_all(&piece[..came]).map(|()| came))
            }
        };
        let moved = moved.and_then(|moved| match moved {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            moved => Ok(moved as u64),
        });
        let moved = moved.map_err(|error| Failure::system("move what was got", &error))?;
        self.at += moved;
        Ok(moved)
    }
}

impl WriteSide {
    /// Moves one unit of bytes and returns its length; 0 at the end.
    fn step(&mut self, from: &mut OpSource, unit_bytes: usize) -> Result<u64> {
        let moved = match from {
            OpSource::Buffer(buffer) => {
                let at = usize::try_from(self.at).unwrap_or(usize::MAX);
                let piece = buffer.part(at, unit_bytes);
                match piece.is_empty() {
                    true => Ok(0),
                    false => retried(|| self.file.write_at(piece, self.at)),
                }
            }
            OpSource::Descriptor(file) => {
                let mut piece = vec![0; unit_bytes];
                let came = retried(|| file.read(&mut piece));
                came.and_then(|came| {
                    self.file.write_all_at(&piece[..came], self.at)?;
                    Ok(came)
                })
            }
        };
        let moved = moved.map_err(|error| Failure::system("move what is put", &error))?;
        self.at += moved as u64;
        Ok(moved as u64)
    }
}

fn memory(file: Option<File>, body: Vec<u8>, len: u64) -> Result<Turn> {
    let failed = |error: io::Error| Failure::system("keep a file in memory", &error);
    let file = match file {
        // What could still change must not be mapped: reading it could end the program.
        Some(file) if !godwit_sys::is_sealed(&file) => {
            return Err(odd("it", "a file in memory that can change").into());
        }
        Some(file) => file,
        None => {
            let mut file = godwit_sys::memory("godwit").map_err(failed)?;
            file.write_all(&body).map_err(failed)?;
            godwit_sys::seal(&file).map_err(failed)?;
            file
        }
    };
    if file.metadata().map_err(failed)?.len() != len {
        return Err(odd("it", "another number of bytes than it says").into());
    }
    Ok(Turn::Ended(End::Memory(file, len)))
}

fn retried<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn unknown() -> Failure {
    Failure::invalid("find what is under way", "there is nothing of that number")
}

/// Most bytes in one request; more are passed by a descriptor.
const AT_ONCE_BYTES: u64 = 64 << 20;
/// Bytes moved at a time, unless the program chooses.
pub(crate) const UNIT_BYTES: usize = 1 << 20;
