//! Directories for tests, and being an ordinary user in them.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// A directory that every user may write to; it is removed on drop.
pub(crate) struct TestDir(PathBuf);

impl TestDir {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("godwit-sys-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        Self(path)
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Runs `work` in a thread; if this process is root, the thread is unprivileged.
    pub(crate) fn as_nobody(&self, work: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            let done = scope.spawn(|| {
                if crate::user_id() == 0 {
                    become_nobody();
                }
                work();
            });
            if let Err(panic) = done.join() {
                std::panic::resume_unwind(panic);
            }
        });
    }
}

/// The bare system calls change the calling thread alone, whereas the C library's change all.
fn become_nobody() {
    const NOBODY: libc::c_long = 65534;
    for call in [libc::SYS_setresgid, libc::SYS_setresuid] {
        // SAFETY: numbers only; the thread ends after the test.
        #[allow(unsafe_code)]
        let done = unsafe { libc::syscall(call, NOBODY, NOBODY, NOBODY) };
        assert_eq!(done, 0);
    }
    assert_eq!(crate::user_id(), NOBODY as u32);
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
