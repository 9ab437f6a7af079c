//! Identity of peers, and their rights.
//!
//! A [`Channel`] is a context with a peer whose name was proved: tokens in, tokens out, as in GSI
//! (TLS records only). Names come from X.509 certificates and the proxies that users make of them
//! (RFC 3820). A directory of [`Authorities`] judges them. A key can prove that a peer is a member
//! of our cluster. [`Kerberos`] proves a name by a ticket; both are a [`Context`]. No socket here,
//! no protocol that carries the tokens, no account of this machine.

mod authorities;
mod channel;
mod cluster;
mod context;
mod credential;
mod dates;
mod der;
mod discover;
pub mod door;
mod error;
#[doc(hidden)]
pub mod feeds;
mod gridmap;
mod handshake;
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
pub use channel::{Channel, Delegate, Expect, Resumption, TOKEN_BYTES_MAX, Unsealed, record_bytes};
pub use cluster::new_key;
pub use credential::{Credential, KeyKind, NewProxy, Passphrase};
pub use discover::{host_key_file, owner_files, proxy_file};
pub use error::{CertificateOwner, Error, NoTicket, Result};
pub use godwit_sys::Wrapping;
pub use gridmap::Gridmap;
pub use identity::{Identity, is_name};
pub use kerberos::{Blocks, Blockwise, Kerberos};
pub use netrc::netrc_login;
pub use passwords::{Passwords, new_token, password_line, unguessable};
pub use peers::{
    AsOf, INVITE_LIFETIME_MAX, Introduced, Invite, KeysSeen, Peer, PeerSeen, PeersDir, is_same_name,
};
pub use proof::{Context, ContextStep};
pub use refusal::{LOG, hint_of};
pub use rights::{AccessRule, PERMISSIONS, Permission, Rights, Ruling, not_toml};
