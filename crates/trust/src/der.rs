//! Just enough DER to find an extension in a certificate and to read proxyCertInfo.
//!
//! The library reads certificates; its safe face does not show unknown extensions.
//! Definite lengths only, nothing copied, nothing believed beyond the bytes there are.

/// One element: its tag, its contents, and what follows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    pub(crate) tag: u8,
    pub(crate) contents: &'a [u8],
    pub(crate) rest: &'a [u8],
}

/// Reads the first element.
pub(crate) fn element(bytes: &[u8]) -> Option<Element<'_>> {
    let (&tag, bytes) = bytes.split_first()?;
    if tag & 0x1f == 0x1f {
        return None; // tags of several bytes: not in certificates
    }
    let (&first, mut bytes) = bytes.split_first()?;
    let length = match first {
        0..=0x7f => usize::from(first),
        0x81..=0x84 => {
            let (octets, rest) = bytes.split_at_checked(usize::from(first & 0x7f))?;
            bytes = rest;
            octets
                .iter()
                .fold(0, |sum, &octet| sum << 8 | usize::from(octet))
        }
        _ => return None,
    };
    let (contents, rest) = bytes.split_at_checked(length)?;
    Some(Element {
        tag,
        contents,
        rest,
    })
}

/// Reads the first element if it has that tag.
pub(crate) fn expect(bytes: &[u8], tag: u8) -> Option<Element<'_>> {
    element(bytes).filter(|element| element.tag == tag)
}

/// Returns the value of the extension `oid` (its DER contents) of a certificate.
pub(crate) fn extension<'a>(certificate: &'a [u8], oid: &[u8]) -> Option<&'a [u8]> {
    let certificate = expect(certificate, SEQUENCE)?;
    let mut fields = expect(certificate.contents, SEQUENCE)?.contents;
    let extensions = loop {
        let field = element(fields)?;
        if field.tag == EXTENSIONS {
            break expect(field.contents, SEQUENCE)?.contents;
        }
        fields = field.rest;
    };
    let mut left = extensions;
    while let Some(extension) = expect(left, SEQUENCE) {
        let name = expect(extension.contents, OBJECT)?;
        if name.contents == oid {
            // A BOOLEAN, if critical, precedes the value.
            let value = element(name.rest)?;
            return match value.tag {
                OCTETS => Some(value.contents),
                _ => Some(expect(value.rest, OCTETS)?.contents),
            };
        }
        left = extension.rest;
    }
    None
}

/// Writes one element; contents here are short.
pub(crate) fn write(tag: u8, contents: &[u8]) -> Vec<u8> {
    let length = u8::try_from(contents.len())
        .ok()
        .filter(|length| *length < 0x80)
        .expect("what we write ourselves is shorter than 128 bytes");
    [&[tag, length], contents].concat()
}

/// Returns the contents of an INTEGER that is not negative: as short as may be, its sign kept.
pub(crate) fn integer(number: i64) -> Vec<u8> {
    let bytes = number.max(0).to_be_bytes();
    let is_idle = |pair: &[u8]| pair[0] == 0 && pair[1] < 0x80;
    let from = bytes.windows(2).take_while(|pair| is_idle(pair)).count();
    bytes[from..].to_vec()
}

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const OCTETS: u8 = 0x04;
pub(crate) const OBJECT: u8 = 0x06;
pub(crate) const SEQUENCE: u8 = 0x30;
const EXTENSIONS: u8 = 0xa3;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_element_ends_where_it_says() {
        let read = element(&[0x30, 2, 5, 0, 9]).unwrap();
        assert_eq!(
            (read.tag, read.contents, read.rest),
            (0x30, &[5, 0][..], &[9][..])
        );
        let long = [vec![4, 0x81, 200], vec![7; 200]].concat();
        assert_eq!(element(&long).unwrap().contents.len(), 200);
        assert!(element(&[0x30, 3, 5, 0]).is_none());
        assert!(
            element(&[0x30, 0x80, 0, 0]).is_none(),
            "no indefinite lengths"
        );
    }

    #[test]
    fn integers_are_as_short_as_der_wants() {
        for (number, bytes) in [
            (0, &[0][..]),
            (127, &[127]),
            (128, &[0, 128]),
            (256, &[1, 0]),
            (-1, &[0]),
        ] {
            assert_eq!(integer(number), bytes);
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some(read) = element(&bytes) {
                prop_assert!(read.contents.len() + read.rest.len() < bytes.len());
            }
            extension(&bytes, &[0x2b]);
        }

        #[test]
        fn what_is_written_is_read(tag in 0u8..0x1f, contents in proptest::collection::vec(any::<u8>(), 0..127)) {
            let written = write(tag, &contents);
            let read = element(&written).unwrap();
            prop_assert_eq!((read.tag, read.contents), (tag, &contents[..]));
        }
    }
}
