//! The door of FTP and GridFTP.

pub(crate) mod session;
mod stripes;
