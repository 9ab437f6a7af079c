//! Macros with which wrappers forward the methods that they do not change.

/// Writes methods that call those of the store or sink behind a wrapper. `before` is called first, with the name of
/// the method; an error of it is returned.
#[macro_export]
macro_rules! forward {
    ($self:ident, $inner:expr, $before:expr; $($verb:ident)+) => {
        $($crate::forward!(@$verb $self, $inner, $before(stringify!($verb))?);)+
    };
    ($self:ident, $inner:expr; $($verb:ident)+) => { $($crate::forward!(@$verb $self, $inner, ());)+ };
    (=> $self:ident, $inner:expr, $before:expr; $verb:ident($($arg:ident: $of:ty),*) -> $is:ty) => {
        fn $verb(&$self $(, $arg: $of)*) -> $is { $before; $inner.$verb($($arg),*) }
    };
    (@can $($to:tt)*) => { $crate::forward!(=> $($to)*; can() -> $crate::Result<$crate::Capabilities>); };
    (@stat $($to:tt)*) => {
        $crate::forward!(=> $($to)*; stat(path: &::std::path::Path) -> $crate::Result<$crate::Stat>);
    };
    (@list $($to:tt)*) => {
        $crate::forward!(=> $($to)*; list(
            path: &::std::path::Path, each: &mut dyn FnMut($crate::Entry) -> $crate::Result<()>
        ) -> $crate::Result<()>);
    };
    (@read $($to:tt)*) => {
        $crate::forward!(=> $($to)*; read(
            path: &::std::path::Path, want: &$crate::Extents, streams: usize, into: &dyn $crate::BlockWriter
        ) -> $crate::Result<$crate::Read>);
    };
    (@write $($to:tt)*) => {
        $crate::forward!(=> $($to)*; write(
            path: &::std::path::Path, write: &$crate::Write<'_>
        ) -> $crate::Result<Box<dyn $crate::Sink>>);
    };
    (@remove $($to:tt)*) => {
        $crate::forward!(=> $($to)*; remove(path: &::std::path::Path, what: $crate::RemovalKind) -> $crate::Result<()>);
    };
    (@rename $($to:tt)*) => {
        $crate::forward!(=> $($to)*; rename(from: &::std::path::Path, to: &::std::path::Path) -> $crate::Result<()>);
    };
    (@mkdir $($to:tt)*) => { $crate::forward!(=> $($to)*; mkdir(path: &::std::path::Path) -> $crate::Result<()>); };
    (@set $($to:tt)*) => {
        $crate::forward!(=> $($to)*; set(path: &::std::path::Path, set: &$crate::Set) -> $crate::Result<()>);
    };
    (@digest $($to:tt)*) => {
        $crate::forward!(=> $($to)*; digest(
            path: &::std::path::Path, by: $crate::Algorithm, range: Option<::std::ops::Range<u64>>
        ) -> $crate::Result<$crate::Digest>);
    };
    (@facets $($to:tt)*) => { $crate::forward!(=> $($to)*; facets() -> $crate::Facets<'_>); };
    (@flush $($to:tt)*) => { $crate::forward!(=> $($to)*; flush(path: &::std::path::Path) -> $crate::Result<()>); };
    (@push $($to:tt)*) => {
        $crate::forward!(=> $($to)*; push(
            path: &::std::path::Path, watch: Option<&$crate::channel::Watch>
        ) -> $crate::Result<()>);
    };
    (@published_as $($to:tt)*) => {
        $crate::forward!(=> $($to)*; published_as(
            path: &::std::path::Path, id: &str
        ) -> $crate::Result<Option<$crate::Version>>);
    };
    (@trace $($to:tt)*) => {
        $crate::forward!(=> $($to)*; trace(
            path: &::std::path::Path, passed: &[String]
        ) -> $crate::Result<Vec<$crate::HopStatus>>);
    };
    (@decide $($to:tt)*) => {
        $crate::forward!(=> $($to)*; decide(
            path: &::std::path::Path, what: $crate::Remedy, passed: &[String]
        ) -> $crate::Result<()>);
    };
    (@xattrs $($to:tt)*) => {
        $crate::forward!(=> $($to)*; xattrs(path: &::std::path::Path) -> $crate::Result<$crate::Xattrs>);
    };
    (@space $($to:tt)*) => {
        $crate::forward!(=> $($to)*; space(path: &::std::path::Path) -> $crate::Result<$crate::Space>);
    };
    (@said $($to:tt)*) => {
        $crate::forward!(=> $($to)*; said(leaf: u64, chain: $crate::Chain) -> $crate::Result<()>);
    };
    (@done $($to:tt)*) => { $crate::forward!(=> $($to)*; done() -> $crate::Extents); };
    (@settle $($to:tt)*) => { $crate::forward!(=> $($to)*; settle() -> $crate::Result<$crate::Extents>); };
    (@commit $($to:tt)*) => { $crate::forward!(=> $($to)*; commit() -> $crate::Result<$crate::Extents>); };
    (@finish $self:ident, $inner:expr, $before:expr) => {
        fn finish($self: Box<Self>, whole: &$crate::Expected) -> $crate::Result<$crate::Finished> {
            $before; $inner.finish(whole)
        }
    };
    (@abandon $self:ident, $inner:expr, $before:expr) => {
        fn abandon($self: Box<Self>) -> $crate::Result<()> { $before; $inner.abandon() }
    };
    (@sink_facets $self:ident, $inner:expr, $before:expr) => {
        fn facets(&$self) -> $crate::SinkFacets<'_> { $inner.facets() }
    };
}

/// Writes the method that returns the facets of a store or sink, or a receiver's faster ways. A wrapper has its own,
/// and the rest of the wrapped one.
#[macro_export]
macro_rules! has {
    ($self:ident, Fast) => {
        fn fast(&$self) -> Option<&dyn $crate::Fast> { Some($self) }
    };
    ($self:ident, $of:ident: $($facet:ident)*) => { $crate::has!($self, $of: $($facet)*; $crate::$of::default()); };
    ($self:ident, $of:ident: $($facet:ident)*; $rest:expr) => {
        #[allow(clippy::needless_update)]
        fn facets(&$self) -> $crate::$of<'_> { $crate::$of { $($facet: Some($self),)* ..$rest } }
    };
}
