//! Safe functions over system calls: the only crate that may say `unsafe`.

mod wake;

pub use wake::{Wake, wait_readable};
