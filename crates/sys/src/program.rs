//! Runs a program on a file for a client: without a shell, and without an environment or
//! descriptors of ours. The program is bounded, and ends with the thread that started it.

use crate::{cage::Cage, wait_readable};
use rustix::{
    io::ioctl_fionbio,
    pipe::fcntl_setpipe_size,
    process::{
        Pid, PidfdFlags, Resource, Rlimit, Signal, getppid, getrlimit, kill_process_group,
        pidfd_open, set_parent_process_death_signal, setrlimit,
    },
    thread::set_no_new_privs,
};
use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// A program that is to be run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Program {
    /// The program, by its whole path or by the `PATH` of its environment, and its arguments.
    pub command: Vec<OsString>,
    /// The directory that it starts in.
    pub directory: PathBuf,
    /// All of its environment.
    pub variables: Vec<(OsString, OsString)>,
    /// The bounds of its use of the machine.
    pub bounds: ProgramLimits,
    /// Whether [`RunningProgram::read`] returns what the program writes to its standard error.
    pub hears_words: bool,
    /// Whether the program is a tool of the caller. A tool may gain rights, and is ended by TERM, not KILL,
    /// with the thread that started it.
    pub is_tool: bool,
    /// `Some`: the program sees only these files, those of the system, and those that the command
    /// names. It writes none, and has no TCP. `None`: it may do all that its account may.
    pub confined: Option<Vec<PathBuf>>,
}

/// Limits of a program, which is ended if it takes more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProgramLimits {
    /// Time of a processor.
    pub cpu_seconds: u64,
    /// Size of the address space.
    pub memory_bytes: u64,
    /// Descriptors that are open at the same time.
    pub open_files: u64,
}

/// A running program. Dropping it ends it, and all of its group.
#[derive(Debug)]
pub struct RunningProgram {
    child: Child,
    end: OwnedFd,
    out: Option<ChildStdout>,
    words: Option<ChildStderr>,
    said: Vec<u8>,
    hears_words: bool,
    status: Option<ExitStatus>,
}

/// Result of a wait for output.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ProgramOutput {
    /// This many bytes were read.
    Bytes(usize),
    /// The program wrote this to its standard error.
    Words(Vec<u8>),
    /// All output was read, and the program has ended with this status.
    Ended(ExitStatus),
    /// The flag that stops the wait was raised.
    Stopped,
    /// The program timed out.
    Late,
}

impl Program {
    /// Starts it, with `input` to read from. It ends with the calling thread.
    pub fn start(&self, input: File) -> io::Result<RunningProgram> {
        let (program, arguments) = self.command.split_first().ok_or(io::ErrorKind::NotFound)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(self.variables.iter().cloned())
            .current_dir(&self.directory)
            .process_group(0)
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let cage = self.cage()?;
        let (bounds, is_tool) = (self.bounds, self.is_tool);
        let parent = rustix::process::getpid();
        // SAFETY: `prepare` makes system calls, and neither allocates nor takes a lock.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(move || prepare((bounds, is_tool), parent, cage.as_ref()));
        }
        let mut child = spawn(&mut command)?;
        let (out, words) = (child.stdout.take(), child.stderr.take());
        let end = match of(&child).and_then(|id| Ok(pidfd_open(id, PidfdFlags::empty())?)) {
            Ok(end) => end,
            Err(error) => {
                let _ = (child.kill(), child.wait());
                return Err(error);
            }
        };
        let running = RunningProgram {
            child,
            end,
            out,
            words,
            said: Vec::new(),
            hears_words: self.hears_words,
            status: None,
        };
        running.ready()?;
        Ok(running)
    }

    fn cage(&self) -> io::Result<Option<Cage>> {
        let Some(more) = &self.confined else {
            return Ok(None);
        };
        let named = self.command.iter().map(Path::new);
        let named = named.filter(|path| path.is_absolute());
        let all = SYSTEM.iter().map(Path::new).chain(named);
        let cage = Cage::new(all.chain(more.iter().map(PathBuf::as_path)));
        cage.map(Some).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSYS | libc::EOPNOTSUPP) => io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel cannot confine programs (Landlock, Linux 5.13)",
            ),
            _ => error,
        })
    }
}

impl RunningProgram {
    fn ready(&self) -> io::Result<()> {
        if let Some(out) = &self.out {
            ioctl_fionbio(out, true)?;
            // Fewer switches between the two processes; a refusal does no harm.
            let _ = fcntl_setpipe_size(out, PIPE_BYTES);
        }
        match &self.words {
            Some(words) => Ok(ioctl_fionbio(words, true)?),
            None => Ok(()),
        }
    }

