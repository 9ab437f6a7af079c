//! The sending end.

use super::{DataChannel, Stripe, TransferMode, Watch, gauge::Gauge, link::DataLink};
use crate::{BlockWriter, Checks, Error, Fast, LocalFile, Result, Width, watch::Patience};
use godwit_core::{Block, Extents, Leaves, Piece};
use godwit_wire::mode_e::Header;
use parking_lot::{Condvar, Mutex};
use std::{
    borrow::{Borrow, BorrowMut},
    collections::BTreeMap,
    ops::Range,
    sync::Arc,
    time::Duration,
};

/// A file on its way into the data connections: the sink of a [`crate::Store::read`].
///
/// Dropping it without [`FileSending::end`] closes the connections, so that the receiver detects an incomplete file.
/// Channel and watch are borrowed, or owned if the sending outlives the call that made it.
pub struct FileSending<C, W> {
    mode: TransferMode,
    base: u64,
    channel: C,
    watch: W,
    sends_pages: bool,
    state: Mutex<SendState>,
    returned: Condvar,
    leaves: Option<Mutex<Leaves>>,
    width: Option<Arc<Width>>,
}

struct SendState {
    free: Vec<Stripe>,
    in_use: usize,
    sent: Extents,
}

/// The result of a send.
#[derive(Debug)]
pub struct SendReport {
    /// Payload.
    pub bytes: u64,
    /// Connections used.
    pub streams: u64,
    /// The hashes of the bytes, if they were asked for.
    pub leaves: Option<Leaves>,
}

impl DataChannel {
    /// Begins to send a file over the open connections. Block offsets on the wire count from `base`.
    ///
    /// No connection is added later. With commands sent ahead, the receiver may still be in the file before. The
    /// blocks would then be taken for that file's.
    pub fn send<'a>(
        &'a mut self,
        mode: TransferMode,
        base: u64,
        checks: Checks,
        watch: &'a Watch,
    ) -> FileSending<&'a mut Self, &'a Watch> {
        FileSending::over(self, mode, base, checks, watch)
    }

    /// Queues a whole small file, in MODE E, to be written with its neighbours by [`DataChannel::flush`].
    pub fn queue_whole(&mut self, bytes: &[u8], watch: &Watch) -> Result<()> {
        let mut patience = watch.patience();
        if let Some(stripe) = self.links.first_mut().filter(|_| !bytes.is_empty()) {
            let header = Header::data(0..bytes.len() as u64).encode();
            stripe.link.queue(&[&header, bytes], &mut patience)?;
            watch.moved(bytes.len() as u64);
        }
        end_blocks(&mut self.links, self.ends, |link, header| {
            link.queue(&[header], &mut patience)
        })
    }

    /// Writes the files that [`DataChannel::queue_whole`] queued.
    pub fn flush(&mut self, watch: &Watch) -> Result<()> {
        let mut patience = watch.patience();
        self.links
            .iter_mut()
            .try_for_each(|stripe| stripe.link.flush(&mut patience))
    }

    /// Ends the cached connections as the sender should.
    pub fn close(&mut self, watch: &Watch) {
        let mut patience = watch.patience();
        let bye = Header {
            close: true,
            ..Header::data(0..0)
        }
        .encode();
        for mut stripe in self.links.drain(..) {
            // The peer may be gone already, which is as good.
            let _ = stripe.link.write(&bye, &[], &mut patience);
        }
    }
}

impl<C: BorrowMut<DataChannel>, W: Borrow<Watch>> FileSending<C, W> {
    /// Begins to send a file, as [`DataChannel::send`] does.
    pub fn over(mut channel: C, mode: TransferMode, base: u64, checks: Checks, watch: W) -> Self {
        let free = std::mem::take(&mut channel.borrow_mut().links);
        Self {
            sends_pages: channel.borrow().sends_pages(),
            mode,
            base,
            channel,
            watch,
            state: Mutex::new(SendState {
                free,
                in_use: 0,
                sent: Extents::new(),
            }),
            returned: Condvar::new(),
            leaves: checks.blake3.then(|| Mutex::new(Leaves::new())),
            width: None,
        }
    }

