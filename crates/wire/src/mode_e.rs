//! Extended block mode (GFD.20 §3, MODE E): blocks with an offset.
//!
//! A block is a header of 17 bytes (flags, count, offset, big-endian) and `count`
//! bytes of payload. Blocks of one file may arrive over many connections, in any order. This module knows no socket,
//! nor the number of connections.

use crate::{Error, Result};
use std::ops::Range;

/// How long a header is.
pub const HEADER_BYTES: usize = 17;

/// The header in front of each block.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Header {
    /// The content of the block.
    pub what: BlockContent,
    /// This was the last block of this transfer on this connection.
    pub end_of_data: bool,
    /// The sender will close the connection; it cannot be used again.
    pub close: bool,
}

/// The content of a block.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BlockContent {
    /// Bytes of the file; the range may be empty (a mere end of data).
    Data(Range<u64>),
    /// No bytes; the offset field says how many connections will end.
    EndOfFile {
        /// How many ends of data there are in this transfer, on all connections.
        ends: u64,
    },
}

impl Header {
    /// Returns the header of a block with bytes of the file.
    pub fn data(range: Range<u64>) -> Self {
        Self {
            what: BlockContent::Data(range),
            end_of_data: false,
            close: false,
        }
    }

    /// Returns the header that ends a connection's part of a transfer.
    pub fn end_of_data() -> Self {
        Self {
            what: BlockContent::Data(0..0),
            end_of_data: true,
            close: false,
        }
    }

    /// Returns the header that ends a connection's part and announces how many do so.
    pub fn end_of_file(ends: u64) -> Self {
        Self {
            what: BlockContent::EndOfFile { ends },
            end_of_data: true,
            close: false,
        }
    }

    /// Returns the header as it is on the wire.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut flags = 0;
        let (count, offset) = match &self.what {
            BlockContent::Data(range) => (range.end - range.start, range.start),
            BlockContent::EndOfFile { ends } => {
                flags |= EOF;
                (0, *ends)
            }
        };
        flags |= if self.end_of_data { EOD } else { 0 };
        flags |= if self.close { CLOSE } else { 0 };
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = flags;
        bytes[1..9].copy_from_slice(&count.to_be_bytes());
        bytes[9..].copy_from_slice(&offset.to_be_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// Flags that GCT never sends (suspect data, restart marker, end of record) are refused: to ignore their meaning
    /// would store wrong bytes.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self> {
        let [flags, numbers @ ..] = bytes;
        let (count, offset) = (number(&numbers[..8]), number(&numbers[8..]));
        if flags & !(EOF | EOD | CLOSE) != 0 {
            return Err(bad(format!("unknown flags 0x{flags:02x}")));
        }
        // GCT: the count of an EOF block means nothing and no payload follows.
        let what = if flags & EOF != 0 {
            BlockContent::EndOfFile { ends: offset }
        } else {
            let end = offset.checked_add(count).ok_or_else(|| {
                bad(format!(
                    "{count} bytes at offset {offset} end beyond what can be counted"
                ))
            })?;
            BlockContent::Data(offset..end)
        };
        Ok(Self {
            what,
            end_of_data: flags & EOD != 0,
            close: flags & CLOSE != 0,
        })
    }
}

/// Counts the ends of one transfer, over all its connections.
///
/// The block with the count of ends may overtake data and ends on other connections. Both are therefore counted and
/// compared.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StreamEnds {
    ended: u64,
    announced: Option<u64>,
}

impl StreamEnds {
    /// Takes a header that arrived on any connection.
    pub fn on_header(&mut self, header: &Header) -> Result<()> {
        if let BlockContent::EndOfFile { ends } = header.what {
            if self.announced.is_some() {
                return Err(bad("a second end of file".into()));
            }
            if ends == 0 {
                return Err(bad("an end of file of no connection".into()));
            }
            self.announced = Some(ends);
        }
        self.ended += u64::from(header.end_of_data);
        match self.announced {
            Some(ends) if self.ended > ends => Err(bad(format!(
                "{} connections ended, {ends} were announced",
                self.ended
            ))),
            _ => Ok(()),
        }
    }

    /// Tells whether all ends have arrived.
    pub fn is_complete(&self) -> bool {
        self.announced == Some(self.ended)
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, &b| n << 8 | u64::from(b))
}

fn bad(why: String) -> Error {
    Error::BadBlock { why }
}

// GFD.20 §3.2; the values are those of GCT, seen on the wire.
const EOF: u8 = 0x40;
const EOD: u8 = 0x08;
const CLOSE: u8 = 0x04;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> impl Strategy<Value = Header> {
        let what = prop_oneof![
            (any::<u64>(), 0..5000u64).prop_filter_map("fits", |(at, n)| Some(BlockContent::Data(
                at..at.checked_add(n)?
            ))),
            any::<u64>().prop_map(|ends| BlockContent::EndOfFile { ends }),
        ];
        (what, any::<bool>(), any::<bool>()).prop_map(|(what, end_of_data, close)| Header {
            what,
            end_of_data,
            close,
        })
    }

    proptest! {
        #[test]
        fn a_header_reads_as_it_was_written(header in header()) {
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn any_header_is_read_or_refused(bytes in any::<[u8; HEADER_BYTES]>()) {
            if let Ok(header) = Header::decode(&bytes) {
                let again = Header::decode(&header.encode());
                prop_assert_eq!(again, Ok(header));
            }
        }

        #[test]
        fn transfer_completes_with_its_last_end(
            ends in 1..20u64,
            at in any::<prop::sample::Index>(),
            apart in any::<bool>(),
        ) {
            let mut headers = vec![Header::end_of_data(); ends as usize];
            let at = at.index(headers.len());
            headers[at] = Header::end_of_file(ends);
            if apart {
                headers[at].end_of_data = false;
                headers.push(Header::end_of_data());
            }
            let mut count = StreamEnds::default();
            for header in &headers {
                prop_assert!(!count.is_complete());
                count.on_header(header).unwrap();
            }
            prop_assert!(count.is_complete());
            prop_assert!(count.on_header(&Header::end_of_data()).is_err());
        }
    }

    /// Bytes as GCT 13.24 sent them for a file of 700000 bytes over two connections.
    #[test]
    fn gct_last_block_has_connection_count() {
        let mut bytes = [0; HEADER_BYTES];
        (bytes[0], bytes[16]) = (0x48, 2);
        let header = Header::decode(&bytes).unwrap();
        assert_eq!(header, Header::end_of_file(2));
        assert_eq!(Header::end_of_data().encode()[0], 0x08);
    }

    #[test]
    fn hostile_headers_are_refused() {
        let mut bytes = Header::data(u64::MAX - 5..u64::MAX).encode();
        assert!(Header::decode(&bytes).is_ok());
        bytes[8] += 1;
        assert!(Header::decode(&bytes).is_err(), "overflow");
        for flag in [0x80, 0x20, 0x10, 0x02, 0x01] {
            let mut bytes = Header::end_of_data().encode();
            bytes[0] |= flag;
            assert!(Header::decode(&bytes).is_err(), "flag {flag:#x}");
        }
        let mut ends = StreamEnds::default();
        ends.on_header(&Header::end_of_file(3)).unwrap();
        assert!(ends.clone().on_header(&Header::end_of_file(3)).is_err());
        assert!(
            StreamEnds::default()
                .on_header(&Header::end_of_file(0))
                .is_err()
        );
    }
}
