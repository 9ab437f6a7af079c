//! Accounts of this machine, and becoming one of them for good.

#![allow(unsafe_code)] // each block says who guarantees what

use rustix::{
    fs::{Gid, Uid},
    io::Errno,
    process::{DumpableBehavior, set_dumpable_behavior},
    thread::{self, CapabilitySet, CapabilitySets},
};
use std::{
    ffi::{CStr, CString, OsStr},
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// An account: its number, and the groups it is in.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub struct UserAccount {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// All groups it is in, its own too.
    pub groups: Vec<u32>,
    /// Home directory and shell of the account, if the machine has them.
    pub home: Option<PathBuf>,
    pub shell: Option<PathBuf>,
}

impl UserAccount {
    /// Finds an account of the machine. An account without a name may be given by its number. Its
    /// only group then has the same number.
    pub fn find(name: &str) -> io::Result<Self> {
        let unknown = || {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("this machine knows no account {name}"),
            )
        };
        if !is_name(name) {
            return Err(unknown());
        }
        if let Some(user) = by_name(name)? {
            return Ok(user);
        }
        match name.bytes().all(|b| b.is_ascii_digit()) {
            true => Self::of_number(name.parse().map_err(|_| unknown())?),
            false => Err(unknown()),
        }
    }

    /// Finds an account by its number.
    pub fn of_number(uid: u32) -> io::Result<Self> {
        Ok(by_number(uid)?.unwrap_or_else(|| Self {
            name: uid.to_string(),
            uid,
            gid: uid,
            groups: vec![uid],
            home: None,
            shell: None,
        }))
    }

    /// Tells whether this account may enter a directory, by trying it in a thread of its own. Only root
    /// can find that out of another.
    pub fn may_enter(&self, dir: &Path) -> io::Result<bool> {
        let enter = || {
            let groups: Vec<Gid> = self.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
            let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
            thread::set_thread_groups(&groups)?;
            thread::set_thread_res_gid(gid, gid, gid)?;
            thread::set_thread_res_uid(uid, uid, uid)?;
            match fs::metadata(dir.join(".")) {
                Ok(_) => Ok(true),
                Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => Ok(false),
                Err(cause) => Err(cause),
            }
        };
        std::thread::scope(|scope| scope.spawn(enter).join())
            .unwrap_or_else(|_| Err(io::Error::other("the thread that tried it broke off")))
    }

    /// Returns the owner of a file.
    pub fn owner_of(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        Self::of_number(fs::metadata(path)?.uid())
    }
}

/// Makes this process run as another account for good, without capabilities;
/// root too is then an account as any other. Only root may, and only while
/// there is a single thread, because rights belong to threads.
pub fn drop_root(user: &UserAccount) -> io::Result<()> {
    alone()?;
    become_user(user)
}

/// Complains if there are other threads.
pub(super) fn alone() -> io::Result<()> {
    match fs::read_dir("/proc/self/task")?.count() {
        1 => Ok(()),
        _ => Err(io::Error::other(
            "other threads run already: only a process with one thread can divide its rights",
        )),
    }
}

pub(super) fn become_user(user: &UserAccount) -> io::Result<()> {
    let groups: Vec<Gid> = user.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        match thread::remove_capability_from_bounding_set(one) {
            Err(Errno::INVAL) => break, // behind the last one of this kernel
            // A root that may not do even this; the check below makes sure that no right returns.
            Err(Errno::PERM) => break,
            done => done?,
        }
    }
    // A process that is that account already keeps its groups: root of a user namespace may change
    // neither.
    let is_other = rustix::process::geteuid() != uid;
    if is_other {
        thread::set_thread_groups(&groups)?;
        thread::set_thread_res_gid(gid, gid, gid)?;
    }
    thread::clear_ambient_capability_set()?;
    if is_other {
        thread::set_thread_res_uid(uid, uid, uid)?;
    }
    keep_only(CapabilitySet::empty())?;
    thread::set_no_new_privs(true)?;
    // Other processes of the account must not read our memory.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let kept = thread::capabilities(None)?;
    let ids = (rustix::process::geteuid(), rustix::process::getegid());
    let is = ids == (uid, gid) || ids.0 == uid && !is_other;
    match is && (kept.effective | kept.permitted | kept.inheritable).is_empty() {
        true => Ok(()),
        false => Err(io::Error::other("rights could not be given up")),
    }
}

/// Gives up all capabilities but these, as far as there are any.
pub(super) fn keep_only(capabilities: CapabilitySet) -> io::Result<()> {
    let capabilities = capabilities & thread::capabilities(None)?.permitted;
    let sets = CapabilitySets {
        effective: capabilities,
        permitted: capabilities,
        inheritable: CapabilitySet::empty(),
    };
    Ok(thread::set_capabilities(None, sets)?)
}

/// Tells whether `name` is an account name that every lookup reads alike.
pub(super) fn is_name(name: &str) -> bool {
    let odd = |c: char| c.is_control() || matches!(c, '/' | ':' | ',' | ' ');
    !name.is_empty() && name.len() <= NAME_MAX && !name.starts_with('-') && !name.contains(odd)
}

fn by_name(name: &str) -> io::Result<Option<UserAccount>> {
    let name = CString::new(name)?;
    entry(
        |entry, buffer, found| {
            // SAFETY: the name ends in NUL; `entry`, `buffer` and `found` are
            // exclusively ours for the call, and the length is that of the buffer.
            unsafe {
                libc::getpwnam_r(
                    name.as_ptr(),
                    entry,
                    buffer.as_mut_ptr(),
                    buffer.len(),
                    found,
                )
            }
        },
        user,
    )
}