    /// Uses as many of the connections as `width` says. Returns the gauge, which the caller has to read now and then.
    pub fn vary(&mut self, width: &Arc<Width>) -> Gauge {
        let stripes = std::mem::take(&mut self.state.lock().free);
        let gauge = Gauge::new(width.clone(), stripes.iter().map(|stripe| &stripe.link));
        self.state.lock().free = stripes;
        self.width = Some(width.clone());
        gauge
    }

    /// Sends the end of the file. The connections of MODE E stay for the next transfer.
    pub fn end(self) -> Result<SendReport> {
        self.end_with_channel().map(|(sent, _)| sent)
    }

    /// Sends the end of the file, and gives the channel back.
    pub fn end_with_channel(mut self) -> Result<(SendReport, C)> {
        let leaves = self.leaves.take().map(|m| m.into_inner());
        let mut state = self.state.lock();
        let bytes = state.sent.len_bytes();
        let mut links = std::mem::take(&mut state.free);
        drop(state);
        let streams = links.len() as u64;
        match self.mode {
            TransferMode::Stream => {
                let mut patience = self.watch.borrow().patience();
                links
                    .iter_mut()
                    .try_for_each(|stripe| stripe.link.end(&mut patience))?;
            }
            TransferMode::Extended => {
                let mut patience = self.watch.borrow().patience();
                let ends = self.channel.borrow().ends;
                end_blocks(&mut links, ends, |link, header| {
                    link.write(header, &[], &mut patience)
                })?;
                self.channel.borrow_mut().links = links;
            }
        }
        let sent = SendReport {
            bytes,
            streams,
            leaves,
        };
        Ok((sent, self.channel))
    }

    /// Ends the connections so that no receiver takes the break for the end of the file. In stream mode a drop would
    /// look like that.
    pub fn break_off(self) {
        for stripe in &self.state.lock().free {
            stripe.link.reset_on_close();
        }
    }

    /// Returns the watch of the transfer.
    pub fn watch(&self) -> &W {
        &self.watch
    }

    /// Tells whether [`FileSending::write_from`] spares a reading; else the bytes had better
    /// be read once, and put.
    pub(crate) fn sends_pages(&self) -> bool {
        self.sends_pages
    }

    /// Runs `look` on the tree of the bytes sent so far.
    pub fn leaves<T>(&self, look: impl FnOnce(&mut Leaves) -> T) -> Option<T> {
        self.leaves.as_ref().map(|leaves| look(&mut leaves.lock()))
    }

    /// Takes a connection that no other thread is writing to.
    fn take(&self) -> Result<Stripe> {
        let mut patience = self.watch.borrow().patience();
        let mut state = self.state.lock();
        loop {
            // The same ones are used again as long as they suffice.
            let may = |width: &Arc<Width>| state.in_use < width.streams();
            if self.width.as_ref().is_none_or(may)
                && let Some(stripe) = state.free.pop()
            {
                state.in_use += 1;
                return Ok(stripe);
            }
            self.returned.wait_for(&mut state, RETURNED_SOON);
            patience.waited("the peer", "waiting for a free stream")?;
        }
    }

    /// Sends a range of a file without looking at it.
    pub(crate) fn write_from(
        &self,
        file: &LocalFile<'_>,
        range: Range<u64>,
        buffer: &mut [u8],
    ) -> Result<()> {
        self.write(range.clone(), |link, header, patience| {
            link.write_from(header, file, range, buffer, patience)
        })
    }

