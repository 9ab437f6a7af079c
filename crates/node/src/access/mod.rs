//! Access control: accounts, rights, the export, catalogs, and the connections to other servers.

pub(crate) mod account_call;
pub(crate) mod accounts;
pub(crate) mod connect;
pub(crate) mod export;
pub(crate) mod guarded;
mod members;
pub(crate) mod names;
pub(crate) mod obeyed;
pub(crate) mod site;
pub(crate) mod trust;
