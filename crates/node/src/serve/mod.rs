//! A node as a process: its listeners, its configuration read again, one client of `ssh`.

pub(crate) mod listener;
pub(crate) mod reload;
pub(crate) mod stdio;
