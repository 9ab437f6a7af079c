//! Reading files.

use super::{DirInner, place, regular, stat, wrong};
use crate::{
    BlockWriter, BlockWriterExt, Error, LocalFile, Read, Result, SMALL_BYTES, Small, Stat, Verified,
};
use godwit_core::{Algorithm, Chain, Digest, Extents, Hashing, LEAF_BYTES, Leaves, Piece};
use godwit_sys::{self as sys, Buffer, Meta, OpenMode};
use parking_lot::Mutex;
use std::{fs::File, ops::Range, os::unix::fs::FileExt, path::Path, thread, time::Duration};

impl DirInner {
    pub(super) fn read(
        &self,
        path: &Path,
        want: &Extents,
        streams: usize,
        into: &dyn BlockWriter,
    ) -> Result<Read> {
        let (file, before) = self.to_read(path)?;
        let left: Extents = want.within(0..before.size).collect();
        let lying = LocalFile { path, file: &file };
        let most = (left.len_bytes() / THREAD_WORTH_BYTES) as usize;
        let threads = into
            .width()
            .map_or(streams, |width| width.streams())
            .min(most);
        if threads > 1 {
            read_by_many(&lying, left, threads, most, into)?;
        } else {
            read_in_order(left, |range, buffer| into.put_from(&lying, range, buffer))?;
        }
        let after = unchanged(path, &file, &before)?;
        Ok(Read {
            stat: stat(&after, None),
            digest: self.known.find(&after),
        })
    }

    pub(super) fn read_one(&self, path: &Path) -> Result<Small> {
        let (file, before) = self.to_read(path)?;
        if before.size > SMALL_BYTES {
            let what = format!("it has {} bytes, which is not small", before.size);
            return Err(Error::changed(path, what));
        }
        let mut bytes = vec![0; before.size as usize];
        LocalFile { path, file: &file }.fill(0, &mut bytes)?;
        let after = unchanged(path, &file, &before)?;
        Ok(Small {
            bytes,
            stat: stat(&after, None),
            verified: Verified::SizeOnly,
        })
    }

    pub(super) fn digest(
        &self,
        path: &Path,
        by: Algorithm,
        range: Option<Range<u64>>,
        on: &dyn Fn(u64) -> Result<()>,
    ) -> Result<Digest> {
        let (file, before) = self.to_read(path)?;
        let all = 0..before.size;
        let is_whole = range.as_ref().is_none_or(|range| *range == all);
        let remembers = is_whole && by == Algorithm::Blake3;
        if remembers && let Some(known) = self.known.find(&before) {
            return Ok(known);
        }
        let left = match range {
            Some(range) => Extents::from(all).within(range).collect(),
            None => Extents::from(all),
        };
        let mut hashing = Hashing::new(by);
        let lying = LocalFile { path, file: &file };
        read_in_order(left, |range, buffer| {
            let bytes = lying.block(range, buffer)?.bytes;
            hashing.update(bytes);
            on(bytes.len() as u64)
        })?;
        let after = unchanged(path, &file, &before)?;
        let digest = hashing.finish();
        if remembers {
            self.known.read(&after, &digest);
        }
        Ok(digest)
    }

    pub(super) fn leaves(&self, path: &Path, leaves: Range<u64>) -> Result<Vec<Chain>> {
        let (file, before) = self.to_read(path)?;
        let end = leaves.end.min(before.size.div_ceil(LEAF_BYTES));
        let bytes =
            leaves.start.min(end) * LEAF_BYTES..end.saturating_mul(LEAF_BYTES).min(before.size);
        let (mut chains, mut tree) = (Vec::new(), Leaves::new());
        let lying = LocalFile { path, file: &file };
        read_in_order(Extents::from(bytes), |range, buffer| {
            let block = lying.block(range, buffer)?;
            let leaf = block.offset / LEAF_BYTES;
            tree.add(Piece::of(block));
            chains.extend(tree.chain(leaf, before.size));
            tree.forget(leaf);
            Ok(())
        })?;
        unchanged(path, &file, &before)?;
        Ok(chains)
    }

    pub(super) fn lend(&self, path: &Path) -> Result<(File, Stat)> {
        let (file, meta) = self.to_read(path)?;
        Ok((file, stat(&meta, None)))
    }

    fn to_read(&self, path: &Path) -> Result<(File, Meta)> {
        place::not_reserved(path)?;
        let file = self.file(path, OpenMode::Read, 0)?;
        let meta = sys::meta(&file).map_err(|e| wrong(path, e))?;
        regular(path, &meta)?;
        if meta.size == 0 && file.read_at(&mut [0], 0).is_ok_and(|read| read > 0) {
            return Err(Error::unsupported(
                format!("reading {}", path.display()),
                "it says that it is empty and is not: the kernel makes its bytes as they \
                      are read; cat it into godwit cp -",
            ));
        }
        Ok((file, meta))
    }
}

/// Reads with `threads`, and with up to `most` if the receiver can take more at once.
fn read_by_many(
    lying: &LocalFile<'_>,
    left: Extents,
    threads: usize,
    most: usize,
    into: &dyn BlockWriter,
) -> Result<()> {
    let width = into.width();
    let left = Mutex::new(left);
    let is_over = || left.lock().is_empty();
    let work = || {
        let mut buffer = Buffer::take();
        let worked = loop {
            let block = width.map_or(LEAF_BYTES, |width| width.block_bytes());
            let next = left.lock().take_aligned(block);
            let Some(range) = next else { break Ok(()) };
            let put = into.put_from(lying, range, &mut buffer);
            if put.is_err() {
                // The read failed, so the other threads need not continue.
                *left.lock() = Extents::new();
                break put;
            }
        };
        width.inspect(|width| width.poke());
        worked
    };
    thread::scope(|scope| {
        let mut others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mine = match width.filter(|width| width.is_tuned()) {
            None => work(),
            Some(width) => {
                others.push(scope.spawn(work));
                while !is_over() {
                    let wanted = width.wait_beyond(others.len(), MORE_SOON).min(most);
                    others.extend((others.len()..wanted).map(|_| scope.spawn(work)));
                }
                Ok(())
            }
        };
        others.into_iter().fold(mine, |result, other| {
            result.and(
                other
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            )
        })
    })
}

fn read_in_order(
    mut left: Extents,
    mut each: impl FnMut(Range<u64>, &mut [u8]) -> Result<()>,
) -> Result<()> {
    if left.is_empty() {
        return Ok(());
    }
    let mut buffer = Buffer::take();
    while let Some(range) = left.take_aligned(LEAF_BYTES) {
        each(range, &mut buffer)?;
    }
    Ok(())
}

/// Returns the attributes of a file after a read, if they are those from before.
fn unchanged(path: &Path, file: &File, before: &Meta) -> Result<Meta> {
    let after = sys::meta(file).map_err(|e| wrong(path, e))?;
    let what = if after.size != before.size {
        "size"
    } else if after.mtime != before.mtime {
        "time of change"
    } else if after.ctime != before.ctime {
        "attributes"
    } else {
        return Ok(after);
    };
    Err(Error::changed(
        path,
        format!("its {what}, while it was read"),
    ))
}

const MORE_SOON: Duration = Duration::from_millis(100);
/// Less than this is not worth a thread.
const THREAD_WORTH_BYTES: u64 = 4 * LEAF_BYTES;
