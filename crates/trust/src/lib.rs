//! Who speaks, and what they may do.
//!
//! A [`Channel`] is a conversation with somebody whose name was proved: tokens in, tokens
//! out, as GSI has them (TLS records and nothing else). Names come from X.509 certificates
//! and the proxies that people make of them (RFC 3820), judged by a directory of
//! [`Authorities`]; or a key proves that somebody is a member of our cluster. [`Kerberos`] is the same by a
//! ticket; what the two have in common is a [`Context`]. No socket here, no protocol that
//! carries the tokens, no account of this machine.

mod authorities;
mod channel;
mod cluster;
mod context;
mod credential;
mod der;
mod discover;
pub mod door;
mod error;
#[doc(hidden)]
pub mod feeds;
mod gridmap;
mod identity;
mod kept;
mod kerberos;
mod keys;
pub mod lab;
mod netrc;
mod passwords;
mod pattern;
mod peers;
mod policy;
mod proof;
mod proxy;
mod refusal;
mod rights;
mod when;

pub use authorities::Authorities;
pub use channel::{Channel, Delegate, Expect, Opened, Resumption, TOKEN_BYTES_MAX, record_bytes};
pub use cluster::new_key;
pub use credential::{Credential, KeyKind, NewProxy, Passphrase};
pub use discover::{host_key_file, owner_files, proxy_file};
pub use error::{Error, NoTicket, Ours, Result};
pub use godwit_sys::Wrapping;
pub use gridmap::Gridmap;
pub use identity::{Identity, is_name};
pub use kerberos::{Blocks, Blockwise, Kerberos};
pub use netrc::netrc_login;
pub use passwords::{Passwords, new_token, password_line, unguessable};
pub use peers::{
    AsOf, Home, INVITE_LIFETIME_MAX, Introduced, Invite, KeysSeen, Peer, PeerSeen, is_same_name,
};
pub use proof::{Context, Step};
pub use refusal::{LOG, hint_of};
pub use rights::{DEEDS, Decision, Deed, Rights, Rule, not_toml};
