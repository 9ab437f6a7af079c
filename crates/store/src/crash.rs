//! Places where a test lets the process die, as `kill -9` or a power cut would.

/// Dies here if `GODWIT_CRASH` says so: `NAME` at once, `NAME:3` the third time.
#[cfg(test)]
pub(crate) fn point(name: &str) {
    use std::sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    };
    static ASKED: OnceLock<Option<(String, AtomicU64)>> = OnceLock::new();
    let asked = ASKED.get_or_init(|| {
        let text = std::env::var("GODWIT_CRASH").ok()?;
        let (name, times) = text.split_once(':').unwrap_or((&text, "1"));
        Some((
            name.to_owned(),
            AtomicU64::new(times.parse().expect("a number")),
        ))
    });
    if let Some((asked, left)) = asked
        && asked == name
        && left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        godwit_sys::die();
    }
}

/// Only tests die on purpose.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn point(_: &str) {}

/// Waits until what was written to a file survives a power cut. In tests it is also laid aside
/// where `GODWIT_DISK` says, so that the power can be cut there.
pub(crate) fn sync(file: &std::fs::File) -> std::io::Result<()> {
    file.sync_data()?;
    #[cfg(test)]
    lay_aside(file);
    Ok(())
}

#[cfg(test)]
fn lay_aside(file: &std::fs::File) {
    use std::os::fd::AsRawFd;
    let Some(disk) = std::env::var_os("GODWIT_DISK") else {
        return;
    };
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let name = std::fs::read_link(&own).expect("it has a name");
    let name = name.file_name().expect("it is a file");
    let disk = std::path::Path::new(&disk).join(name);
    std::fs::copy(own, disk).expect("there is room");
}