fn by_number(uid: u32) -> io::Result<Option<UserAccount>> {
    entry(
        |entry, buffer, found| {
            // SAFETY: as above.
            unsafe { libc::getpwuid_r(uid, entry, buffer.as_mut_ptr(), buffer.len(), found) }
        },
        user,
    )
}

/// Returns the name of an account, if its number has one.
pub fn user_name(uid: u32) -> io::Result<Option<String>> {
    entry(
        |entry, buffer, found| {
            // SAFETY: as above.
            unsafe { libc::getpwuid_r(uid, entry, buffer.as_mut_ptr(), buffer.len(), found) }
        },
        // SAFETY: what an entry points to ends in NUL.
        |entry: &libc::passwd| Ok(unsafe { text(entry.pw_name) }),
    )
}

/// Returns the name of a group, if its number has one.
pub fn group_name(gid: u32) -> io::Result<Option<String>> {
    entry(
        |entry, buffer, found| {
            // SAFETY: as above.
            unsafe { libc::getgrgid_r(gid, entry, buffer.as_mut_ptr(), buffer.len(), found) }
        },
        // SAFETY: as above.
        |entry: &libc::group| Ok(unsafe { text(entry.gr_name) }),
    )
}

/// Asks for an entry of the table of accounts or groups, with as large a buffer as it
/// takes, and reads it while the buffer is there.
fn entry<E, T>(
    ask: impl Fn(*mut E, &mut [libc::c_char], *mut *mut E) -> libc::c_int,
    read: impl FnOnce(&E) -> io::Result<T>,
) -> io::Result<Option<T>> {
    let mut buffer = vec![0; 1024];
    loop {
        let mut entry = std::mem::MaybeUninit::<E>::uninit();
        let mut found = std::ptr::null_mut();
        match ask(entry.as_mut_ptr(), &mut buffer, &mut found) {
            libc::ERANGE if buffer.len() < ENTRY_MAX => buffer.resize(buffer.len() * 4, 0),
            // Some systems report a missing entry so.
            0 | libc::ENOENT | libc::ESRCH if found.is_null() => return Ok(None),
            // SAFETY: it found something, so it has filled `entry`; what that points
            // to lies in `buffer`, which is still as it was.
            0 => return read(unsafe { entry.assume_init_ref() }).map(Some),
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

fn user(entry: &libc::passwd) -> io::Result<UserAccount> {
    // SAFETY: what an entry points to ends in NUL, if it is not null.
    let (name, home, shell) = unsafe {
        let name = CStr::from_ptr(entry.pw_name);
        (name, path(entry.pw_dir), path(entry.pw_shell))
    };
    Ok(UserAccount {
        name: name.to_string_lossy().into_owned(),
        uid: entry.pw_uid,
        gid: entry.pw_gid,
        groups: groups(name, entry.pw_gid)?,
        home,
        shell,
    })
}

/// Returns a text of an entry.
///
/// # Safety
///
/// The text ends in NUL.
unsafe fn text(field: *const libc::c_char) -> String {
    // SAFETY: the caller says so.
    let text = unsafe { CStr::from_ptr(field) };
    text.to_string_lossy().into_owned()
}

/// Returns the path in a field of an entry; `None` if the field is empty.
///
/// # Safety
///
/// The field is null, or points to text that ends in NUL.
unsafe fn path(field: *const libc::c_char) -> Option<PathBuf> {
    if field.is_null() {
        return None;
    }
    // SAFETY: the caller says so.
    let text = unsafe { CStr::from_ptr(field) }.to_bytes();
    (!text.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(text)))
}

/// Returns the groups that an account is in, `gid` too.
fn groups(name: &CStr, gid: u32) -> io::Result<Vec<u32>> {
    let mut groups = vec![0; 64];
    loop {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: the name ends in NUL, and `count` is as long as `groups` is.
        let fits =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
        if fits >= 0 {
            groups.truncate(usize::try_from(count).unwrap_or(0));
            return Ok(groups);
        }
        if groups.len() >= GROUPS_MAX {
            return Err(io::Error::other("the account is in too many groups"));
        }
        groups.resize(groups.len() * 4, 0);
    }
}

const NAME_MAX: usize = 255;
const ENTRY_MAX: usize = 1 << 20;
/// Linux allows no more.
const GROUPS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_name_and_number() {
        let root = UserAccount::find("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        assert!(root.home.as_ref().is_some_and(|home| home.is_absolute()));
        assert_eq!(UserAccount::of_number(0).unwrap(), root);
    }

    #[test]
    fn numbers_have_the_names_of_the_machine() {
        assert_eq!(user_name(0).unwrap().as_deref(), Some("root"));
        assert_eq!(group_name(0).unwrap().as_deref(), Some("root"));
        assert_eq!(user_name(3_999_999_999).unwrap(), None);
        assert_eq!(group_name(3_999_999_999).unwrap(), None);
    }

    #[test]
    fn nameless_account_is_alone_in_group() {
        let user = UserAccount::find("3999999999").unwrap();
        assert_eq!((user.uid, user.gid), (3_999_999_999, 3_999_999_999));
        assert_eq!(user.groups, [3_999_999_999]);
        assert_eq!((user.home, user.shell), (None, None));
    }

    #[test]
    fn what_is_no_name_is_no_account() {
        for name in [
            "",
            "no-such-account",
            "a:b",
            "../root",
            "-1",
            "root\n",
            "+1x",
        ] {
            let error = UserAccount::find(name).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{name:?}");
        }
    }
}
