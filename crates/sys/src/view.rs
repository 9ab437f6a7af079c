//! Runs a program with its own view of the machine's files, in which a directory is served through
//! FUSE.
//!
//! The program becomes a child in new namespaces: of mounts, and of users unless the user is root.
//! There uid and gid stay. Between fork and exec nothing is allocated: all names are made before.

use crate::send_passing;
use rustix::{
    fs::{Mode, OFlags},
    mount::{MountFlags, MountPropagationFlags, UnmountFlags},
    process::{Signal, getegid, geteuid, pivot_root, set_parent_process_death_signal},
    thread::UnshareFlags,
};
use std::{
    ffi::{CStr, CString, OsStr},
    fs,
    io::{self, Write},
    net::Shutdown,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::FileTypeExt,
            net::UnixStream,
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command},
    thread::{self, JoinHandle},
};

/// A root with one more directory, for a program that is to be started.
#[derive(Debug)]
pub struct View {
    /// The name of the mounted directory, in the root.
    mount: CString,
    /// The entries of a root that is made for this; `None`: the directory is there, and is mounted on.
    root: Option<Vec<RootEntry>>,
    /// Any directory; the root is made there.
    base: CString,
    directory: CString,
    uid_map: Vec<u8>,
    gid_map: Vec<u8>,
}

/// One entry of the root.
#[derive(Debug)]
struct RootEntry {
    name: CString,
    beneath_old: CString,
    kind: EntryIs,
}

#[derive(Debug)]
enum EntryIs {
    Directory,
    Link(CString),
    Other,
}

/// A program that was started with a view.
#[derive(Debug)]
pub struct Viewed<T> {
    /// The program.
    pub child: Child,
    /// The name of the view, as the kernel has it.
    space: PathBuf,
    /// The thread that serves FUSE, until nothing has the view any more.
    pub served: JoinHandle<Result<T, ViewStep>>,
}

/// The steps of entering a view.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ViewStep {
    /// Namespaces of its own.
    Namespaces,
    /// A root of its own.
    Root,
    /// The device of FUSE.
    Device,
    /// A mount of FUSE.
    Mount,
    /// The working directory where it was.
    Directory,
    /// The program itself was not started.
    Program,
}

/// Why a program was not started.
#[derive(Debug)]
pub struct ViewError {
    /// The step that failed.
    pub step: ViewStep,
    /// Why.
    pub error: io::Error,
}

impl View {
    /// Prepares a view whose root has a directory `name` that is served through FUSE.
    pub fn new(name: &str) -> io::Result<Self> {
        let mount = CString::new(format!("/{name}"))?;
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        let is_there = fs::symlink_metadata(OsStr::from_bytes(mount.as_bytes()))
            .is_ok_and(|meta| meta.is_dir());
        let entries = entries()?;
        let base = entries.iter().find_map(|entry| match entry.kind {
            EntryIs::Directory => Some(entry.name.clone()),
            _ => None,
        });
        let directory = std::env::current_dir()?.into_os_string().into_vec();
        Ok(Self {
            mount,
            root: (!is_there).then_some(entries),
            base: base.ok_or(io::ErrorKind::NotFound)?,
            directory: CString::new(directory)?,
            uid_map: format!("{uid} {uid} 1").into_bytes(),
            gid_map: format!("{gid} {gid} 1").into_bytes(),
        })
    }

