//! What bytes hash to, by which algorithm.

/// A checksum or digest algorithm.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
#[allow(missing_docs)]
pub enum Algorithm {
    Blake3,
    Adler32,
    Md5,
    Sha1,
    Sha256,
    Sha512,
}

/// An algorithm and its value.
#[derive(Clone, Debug, Eq, PartialEq, Hash)]
pub struct Digest;

impl Digest {
    /// Returns the algorithm.
    pub fn algorithm(&self) -> Algorithm {
        todo!()
    }
}

/// A digest under construction, fed in order.
#[derive(Debug)]
pub struct Hashing;
