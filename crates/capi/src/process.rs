//! State of this process that a forked child must not share.
//!
//! A forked child has the descriptors of its parent, and the parent's locks as they were then. The
//! child makes all state anew. It closes the parent's descriptors at once, so that the node sees
//! the parent end. Other state of the parent is never read again.

use crate::{
    failure::{Failure, Result},
    files::OpenFiles,
    ops::Ops,
    puts::Puts,
    shares::SharedDescriptors,
};
use godwit_local::{Owner, SharedConnection, program, who};
use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    ptr,
    sync::{
        Arc, Once,
        atomic::{AtomicI32, AtomicPtr, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// All that the library has in one process.
#[derive(Debug)]
pub(crate) struct Instance {
    process: u32,
    pub(crate) talk: SharedConnection,
    pub(crate) files: OpenFiles,
    pub(crate) ops: Ops,
    pub(crate) puts: Arc<Puts>,
    pub(crate) shared: SharedDescriptors,
}

static OURS: AtomicPtr<Instance> = AtomicPtr::new(ptr::null_mut());

/// Descriptors that a child closes.
#[derive(Clone, Copy)]
pub(crate) enum ChildDescriptor {
    Socket,
    News,
    Ready,
    Watch,
}

static KNOWN: [AtomicI32; 4] = [const { AtomicI32::new(-1) }; 4];

impl Instance {
    /// Returns that of this process, which is made by the first call.
    pub(crate) fn ours() -> Result<&'static Self> {
        if let Some(library) = Self::existing() {
            return Ok(library);
        }
        mind_children();
        let puts = Arc::default();
        let made = Box::into_raw(Box::new(Self {
            process: std::process::id(),
            talk: SharedConnection::new(OWNER).map_err(|error| no_descriptor(&error))?,
            files: OpenFiles::default(),
            ops: Ops::new(&puts),
            puts,
            shared: SharedDescriptors::default(),
        }));
        // What was there is a parent's, whose locks may be held by threads that are not here: it is left alone.
        let before = OURS.load(SeqCst);
        let is_theirs = match Self::at(before) {
            Some(library) => library.process != std::process::id(),
            None => true,
        };
        if is_theirs && OURS.compare_exchange(before, made, SeqCst, SeqCst).is_ok() {
            let library = Self::at(made).expect("it was made just now");
            remember(ChildDescriptor::News, &library.talk.news);
            remember(ChildDescriptor::Ready, &library.talk.ready);
            return Ok(library);
        }
        // SAFETY: no other thread has seen `made`; another thread was first.
        drop(unsafe { Box::from_raw(made) });
        Self::existing().ok_or_else(|| Failure::invalid("begin", "two threads began at once"))
    }

    /// Returns the state of this process, if there is one.
    pub(crate) fn existing() -> Option<&'static Self> {
        let library = Self::at(OURS.load(SeqCst))?;
        (library.process == std::process::id()).then_some(library)
    }

    fn at(library: *mut Self) -> Option<&'static Self> {
        // SAFETY: what is in OURS was made by Box::into_raw, and is never freed.
        unsafe { library.as_ref() }
    }
}

/// Notes a descriptor that a child is to close.
pub(crate) fn remember(which: ChildDescriptor, fd: &impl AsFd) {
    KNOWN[which as usize].store(fd.as_fd().as_raw_fd(), SeqCst);
}

/// Forgets it, before it is closed.
pub(crate) fn forget(which: ChildDescriptor) {
    KNOWN[which as usize].store(-1, SeqCst);
}

/// The process as it talks with the node; a child of it must not go on with that.
const OWNER: Owner = Owner {
    hello: |environment| who(&program(), environment),
    on_socket: |socket| match socket {
        None => forget(ChildDescriptor::Socket),
        Some(socket) => {
            remember(ChildDescriptor::Socket, &socket);
            watch_socket();
        }
    },
    session: None,
};

/// Returns what can be waited on for the connection and for what is ready; made by the first call.
pub(crate) fn watch(ready: BorrowedFd<'_>) -> Result<RawFd> {
    let known = KNOWN[ChildDescriptor::Watch as usize].load(SeqCst);
    if known >= 0 {
        return Ok(known);
    }
    // SAFETY: it has no arguments that could be wrong.
    let made = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if made < 0 {
        return Err(no_descriptor(&io::Error::last_os_error()));
    }
    let slot = &KNOWN[ChildDescriptor::Watch as usize];
    if let Err(other) = slot.compare_exchange(-1, made, SeqCst, SeqCst) {
        // SAFETY: it was made above, and no other code has it.
        unsafe { libc::close(made) };
        return Ok(other);
    }
    add(made, ready.as_raw_fd());
    watch_socket();
    Ok(made)
}

