//! Ranges of bytes as HTTP writes them, inclusive, and as we have them, half-open.

use super::{Error, Result};
use std::ops::Range;

/// The request of a `Range` header, for a file whose length is not known yet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Asked {
    /// From one offset to another, or to the end.
    From(u64, Option<u64>),
    /// The last bytes of the file, this many.
    Last(u64),
}

impl Asked {
    /// Reads the value of `Range`; `None` if it asks for something that is to be ignored: another
    /// unit, or several ranges (RFC 9110 §14.2 lets a server send all).
    pub fn read(text: &str) -> Result<Option<Self>> {
        let Some((unit, range)) = text.split_once('=') else {
            return Err(Error::BadRange("there is no '='"));
        };
        if !unit.trim().eq_ignore_ascii_case("bytes") || range.contains(',') {
            return Ok(None);
        }
        let (first, last) = range
            .trim()
            .split_once('-')
            .ok_or(Error::BadRange("there is no '-'"))?;
        match (first, last) {
            ("", last) => Ok(Some(Self::Last(number(last)?))),
            (first, "") => Ok(Some(Self::From(number(first)?, None))),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                let end = last.checked_add(1).filter(|&end| end > first);
                let end = end.ok_or(Error::BadRange("it ends before it begins"))?;
                Ok(Some(Self::From(first, Some(end))))
            }
        }
    }

    /// Returns which bytes of a file of that length are meant; `None`: there are none (416).
    pub fn of(&self, size: u64) -> Option<Range<u64>> {
        let range = match *self {
            Self::From(first, end) => first..end.unwrap_or(size).min(size),
            Self::Last(count) => size.saturating_sub(count)..size,
        };
        (!range.is_empty()).then_some(range)
    }
}

/// Writes the value of `Range`.
pub fn asking(range: &Range<u64>) -> String {
    assert!(!range.is_empty(), "HTTP has no words for no bytes");
    format!("bytes={}-{}", range.start, range.end - 1)
}

/// Writes the value of `Content-Range`.
pub fn content(range: &Range<u64>, size: Option<u64>) -> String {
    assert!(!range.is_empty(), "HTTP has no words for no bytes");
    let size = size.map_or_else(|| "*".into(), |size| size.to_string());
    format!("bytes {}-{}/{size}", range.start, range.end - 1)
}

/// Reads the value of `Content-Range`: which bytes these are, and of how many.
pub fn of_content(text: &str) -> Result<(Range<u64>, Option<u64>)> {
    let rest = text
        .strip_prefix("bytes ")
        .ok_or(Error::BadRange("the unit is not bytes"))?;
    let (range, size) = rest
        .split_once('/')
        .ok_or(Error::BadRange("there is no '/'"))?;
    let (first, last) = range
        .split_once('-')
        .ok_or(Error::BadRange("there is no '-'"))?;
    let (first, last) = (number(first)?, number(last)?);
    let end = last.checked_add(1).filter(|&end| end > first);
    let end = end.ok_or(Error::BadRange("it ends before it begins"))?;
    let size = match size {
        "*" => None,
        size => Some(number(size)?),
    };
    if size.is_some_and(|size| size < end) {
        return Err(Error::BadRange("it ends behind the end"));
    }
    Ok((first..end, size))
}

/// Digits only: `parse` would take a sign.
fn number(text: &str) -> Result<u64> {
    let text = text.trim();
    let is_digits = text.bytes().all(|b| b.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_digits);
    number.ok_or(Error::BadRange("not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_read() {
        let read = |text| Asked::read(text).unwrap().unwrap();
        assert_eq!(read("bytes=0-0").of(10), Some(0..1));
        assert_eq!(read("Bytes = 3-").of(10), Some(3..10));
        assert_eq!(read("bytes=-3").of(10), Some(7..10));
        assert_eq!(read("bytes=-30").of(10), Some(0..10));
        assert_eq!(read("bytes=5-100").of(10), Some(5..10));
        assert_eq!(read("bytes=10-").of(10), None);
        assert_eq!(read("bytes=-0").of(10), None);
    }

    #[test]
    fn bad_range_refused_foreign_unit_ignored() {
        assert_eq!(Asked::read("lines=1-2"), Ok(None));
        assert_eq!(Asked::read("bytes=0-1,5-6"), Ok(None));
        for text in [
            "bytes",
            "bytes=",
            "bytes=5",
            "bytes=5-4",
            "bytes=+1-2",
            "bytes=a-b",
            "bytes=0-18446744073709551615",
            "bytes=-",
            "bytes=0-99999999999999999999",
        ] {
            assert!(Asked::read(text).is_err(), "{text}");
        }
        for text in [
            "bytes 0-1",
            "bytes 5-4/10",
            "bytes 0-10/10",
            "bytes */10",
            "items 0-1/10",
            "bytes 0-18446744073709551615/*",
        ] {
            assert!(of_content(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn both_ways(start in 0..u64::MAX - 1, len in 1u64..1 << 40) {
            let range = start..start.saturating_add(len).min(u64::MAX - 1).max(start + 1);
            prop_assert_eq!(of_content(&content(&range, None)), Ok((range.clone(), None)));
            prop_assert_eq!(of_content(&content(&range, Some(range.end))), Ok((range.clone(), Some(range.end))));
            prop_assert_eq!(Asked::read(&asking(&range)).unwrap().unwrap().of(u64::MAX), Some(range));
        }

        #[test]
        fn nothing_panics(text in ".{0,40}") {
            let _ = (Asked::read(&text), of_content(&text));
        }
    }
}
