//! Programs that outlive the process that started them.

use crate::wait_readable;
use libc::{c_int, c_uint};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, setsid};
use std::{
    io,
    os::{fd::AsFd, unix::process::CommandExt},
    process::Command,
    time::Duration,
};

/// Starts a program in a session of its own, detached from this process. It outlives this process
/// and its terminal, and leaves no process to wait for. The command defines its standard streams.
/// The program inherits no other descriptor, since an inherited pipe would never end for its reader.
pub fn start_detached(command: &mut Command) -> io::Result<()> {
    // SAFETY: between fork and exec there is one thread. The first fork, by the library, has put the locks
    // of its own in order, so a second one does not find them taken; nothing is allocated.
    #[allow(unsafe_code)]
    let mut between = unsafe { command.pre_exec(apart) }.spawn()?;
    // It ended as soon as there was a child of its own, which has begun the program or said why not.
    // Where the program around us wants no children (SIGCHLD ignored), the kernel has seen to it.
    let _ = between.wait();
    Ok(())
}

/// Asks a process to end (SIGTERM), and kills it after `within`. A process that has ended is no
/// error.
pub fn end_detached(pid: u32, within: Duration) -> io::Result<()> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        process => process?,
    };
    for (signal, within) in [(Signal::TERM, within), (Signal::KILL, Duration::MAX)] {
        match pidfd_send_signal(&process, signal) {
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            sent => sent?,
        }
        let [has_ended] = wait_readable([process.as_fd()], within)?;
        if has_ended {
            break;
        }
    }
    Ok(())
}

/// Sends a signal to a process.
pub fn send_signal(pid: u32, signal: i32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
    let signal = Signal::from_named_raw(signal).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::kill_process(pid, signal)?)
}

/// Leaves the session, and continues as a child of the forked process.
fn apart() -> io::Result<()> {
    setsid()?;
    // SAFETY: three numbers; the descriptors are closed by the exec that follows.
    #[allow(unsafe_code)]
    match unsafe { libc::close_range(3, c_uint::MAX, CLOSE_RANGE_CLOEXEC) } {
        0 => {}
        _ => return Err(io::Error::last_os_error()),
    }
    // SAFETY: as above.
    #[allow(unsafe_code)]
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(()),
        // SAFETY: it ends this process and nothing else; what is open in the child stays open.
        _ => unsafe { libc::_exit(0) },
    }
}

/// As linux/close_range.h has it.
const CLOSE_RANGE_CLOEXEC: c_int = 1 << 2;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Read, process::Stdio};

    #[test]
    fn detached_program_has_own_session_and_parent() {
        let (mut said, saying) = io::pipe().unwrap();
        let mut command = Command::new("cat");
        command
            .arg("/proc/self/stat")
            .stdin(Stdio::null())
            .stdout(saying);
        start_detached(&mut command).unwrap();
        drop(command); // and with it our end of the pipe
        let mut stat = String::new();
        said.read_to_string(&mut stat).unwrap();
        // pid (name) state ppid pgrp session
        let fields: Vec<&str> = stat.split(' ').collect();
        let ours = std::process::id().to_string();
        assert_ne!(fields[3], ours, "{stat}");
        // Our session as this namespace sees it: 0 if our starter is in another pid namespace.
        let our_stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let session = our_stat.rsplit(") ").next().unwrap().split(' ').nth(3);
        assert_ne!(Some(fields[5]), session, "{stat}");
    }

    #[test]
    fn a_detached_program_holds_no_pipe() {
        let (mut read, write) = io::pipe().unwrap();
        // A program of others may have opened it without O_CLOEXEC.
        rustix::io::fcntl_setfd(&write, rustix::io::FdFlags::empty()).unwrap();
        let (mut said, saying) = io::pipe().unwrap();
        let mut command = Command::new("cat");
        command.arg("-").stdin(said.try_clone().unwrap());
        start_detached(&mut command).unwrap();
        drop((write, command));
        let mut rest = Vec::new();
        assert_eq!(read.read_to_end(&mut rest).unwrap(), 0);
        drop(saying); // the program ends with its input
        said.read_to_end(&mut rest).unwrap();
    }

    #[test]
    fn missing_program_is_an_error() {
        let mut command = Command::new("/no such program");
        let error = start_detached(&mut command).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