    /// Runs `write` with a block on an idle connection.
    fn write(
        &self,
        range: Range<u64>,
        write: impl FnOnce(&mut DataLink, &[u8], &mut Patience<'_>) -> Result<()>,
    ) -> Result<()> {
        let watch = self.watch.borrow();
        watch.canceled().check()?;
        let mut patience = watch.patience();
        let mut stripe = self.take()?;
        match self.mode {
            TransferMode::Extended => {
                let header = Header::data(range.start - self.base..range.end - self.base).encode();
                write(&mut stripe.link, &header, &mut patience)?;
            }
            TransferMode::Stream => {
                if !self.state.lock().continues_at(range.start) {
                    return Err(Error::unsupported(
                        "sending blocks out of order",
                        "stream mode has no offsets",
                    ));
                }
                write(&mut stripe.link, &[], &mut patience)?;
            }
        }
        watch.moved(range.end - range.start);
        let mut state = self.state.lock();
        state.free.push(stripe);
        state.in_use -= 1;
        state.sent.insert(range);
        self.returned.notify_one();
        Ok(())
    }

    fn hash(&self, block: Block<'_>) {
        if let Some(leaves) = &self.leaves {
            let piece = Piece::of(block);
            leaves.lock().add(piece);
        }
    }
}

impl<C, W> BlockWriter for FileSending<C, W>
where
    C: BorrowMut<DataChannel> + Send + Sync,
    W: Borrow<Watch> + Send + Sync,
{
    fn put(&self, block: Block<'_>) -> Result<()> {
        self.write(block.range(), |link, header, patience| {
            link.write(header, block.bytes, patience)
        })?;
        self.hash(block);
        Ok(())
    }

    crate::has!(self, Fast);
}

impl<C, W> Fast for FileSending<C, W>
where
    C: BorrowMut<DataChannel> + Send + Sync,
    W: Borrow<Watch> + Send + Sync,
{
    fn put_from(&self, file: &LocalFile<'_>, range: Range<u64>, buffer: &mut [u8]) -> Result<()> {
        if !self.sends_pages {
            return self.put(file.block(range, buffer)?);
        }
        if self.leaves.is_some() {
            look(file, range.clone(), buffer, &mut |block| self.hash(block))?;
        }
        self.write_from(file, range, buffer)
    }

    fn width(&self) -> Option<&Arc<Width>> {
        self.width.as_ref()
    }
}

/// Shows a range of a file, in pieces that stay in the processor's own cache.
pub(crate) fn look(
    file: &LocalFile<'_>,
    range: Range<u64>,
    buffer: &mut [u8],
    each: &mut dyn FnMut(Block<'_>),
) -> Result<()> {
    let mut left = Extents::from(range);
    while let Some(piece) = left.take_aligned(LOOK_BYTES) {
        each(file.block(piece, buffer)?);
    }
    Ok(())
}

impl SendState {
    /// In stream mode the first block may begin anywhere; later ones must follow it.
    fn continues_at(&self, offset: u64) -> bool {
        self.sent.is_empty() || self.sent.end() == offset
    }
}

/// Ends the part of every connection, those that carried no block among them: no block of the next
/// file can be taken for one of this. One connection of each stripe also announces how many
/// lead there (or `announced`, if others send there too).
fn end_blocks(
    links: &mut [Stripe],
    announced: Option<u64>,
    mut write: impl FnMut(&mut DataLink, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut streams = BTreeMap::<usize, u64>::new();
    links
        .iter()
        .for_each(|stripe| *streams.entry(stripe.index).or_default() += 1);
    if streams.is_empty() {
        return Err(Error::misbehaved("the peer", "no data connection"));
    }
    for stripe in links {
        let first = streams.remove(&stripe.index);
        let header = match first.map(|own| announced.unwrap_or(own)) {
            Some(ends) if ends > 0 => Header::end_of_file(ends),
            _ => Header::end_of_data(),
        };
        write(&mut stripe.link, &header.encode())?;
    }
    Ok(())
}

/// Half of the smallest cache of a processor core.
const LOOK_BYTES: u64 = 128 << 10;
const RETURNED_SOON: Duration = Duration::from_millis(20);
