//! Places where a test lets the process die, or cuts the power.

pub(crate) use godwit_sys::crash::point;

/// Waits until a file's bytes are durable. In tests, also copies the file to the directory in `GODWIT_DISK`, the
/// state after a power cut.
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