    /// Waits for output and reads it, or until the program has ended, `stop` can be read, or it is
    /// `late`. Output of its own children after its end is not waited for.
    pub fn read(
        &mut self,
        buffer: &mut [u8],
        stop: BorrowedFd<'_>,
        late: Instant,
    ) -> io::Result<ProgramOutput> {
        loop {
            let patience = match self.status {
                Some(_) => Duration::ZERO,
                None => late.saturating_duration_since(Instant::now()),
            };
            if patience.is_zero() && self.status.is_none() {
                return Ok(ProgramOutput::Late);
            }
            let out = self.out.as_ref().map_or(stop, AsFd::as_fd);
            let words = self.words.as_ref().map_or(stop, AsFd::as_fd);
            let ready = wait_readable([stop, self.end.as_fd(), out, words], patience)?;
            if ready[0] {
                return Ok(ProgramOutput::Stopped);
            }
            if ready[3] {
                self.listen()?;
                if self.hears_words && !self.said.is_empty() {
                    return Ok(ProgramOutput::Words(std::mem::take(&mut self.said)));
                }
            }
            if ready[2] && self.out.is_some() {
                match self.out.as_mut().map_or(Ok(0), |out| out.read(buffer)) {
                    Ok(0) => self.out = None,
                    Ok(count) => return Ok(ProgramOutput::Bytes(count)),
                    Err(error) if is_nothing(&error) => {}
                    Err(error) => return Err(error),
                }
                continue;
            }
            match self.status {
                Some(status) if !ready[3] => return Ok(ProgramOutput::Ended(status)),
                None if ready[1] => self.status = Some(self.bury()?),
                _ => {}
            }
        }
    }

    /// Asks it, and all of its group, to end.
    pub fn terminate(&self) {
        if self.status.is_none()
            && let Ok(group) = of(&self.child)
        {
            // That it has ended by itself is as well.
            let _ = kill_process_group(group, Signal::TERM);
        }
    }

    /// Waits until it has ended, for a while.
    pub fn wait_within(&self, patience: Duration) {
        if self.status.is_none() {
            let _ = wait_readable([self.end.as_fd()], patience);
        }
    }

    /// Returns the last line that it wrote to its standard error, as far as that is text.
    pub fn last_words(&self) -> String {
        let said = String::from_utf8_lossy(&self.said);
        let mut lines = said.lines().rev().map(str::trim);
        let last = lines.find(|line| !line.is_empty()).unwrap_or_default();
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        last.chars().take(WORDS_MAX).map(plain).collect()
    }

