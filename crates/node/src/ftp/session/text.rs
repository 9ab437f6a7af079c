//! `TYPE A`: lines end in CR LF on the wire and in LF in files (RFC 959, 3.1.1.1).
//!
//! As GCT does, offsets (`REST`, `SIZE`) and digests are those of the file.

use godwit_core::Block;
use godwit_store::{BlockWriter, Result};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Writes each LF as CR LF, also after a CR, so that the reverse translation gives the file.
pub(super) struct ToWire<'a> {
    into: &'a dyn BlockWriter,
    sent_bytes: AtomicU64,
}

impl<'a> ToWire<'a> {
    pub(super) fn new(into: &'a dyn BlockWriter) -> Self {
        Self {
            into,
            sent_bytes: AtomicU64::default(),
        }
    }
}

impl BlockWriter for ToWire<'_> {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let mut text = Vec::with_capacity(block.bytes.len() + block.bytes.len() / 16);
        for line in block.bytes.split_inclusive(|&b| b == b'\n') {
            match line.strip_suffix(b"\n") {
                Some(line) => text.extend_from_slice(&[line, b"\r\n"].concat()),
                None => text.extend_from_slice(line),
            }
        }
        let offset = self.sent_bytes.fetch_add(text.len() as u64, Relaxed);
        let bytes = &text;
        self.into.put(Block { offset, bytes })
    }
}

/// Writes CR LF as LF. A CR before anything else stays.
pub(super) struct FromWire<'a> {
    into: &'a dyn BlockWriter,
    base: u64,
    state: Mutex<TextState>,
}

#[derive(Default)]
struct TextState {
    written_bytes: u64,
    /// The last byte was a CR, which is not written yet.
    after_cr: bool,
}

impl<'a> FromWire<'a> {
    /// Writes from offset `base` of the file.
    pub(super) fn new(into: &'a dyn BlockWriter, base: u64) -> Self {
        Self {
            into,
            base,
            state: Mutex::default(),
        }
    }

    /// Writes the bytes held back, and returns how many were written in all.
    pub(super) fn end(&self) -> Result<u64> {
        self.write(b"", true)?;
        Ok(self.state.lock().written_bytes)
    }

    fn write(&self, bytes: &[u8], is_end: bool) -> Result<()> {
        let mut state = self.state.lock();
        let mut text = Vec::with_capacity(bytes.len() + 1);
        for &byte in bytes {
            if state.after_cr && byte != b'\n' {
                text.push(b'\r');
            }
            state.after_cr = byte == b'\r';
            if !state.after_cr {
                text.push(byte);
            }
        }
        if is_end && std::mem::take(&mut state.after_cr) {
            text.push(b'\r');
        }
        let offset = self.base + state.written_bytes;
        state.written_bytes += text.len() as u64;
        drop(state);
        match &text[..] {
            [] => Ok(()),
            bytes => self.into.put(Block { offset, bytes }),
        }
    }
}

impl BlockWriter for FromWire<'_> {
    fn put(&self, block: Block<'_>) -> Result<()> {
        self.write(block.bytes, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps what comes, which must come in order.
    #[derive(Default)]
    struct KeptBytes(Mutex<Vec<u8>>);

    impl BlockWriter for KeptBytes {
        fn put(&self, block: Block<'_>) -> Result<()> {
            let mut kept = self.0.lock();
            assert_eq!(block.offset, kept.len() as u64);
            kept.extend(block.bytes);
            Ok(())
        }
    }

    fn put_all(into: &dyn BlockWriter, bytes: &[u8], size: usize) {
        let mut offset = 0;
        for bytes in bytes.chunks(size) {
            into.put(Block { offset, bytes }).unwrap();
            offset += bytes.len() as u64;
        }
    }

    #[test]
    fn text_comes_back_however_it_is_cut() {
        let letters = ['a', '\r', '\n'];
        for number in 0..3usize.pow(6) {
            let letter = |i: u32| letters[number / 3usize.pow(i) % 3];
            let text: String = (0..6).map(letter).collect();
            let (wire, cut) = (KeptBytes::default(), 1 + number % 5);
            put_all(&ToWire::new(&wire), text.as_bytes(), cut);
            let wire = wire.0.into_inner();
            assert_eq!(wire, text.replace('\n', "\r\n").into_bytes());
            for cut in 1..5 {
                let file = KeptBytes::default();
                let from = FromWire::new(&file, 0);
                put_all(&from, &wire, cut);
                assert_eq!(from.end().unwrap(), text.len() as u64);
                assert_eq!(file.0.into_inner(), text.as_bytes());
            }
        }
    }
}
