//! C programs: compiled, with every warning an error, and run.

use super::stand_in::StandIn;
use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// A directory of one test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "godwit-capi-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Relaxed)
        );
        let path = env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Returns the library as cargo built it for this test.
pub fn library() -> PathBuf {
    let deps = env::current_exe().unwrap();
    let deps = deps.parent().unwrap();
    let found = [deps.join("libgodwit.so"), deps.join("../libgodwit.so")];
    let found = found.into_iter().find(|path| path.exists());
    found.expect("cargo builds the library with its tests")
}

/// Lays the library down as it is installed: by the name that programs load, and by the name that they link with.
pub fn install(dir: &Path) {
    for name in ["libgodwit.so.0", "libgodwit.so"] {
        let link = dir.join(name);
        if !link.exists() {
            symlink(library(), link).unwrap();
        }
    }
}

/// Compiles a program of this crate.
pub fn compile(scratch: &Scratch, source: &str) -> PathBuf {
    install(scratch.path());
    let source = sources().join(source);
    let is_cxx = source.extension().is_some_and(|end| end == "cc");
    let program = scratch.path().join(source.file_stem().unwrap());
    let mut compiler = Command::new(if is_cxx { "c++" } else { "cc" });
    compiler
        .arg(if is_cxx { "-std=c++17" } else { "-std=c11" })
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
        .arg(sources().join("include"))
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .arg("-L")
        .arg(scratch.path())
        .arg("-lgodwit");
    let done = compiler.output().expect("there is a C compiler");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {said}", source.display());
    program
}

/// Prepares a program to be run beside a node.
pub fn command(scratch: &Scratch, program: &Path, node: &StandIn) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["-k", "5", "120"])
        .arg(program)
        .env("LD_LIBRARY_PATH", scratch.path())
        .env("GODWIT_SOCKET", node.socket())
        .env("GODWIT_STATE", scratch.path().join("state"))
        .env("GODWIT_BIN", "/bin/false")
        .env_remove("GODWIT_CLOSE")
        .env_remove("GODWIT_CLOSE_TIMEOUT");
    command
}

/// Runs it to its end, which must be a good one, and returns what it wrote.
pub fn good(command: &mut Command) -> String {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", all(&done));
    String::from_utf8(done.stdout).unwrap()
}

pub fn all(done: &Output) -> String {
    format!(
        "{}\n{}{}",
        done.status,
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    )
}