    fn listen(&mut self) -> io::Result<()> {
        let mut some = [0; 4096];
        match self
            .words
            .as_mut()
            .map_or(Ok(0), |words| words.read(&mut some))
        {
            Ok(0) => self.words = None,
            Ok(count) => {
                self.said.extend_from_slice(&some[..count]);
                let excess = self.said.len().saturating_sub(SAID_MAX);
                self.said.drain(..excess);
            }
            Err(error) if is_nothing(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Ends the processes that the program left behind, while its group's number is not reused, and
    /// takes its status.
    fn bury(&mut self) -> io::Result<ExitStatus> {
        if let Ok(group) = of(&self.child) {
            // An empty group is fine too.
            let _ = kill_process_group(group, Signal::KILL);
        }
        self.child.wait()
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        if self.status.is_none() {
            let _ = self.bury();
        }
    }
}

/// Starts a program. A program file that this process wrote is busy at first. Another child that
/// has not yet become its program may hold a copy of the descriptor.
fn spawn(command: &mut Command) -> io::Result<Child> {
    let late = Instant::now() + BUSY;
    loop {
        match command.spawn() {
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy && Instant::now() < late =>
            {
                std::thread::sleep(BUSY_STEP); // nothing tells it
            }
            spawned => return spawned,
        }
    }
}

fn of(child: &Child) -> io::Result<Pid> {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    id.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Prepares the new process before it becomes the program.
fn prepare(
    (bounds, is_tool): (ProgramLimits, bool),
    parent: Pid,
    cage: Option<&Cage>,
) -> io::Result<()> {
    let signal = if is_tool { Signal::TERM } else { Signal::KILL };
    set_parent_process_death_signal(Some(signal))?;
    if getppid() != Some(parent) {
        // Our parent ended before the signal was set.
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    // At the first bound of time there is a signal that tells why.
    bound(Resource::Cpu, bounds.cpu_seconds, CPU_GRACE_SECONDS)?;
    bound(Resource::As, bounds.memory_bytes, 0)?;
    bound(Resource::Core, 0, 0)?;
    bound(Resource::Nofile, bounds.open_files, 0)?;
    if !is_tool {
        set_no_new_privs(true)?;
    }
    // SAFETY: descriptors are marked to be closed by exec, no more.
    #[allow(unsafe_code)]
    let closing = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if closing != 0 {
        return Err(io::Error::last_os_error());
    }
    match cage {
        Some(cage) => cage.enter(),
        None => Ok(()),
    }
}

fn bound(resource: Resource, most: u64, grace: u64) -> rustix::io::Result<()> {
    let own = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limit = Rlimit {
        current: Some(own.min(most)),
        maximum: Some(own.min(most.saturating_add(grace))),
    };
    setrlimit(resource, limit)
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Tells by which signal something ended, if it did, for people.
pub fn ended_by(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (_, Some(libc::SIGXCPU)) => "it used more of the processor than it may".into(),
        (_, Some(signal)) => format!("ended by signal {signal}"),
        _ => "it ended oddly".into(),
    }
}

/// Paths that every program needs.
const SYSTEM: [&str; 8] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/dev/zero",
    "/dev/urandom",
];
const BUSY: Duration = Duration::from_secs(2);
const BUSY_STEP: Duration = Duration::from_millis(5);
const CPU_GRACE_SECONDS: u64 = 5;
const PIPE_BYTES: usize = 1 << 20;
const SAID_MAX: usize = 8192;
const WORDS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Wake, scratch::TestDir};
    use std::os::unix::ffi::OsStringExt;

    fn shell(script: &str) -> Program {
        Program {
            command: ["/bin/sh", "-c", script].map(OsString::from).into(),
            directory: "/".into(),
            variables: vec![("GIVEN".into(), "this".into())],
            bounds: ProgramLimits {
                cpu_seconds: 10,
                memory_bytes: 1 << 30,
                open_files: 64,
            },
            hears_words: false,
            is_tool: false,
            confined: Some(Vec::new()),
        }
    }

    fn null() -> File {
        File::open("/dev/null").unwrap()
    }

    /// Everything it writes, how it ended, and its last words.
    fn run(program: &Program, input: File) -> (String, ProgramOutput, String) {
        let mut running = program.start(input).unwrap();
        let (wake, late) = (Wake::new().unwrap(), Instant::now() + PATIENCE);
        let (mut all, mut some) = (Vec::new(), [0; 1000]);
        loop {
            match running.read(&mut some, wake.as_fd(), late).unwrap() {
                ProgramOutput::Bytes(count) => all.extend_from_slice(&some[..count]),
                made => {
                    let text = String::from_utf8(all).unwrap();
                    return (text, made, running.last_words());
                }
            }
        }
    }

    fn ended(code: i32) -> ProgramOutput {
        ProgramOutput::Ended(ExitStatus::from_raw(code << 8))
    }

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn unwanted_output_is_discarded() {
        let (text, made, _) = run(&shell("echo x >/dev/null 2>&1 && cat </dev/null"), null());
        assert_eq!((&*text, made), ("", ended(0)));
    }

    #[test]
    fn program_gets_input_and_given_environment_only() {
        let (text, made, _) = run(&shell("/usr/bin/env"), null());
        let others = text.lines().filter(|line| !line.starts_with("PWD="));
        let others: Vec<_> = others.filter(|line| !line.starts_with("_=")).collect();
        assert_eq!(others, ["GIVEN=this"]);
        assert_eq!(made, ended(0));
        let own = File::open("/proc/self/cmdline").unwrap();
        let (text, ..) = run(&shell("tr '\\0' ' '"), own);
        assert!(!text.is_empty());
    }

    #[test]
    fn it_has_no_descriptor_but_its_three() {
        let inherited = null();
        rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
        let mut program = shell("");
        program.command = ["/bin/ls", "/proc/self/fd"].map(OsString::from).into();
        program.confined = None;
        let (text, made, _) = run(&program, null());
        assert_eq!(
            (text.as_str(), made),
            ("0\n1\n2\n3\n", ended(0)),
            "3 is what ls reads"
        );
    }

    #[test]
    fn arguments_are_bytes_and_the_directory_counts() {
        let scratch = TestDir::new("program");
        std::fs::write(scratch.join("here"), "").unwrap();
        let mut program = shell("ls; printf %s \"$1\"; ulimit -n");
        let odd = OsString::from_vec(b"\xff\n".into());
        program.command.extend(["sh".into(), odd]);
        program.directory = scratch.join(".");
        program.bounds.open_files = 100;
        program.confined = None;
        let mut running = program.start(null()).unwrap();
        let (wake, late) = (Wake::new().unwrap(), Instant::now() + PATIENCE);
        let (mut all, mut some) = (Vec::new(), [0; 100]);
        while let ProgramOutput::Bytes(count) = running.read(&mut some, wake.as_fd(), late).unwrap()
        {
            all.extend_from_slice(&some[..count]);
        }
        assert_eq!(all, b"here\n\xff\n100\n");
    }

    #[test]
    fn its_status_and_last_words_are_told() {
        let (text, made, words) = run(
            &shell("echo out; echo no >&2; echo bad\tnews >&2; exit 3"),
            null(),
        );
        assert_eq!((&*text, made), ("out\n", ended(3)));
        assert_eq!(words, "bad news");
        assert_eq!(ended_by(ExitStatus::from_raw(3 << 8)), "exit status 3");
    }

    #[test]
    fn late_program_is_ended_with_its_children() {
        let mut running = shell("sleep 1000 & echo $!; wait").start(null()).unwrap();
        let (wake, mut some) = (Wake::new().unwrap(), [0; 100]);
        let made = running.read(&mut some, wake.as_fd(), Instant::now() + PATIENCE);
        let ProgramOutput::Bytes(count) = made.unwrap() else {
            panic!("it says nothing");
        };
        let soon = Instant::now() + Duration::from_millis(50);
        let made = running.read(&mut [0; 100], wake.as_fd(), soon).unwrap();
        assert_eq!(made, ProgramOutput::Late);
        drop(running);
        let id: u32 = str::from_utf8(&some[..count])
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let is_there = || match std::fs::read_to_string(format!("/proc/{id}/stat")) {
            Ok(stat) => !stat.contains(") Z "),
            Err(_) => false,
        };
        let late = Instant::now() + PATIENCE;
        while is_there() {
            assert!(Instant::now() < late, "{id} lives on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_flag_stops_the_wait() {
        let mut running = shell("sleep 1000").start(null()).unwrap();
        let wake = Wake::new().unwrap();
        wake.raise();
        let late = Instant::now() + PATIENCE;
        let made = running.read(&mut [0; 1], wake.as_fd(), late).unwrap();
        assert_eq!(made, ProgramOutput::Stopped);
    }

    #[test]
    fn leftover_child_does_not_delay_end() {
        let (text, made, _) = run(&shell("sleep 1000 & echo whole"), null());
        assert_eq!((&*text, made), ("whole\n", ended(0)));
    }

    #[test]
    fn a_bound_of_the_processor_ends_it() {
        let mut program = shell("while :; do :; done");
        program.bounds.cpu_seconds = 1;
        let (_, made, _) = run(&program, null());
        let ProgramOutput::Ended(status) = made else {
            panic!("{made:?}");
        };
        assert_eq!(
            ended_by(status),
            "it used more of the processor than it may"
        );
    }

    #[test]
    fn a_bound_of_memory_holds() {
        let mut program = shell("");
        program.command = ["/usr/bin/head", "-c", "1", "/dev/zero"]
            .map(OsString::from)
            .into();
        assert_eq!(run(&program, null()).1, ended(0));
        program.bounds.memory_bytes = 1 << 20;
        let (_, made, _) = run(&program, null());
        assert_ne!(made, ended(0));
    }

    #[test]
    fn caged_program_sees_only_the_system() {
        let secret = std::env::temp_dir().join(format!("godwit-cage-{}", std::process::id()));
        std::fs::write(&secret, "secret\n").unwrap();
        let read = format!("cat {0}; echo x > {0}; rm -f {0}; true", secret.display());
        let (text, made, _) = run(&shell(&read), null());
        assert_eq!((&*text, made), ("", ended(0)));
        let mut more = shell(&read);
        more.confined = Some(vec![secret.clone()]);
        assert_eq!(run(&more, null()).0, "secret\n");
        let left = std::fs::read_to_string(&secret).unwrap();
        let mut free = shell(&read);
        free.confined = None;
        run(&free, null());
        assert_eq!((&*left, secret.exists()), ("secret\n", false));
    }
}