    /// Starts a program with this view. A thread serves FUSE by the descriptor that `serve` receives, before the
    /// program begins. The program is killed when the thread that calls this ends.
    pub fn start<T: Send + 'static>(
        self,
        command: &mut Command,
        serve: impl FnOnce(OwnedFd) -> T + Send + 'static,
    ) -> Result<Viewed<T>, ViewError> {
        let failed = |error| ViewError {
            step: ViewStep::Program,
            error,
        };
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let end = ours.try_clone().map_err(failed)?;
        let enter = move || self.enter(&theirs);
        // SAFETY: between fork and exec there is one thread; `enter` makes system calls, and allocates nothing.
        #[allow(unsafe_code)]
        let command = unsafe { command.pre_exec(enter) };
        let hear = move || {
            let (mut came, mut step) = (Vec::new(), [0]);
            let heard = crate::receive_passing(&ours, &mut step, &mut came);
            match (heard, came.pop()) {
                (Ok(1), Some(device)) => Ok(serve(device)),
                (Ok(1), None) => Err(step_of(step[0])),
                _ => Err(ViewStep::Program),
            }
        };
        let served = thread::Builder::new().name("fuse".into()).spawn(hear);
        let served = served.map_err(failed)?;
        match command.spawn() {
            Ok(child) => Ok(Viewed {
                space: space_of(&child.id().to_string()).unwrap_or_default(),
                child,
                served,
            }),
            Err(error) => {
                // A child that never began says nothing.
                let _ = end.shutdown(Shutdown::Both);
                let step = served.join().ok().and_then(Result::err);
                Err(ViewError {
                    step: step.unwrap_or(ViewStep::Program),
                    error,
                })
            }
        }
    }

    /// Enters the view, in the child, and passes the descriptor of FUSE, or what failed.
    fn enter(&self, socket: &UnixStream) -> io::Result<()> {
        match self.steps(socket) {
            Ok(()) => Ok(()),
            Err((step, error)) => {
                let _ = send_passing(socket, &[step as u8], &[]);
                Err(error.into())
            }
        }
    }

    fn steps(&self, socket: &UnixStream) -> Result<(), (ViewStep, rustix::io::Errno)> {
        let at = |step| move |error| (step, error);
        self.unshare().map_err(at(ViewStep::Namespaces))?;
        if let Some(entries) = &self.root {
            self.make_root(entries).map_err(at(ViewStep::Root))?;
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let device = rustix::fs::open(c"/dev/fuse", flags, Mode::empty());
        let device = device.map_err(at(ViewStep::Device))?;
        self.mount(&device).map_err(at(ViewStep::Mount))?;
        if self.root.is_some() {
            let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID;
            let _ = rustix::mount::mount_remount(c"/", flags | MountFlags::NODEV, c"");
        }
        rustix::process::chdir(&*self.directory).map_err(at(ViewStep::Directory))?;
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(at(ViewStep::Program))?;
        match send_passing(socket, &[0], &[device.as_fd()]) {
            Ok(_) => Ok(()),
            Err(_) => Err((ViewStep::Mount, rustix::io::Errno::IO)),
        }
    }

    fn unshare(&self) -> rustix::io::Result<()> {
        let unshare = |flags| {
            // SAFETY: the table of descriptors stays shared.
            #[allow(unsafe_code)]
            unsafe {
                rustix::thread::unshare_unsafe(flags)
            }
        };
        let is_root = geteuid().is_root() && unshare(UnshareFlags::NEWNS).is_ok();
        if !is_root {
            unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
            // Kernels before 3.19 have no such file.
            let _ = write_to(c"/proc/self/setgroups", b"deny");
            write_to(c"/proc/self/uid_map", &self.uid_map)?;
            write_to(c"/proc/self/gid_map", &self.gid_map)?;
        }
        let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        rustix::mount::mount_change(c"/", flags)
    }

    /// Makes a root in memory, with each entry of the old one, and one more.
    fn make_root(&self, entries: &[RootEntry]) -> rustix::io::Result<()> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount(c"tmpfs", &*self.base, c"tmpfs", flags, c"mode=755,size=1m")?;
        rustix::process::chdir(&*self.base)?;
        rustix::fs::mkdir(c".old", Mode::from_raw_mode(0o755))?;
        pivot_root(c".", c".old")?;
        rustix::process::chdir(c"/")?;
        for entry in entries {
            entry.bind();
        }
        rustix::fs::mkdir(&*self.mount, Mode::from_raw_mode(0o755))?;
        rustix::mount::unmount(c"/.old", UnmountFlags::DETACH)?;
        let _ = rustix::fs::rmdir(c"/.old");
        Ok(())
    }

    fn mount(&self, device: &OwnedFd) -> rustix::io::Result<()> {
        let mut space = [0; 128];
        let mut rest = &mut space[..];
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        let fd = device.as_raw_fd();
        let options = "rootmode=40000,max_read=1048576";
        let written = write!(rest, "fd={fd},{options},user_id={uid},group_id={gid}\0");
        written.map_err(|_| rustix::io::Errno::OVERFLOW)?;
        let data = CStr::from_bytes_until_nul(&space).map_err(|_| rustix::io::Errno::OVERFLOW)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount(c"godwit", &*self.mount, c"fuse.godwit", flags, data)
    }
}

impl<T> Viewed<T> {
    /// Returns what ends all programs that have the view.
    pub fn killer(&self) -> impl FnOnce() + Send + 'static {
        let space = self.space.clone();
        move || while kill_in(&space).is_ok_and(|killed| killed > 0) {}
    }
}

/// Kills the processes of a namespace of mounts, and returns how many there were.
fn kill_in(space: &Path) -> io::Result<usize> {
    let mut killed = 0;
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse::<u32>().ok());
        let (Some(name), Some(pid)) = (name.to_str(), pid) else {
            continue;
        };
        if space_of(name).is_ok_and(|of| of == space) {
            crate::send_signal(pid, Signal::KILL.as_raw())?;
            killed += 1;
        }
    }
    Ok(killed)
}

fn space_of(process: &str) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/mnt"))
}

impl RootEntry {
    /// Shows an entry of the old root in the new one. One that cannot be bound is not seen.
    fn bind(&self) {
        let mode = Mode::from_raw_mode(0o755);
        let _ = match &self.kind {
            EntryIs::Link(to) => rustix::fs::symlink(&**to, &*self.name),
            EntryIs::Directory => rustix::fs::mkdir(&*self.name, mode).and_then(|()| {
                rustix::mount::mount_bind_recursive(&*self.beneath_old, &*self.name)
            }),
            EntryIs::Other => {
                let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
                rustix::fs::open(&*self.name, flags, mode)
                    .and_then(|_| rustix::mount::mount_bind(&*self.beneath_old, &*self.name))
            }
        };
    }
}

/// Returns the entries of the root.
fn entries() -> io::Result<Vec<RootEntry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir("/")? {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        if kind.is_fifo() || kind.is_socket() {
            continue;
        }
        let kind = match (kind.is_dir(), kind.is_symlink()) {
            (true, _) => EntryIs::Directory,
            (_, true) => EntryIs::Link(c_name(b"", &fs::read_link(entry.path())?)?),
            _ => EntryIs::Other,
        };
        entries.push(RootEntry {
            beneath_old: c_name(b"/.old/", Path::new(&name))?,
            name: c_name(b"/", Path::new(&name))?,
            kind,
        });
    }
    Ok(entries)
}

fn c_name(before: &[u8], name: &Path) -> io::Result<CString> {
    Ok(CString::new(
        [before, name.as_os_str().as_bytes()].concat(),
    )?)
}

fn write_to(path: &CStr, bytes: &[u8]) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    rustix::io::write(&file, bytes).map(drop)
}

/// Returns the step of a number that the child said.
fn step_of(number: u8) -> ViewStep {
    let steps = [
        ViewStep::Namespaces,
        ViewStep::Root,
        ViewStep::Device,
        ViewStep::Mount,
        ViewStep::Directory,
    ];
    let known = steps.get(usize::from(number)).copied();
    known.unwrap_or(ViewStep::Program)
}
