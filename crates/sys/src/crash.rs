//! Places where a test lets the process die, as `kill -9` or a power cut would.

/// Dies here if `GODWIT_CRASH` says so: `NAME` at once, `NAME:3` the third time. The file that `TEST_CRASH_NOTE`
/// names, if any, gets the name of the place first: so that a test knows where it died, and not only that it did.
#[cfg(debug_assertions)]
pub fn point(name: &str) {
    use std::sync::{
        OnceLock,
        atomic::{AtomicI64, Ordering},
    };
    static ASKED: OnceLock<Option<(String, AtomicI64)>> = OnceLock::new();
    let asked = ASKED.get_or_init(|| {
        let text = std::env::var("GODWIT_CRASH").ok()?;
        let (name, times) = text.split_once(':').unwrap_or((&text, "1"));
        Some((name.to_owned(), AtomicI64::new(times.parse().ok()?)))
    });
    if let Some((asked, left)) = asked
        && asked == name
        && left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        note(name);
        die();
    }
}

/// Says where it dies, outside of all that the death is about.
#[cfg(debug_assertions)]
fn note(name: &str) {
    use std::io::Write;
    let Some(path) = std::env::var_os("TEST_CRASH_NOTE") else {
        return;
    };
    let file = std::fs::OpenOptions::new().append(true).open(path);
    let _ = file.and_then(|mut file| file.write_all(format!("{name}\n").as_bytes()));
}

/// Ends this process at once, as `kill -9` does: no destructor runs.
#[cfg(debug_assertions)]
fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    // The signal arrives before the call returns; this satisfies the type.
    std::process::abort()
}

/// Release builds never crash on purpose.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn point(_: &str) {}