/// Has a new connection be waited for as well.
pub(crate) fn watch_socket() {
    let watch = KNOWN[ChildDescriptor::Watch as usize].load(SeqCst);
    let socket = KNOWN[ChildDescriptor::Socket as usize].load(SeqCst);
    if watch >= 0 && socket >= 0 {
        add(watch, socket);
    }
}

/// Has one that is over be no longer waited for: it would always be readable.
pub(crate) fn unwatch_socket() {
    let watch = KNOWN[ChildDescriptor::Watch as usize].load(SeqCst);
    let socket = KNOWN[ChildDescriptor::Socket as usize].load(SeqCst);
    if watch >= 0 && socket >= 0 {
        // SAFETY: numbers; a descriptor that is not in it is an error that changes nothing.
        unsafe { libc::epoll_ctl(watch, libc::EPOLL_CTL_DEL, socket, ptr::null_mut()) };
    }
}

fn add(watch: RawFd, fd: RawFd) {
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: 0,
    };
    // SAFETY: the event lives during the call. What is in it already stays.
    unsafe { libc::epoll_ctl(watch, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
}

/// Has something else be waited for as well.
pub(crate) fn watch_also(fd: &impl AsFd) {
    let watch = KNOWN[ChildDescriptor::Watch as usize].load(SeqCst);
    if watch >= 0 {
        add(watch, fd.as_fd().as_raw_fd());
    }
}

/// No more, before it is closed: a child may have it still.
pub(crate) fn watch_no_more(fd: &impl AsFd) {
    let watch = KNOWN[ChildDescriptor::Watch as usize].load(SeqCst);
    if watch >= 0 {
        let fd = fd.as_fd().as_raw_fd();
        // SAFETY: numbers; a descriptor that is not in it is an error that changes nothing.
        unsafe { libc::epoll_ctl(watch, libc::EPOLL_CTL_DEL, fd, ptr::null_mut()) };
    }
}

/// Returns what can be read when a file that is watched for it has grown.
pub(crate) fn grown() -> io::Result<OwnedFd> {
    // SAFETY: a number; the returned descriptor is ours alone.
    unsafe {
        let made = libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK);
        match made {
            -1 => Err(io::Error::last_os_error()),
            made => Ok(OwnedFd::from_raw_fd(made)),
        }
    }
}

/// Watches a file for that.
pub(crate) fn watch_growth(grown: &OwnedFd, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is a C string.
    let added =
        unsafe { libc::inotify_add_watch(grown.as_raw_fd(), path.as_ptr(), libc::IN_MODIFY) };
    match added {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Forgets what was heard of it until now.
pub(crate) fn hear(grown: &OwnedFd) {
    let mut space = [0u8; 4096];
    // SAFETY: the space is that long, and lives during the call. It does not block.
    while unsafe { libc::read(grown.as_raw_fd(), space.as_mut_ptr().cast(), space.len()) } > 0 {}
}

fn mind_children() {
    static ONCE: Once = Once::new();
    // SAFETY: the function does only what a child of a program with threads may do (fork(2)). The library is never
    // unloaded (build.rs).
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(be_born));
    });
}

/// In a child: closes what is its parent's.
extern "C" fn be_born() {
    OURS.store(ptr::null_mut(), SeqCst);
    for known in &KNOWN {
        let fd = known.swap(-1, SeqCst);
        if fd >= 0 {
            // SAFETY: it is the library's, of which nothing is left here that would use or close it.
            unsafe { libc::close(fd) };
        }
    }
}

/// At exit(3): what was put leaves the process, and the node has it: what is said as a socket closes may not be heard.
extern "C" fn leave() {
    let Some(library) = Instance::existing() else {
        return;
    };
    let left = catch_unwind(AssertUnwindSafe(|| {
        let mut ended = library.puts.leave(&library.talk);
        ended.extend(library.files.leave(&library.talk));
        let until = Instant::now() + LEAVING;
        for ticket in ended {
            let _ = library.talk.receive(ticket, Some(until));
        }
    }));
    drop(left); // no caller is left
}

/// How long the end of a program waits for a node that does not answer.
const LEAVING: Duration = Duration::from_secs(10);

#[used]
#[unsafe(link_section = ".fini_array")]
static LEAVE: extern "C" fn() = leave;

pub(crate) fn no_descriptor(error: &io::Error) -> Failure {
    Failure::system("begin to talk with the node of this machine", error)
}
