//! How wrappers pass on what they do not change.

/// Writes methods of `Store` and `Sink` that call the inner one of a wrapper. `before` is called first, with the name of
/// the method; an error of it is returned.
macro_rules! forward {
    ($self:ident, $inner:expr, $before:expr; $($verb:ident)+) => {
        $(forward!(@$verb $self, $inner, $before(stringify!($verb))?);)+
    };
    ($self:ident, $inner:expr; $($verb:ident)+) => {
        $(forward!(@$verb $self, $inner, ());)+
    };
    (@distance $self:ident, $inner:expr, $before:expr) => {
        fn distance(&$self) -> std::time::Duration { $before; $inner.distance() }
    };
    (@can $self:ident, $inner:expr, $before:expr) => {
        fn can(&$self) -> $crate::Result<$crate::Can> { $before; $inner.can() }
    };
    (@stat $self:ident, $inner:expr, $before:expr) => {
        fn stat(&$self, path: &std::path::Path) -> $crate::Result<$crate::Stat> { $before; $inner.stat(path) }
    };
    (@list $self:ident, $inner:expr, $before:expr) => {
        fn list(
            &$self,
            path: &std::path::Path,
            each: &mut dyn FnMut($crate::Entry) -> $crate::Result<()>,
        ) -> $crate::Result<()> { $before; $inner.list(path, each) }
    };
    (@remove $self:ident, $inner:expr, $before:expr) => {
        fn remove(&$self, path: &std::path::Path, what: $crate::What) -> $crate::Result<()> {
            $before; $inner.remove(path, what)
        }
    };
    (@rename $self:ident, $inner:expr, $before:expr) => {
        fn rename(&$self, from: &std::path::Path, to: &std::path::Path) -> $crate::Result<()> {
            $before; $inner.rename(from, to)
        }
    };
    (@mkdir $self:ident, $inner:expr, $before:expr) => {
        fn mkdir(&$self, path: &std::path::Path) -> $crate::Result<()> { $before; $inner.mkdir(path) }
    };
    (@set $self:ident, $inner:expr, $before:expr) => {
        fn set(&$self, path: &std::path::Path, set: &$crate::Set) -> $crate::Result<()> {
            $before; $inner.set(path, set)
        }
    };
    (@xattrs $self:ident, $inner:expr, $before:expr) => {
        fn xattrs(&$self, path: &std::path::Path) -> $crate::Result<$crate::Xattrs> { $before; $inner.xattrs(path) }
    };
    (@digest $self:ident, $inner:expr, $before:expr) => {
        fn digest(
            &$self,
            path: &std::path::Path,
            by: godwit_core::Algorithm,
            range: Option<std::ops::Range<u64>>,
        ) -> $crate::Result<godwit_core::Digest> { $before; $inner.digest(path, by, range) }
    };
    (@space $self:ident, $inner:expr, $before:expr) => {
        fn space(&$self, path: &std::path::Path) -> $crate::Result<$crate::Space> { $before; $inner.space(path) }
    };
    (@flush $self:ident, $inner:expr, $before:expr) => {
        fn flush(&$self, path: &std::path::Path) -> $crate::Result<()> { $before; $inner.flush(path) }
    };
    (@push $self:ident, $inner:expr, $before:expr) => {
        fn push(&$self, path: &std::path::Path) -> $crate::Result<()> { $before; $inner.push(path) }
    };
    (@push_watched $self:ident, $inner:expr, $before:expr) => {
        fn push_watched(&$self, path: &std::path::Path, watch: &$crate::channel::Watch) -> $crate::Result<()> {
            $before; $inner.push_watched(path, watch)
        }
    };
    (@became $self:ident, $inner:expr, $before:expr) => {
        fn became(&$self, path: &std::path::Path, id: &str) -> $crate::Result<Option<godwit_core::Version>> {
            $before; $inner.became(path, id)
        }
    };
    (@said $self:ident, $inner:expr, $before:expr) => {
        fn said(&$self, leaf: u64, chain: godwit_core::Chain) -> $crate::Result<()> { $before; $inner.said(leaf, chain) }
    };
    (@newly_whole $self:ident, $inner:expr, $before:expr) => {
        fn newly_whole(&$self, count_max: usize) -> Vec<(u64, godwit_core::Chain)> {
            $before; $inner.newly_whole(count_max)
        }
    };
    (@done $self:ident, $inner:expr, $before:expr) => {
        fn done(&$self) -> godwit_core::Extents { $before; $inner.done() }
    };
    (@unseen $self:ident, $inner:expr, $before:expr) => {
        fn unseen(&$self) -> godwit_core::Extents { $before; $inner.unseen() }
    };
    (@show $self:ident, $inner:expr, $before:expr) => {
        fn show(&$self, block: godwit_core::Block<'_>) -> $crate::Result<()> { $before; $inner.show(block) }
    };
    (@is_in_place $self:ident, $inner:expr, $before:expr) => {
        fn is_in_place(&$self) -> bool { $before; $inner.is_in_place() }
    };
    (@settle $self:ident, $inner:expr, $before:expr) => {
        fn settle(&$self) -> $crate::Result<godwit_core::Extents> { $before; $inner.settle() }
    };
    (@commit $self:ident, $inner:expr, $before:expr) => {
        fn commit(&$self) -> $crate::Result<godwit_core::Extents> { $before; $inner.commit() }
    };
    (@abandon $self:ident, $inner:expr, $before:expr) => {
        fn abandon($self: Box<Self>) -> $crate::Result<()> { $before; $inner.abandon() }
    };
}

pub(crate) use forward;
