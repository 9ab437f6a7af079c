//! Safe functions over system calls: the only crate that may say `unsafe`.
//!
//! Names are looked up beneath a held directory ([`Root`]), never by absolute path. So `..`, links
//! and races cannot lead out of an export. No code here knows the purpose of the files.

mod account;
mod append;
mod beneath;
mod buffer;
mod cage;
mod closes;
pub mod crash;
mod detached;
mod early;
mod folder;
mod given;
mod kerberos;
mod lease;
mod limits;
mod memory;
mod meta;
mod mounts;
mod names;
mod network;
mod passing;
mod program;
mod resume;
#[cfg(test)]
mod scratch;
mod secret;
mod sockets;
mod view;
mod wake;
mod why;
mod xattrs;

pub use account::{
    Account, Errand, ErrandResult, Steward, StewardRules, UserAccount, drop_root, group_name,
    user_name,
};
pub use append::{append_all, append_told};
pub use beneath::{Lookup, is_ring};
pub use buffer::{BUFFER_BYTES, Buffer};
pub use closes::{Closes, ClosesHeard, WatchId};
pub use detached::{end_detached, send_signal, start_detached};
pub use early::{begin_to_read, begin_to_sync};
pub use folder::{DirNames, DiskSpace, NameMeta, NewFile, NewFileRequest, OpenMode, Overwrite};
pub use given::{is_input_closed, is_output_closed};
pub use kerberos::{KerberosContext, KerberosNames, KerberosRefusal, Stepped, Unwrapped, Wrapping};
pub use lease::{Lease, Leased, Unless, lease};
pub use limits::{boot_id, ids, raise_open_files, user_id};
pub use memory::{is_sealed, memory, seal, unnamed};
pub use meta::{
    Attributes, FileKind, Meta, birth, locked_by, meta, next_data, punch, reserve_blocks, try_lock,
    unlock,
};
pub use mounts::{ended_within, mounted_from, unmount};
pub use names::{Folder, Root};
pub use network::{free_bytes, is_network_file_system};
pub use passing::{PASSED_MAX, PeerProcess, connect_local, peer_of, receive_passing, send_passing};
pub use program::{Program, ProgramLimits, ProgramOutput, RunningProgram, ended_by};
pub use resume::Agreed;
pub use secret::{ask_secret, is_typed};
pub use sockets::{
    Traffic, bound_unsent, buffer_sizes, connect, host_name, keep_urgent_in_line, listen_deep,
    may_write, names_of_this_machine, platform, reset_when_closed, retry_often, send_ahead,
    send_file, size_buffers, source_ip, spare_pacing, traffic,
};
pub use view::{View, ViewError, ViewStep, Viewed};
pub use wake::{Wake, end_waits_on_time, wait_any, wait_gone, wait_readable, wait_ready};
pub use why::why;
pub use xattrs::has_no_xattrs;
