//! Ids of entries.

use std::{fmt, str::FromStr};

/// The id of an entry. No id is used twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Id([u8; 12]);

impl Id {
    pub(crate) fn of(bytes: [u8; 12]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(self) -> [u8; 12] {
        self.0
    }

    /// Returns an odd number that is made of it.
    pub(crate) fn low(self) -> u64 {
        let mut low = [0; 8];
        low.copy_from_slice(&self.0[4..]);
        u64::from_be_bytes(low) | 1
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Id {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let digits = text.as_bytes();
        let is_hex = |b: &u8| b.is_ascii_digit() || (b'a'..=b'f').contains(b);
        if digits.len() != 24 || !digits.iter().all(is_hex) {
            return Err(());
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| ())?;
        let bytes = number.to_be_bytes();
        bytes[4..].try_into().map(Self).map_err(|_| ())
    }
}
