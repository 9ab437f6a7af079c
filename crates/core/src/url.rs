//! Where bytes are.

/// The parts of a URL that name a store and a path in it.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct Url;
/// Text that is no URL.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("bad url")]
pub struct BadUrl;
/// A host.
#[derive(Debug)]
pub struct Host;
/// A name.
#[derive(Debug)]
pub struct Name;
/// A scheme.
#[derive(Debug)]
pub struct Scheme;
impl std::fmt::Display for Url {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        todo!()
    }
}
