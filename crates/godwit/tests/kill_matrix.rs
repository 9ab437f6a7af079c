//! `tests/kill-matrix/run` in small: kill -9 of either side, and a cut control connection, at a few points.

mod common;

use std::path::Path;
use std::process::Command;

#[test]
fn broken_transfer_resends_little() {
    let matrix = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/kill-matrix/run");
    let bytes = (64 << 20).to_string();
    let output = Command::new("python3")
        .arg(matrix)
        .args(["--godwit", env!("CARGO_BIN_EXE_godwit"), "--bytes", &bytes])
        .args(["--points", "3", "--seed", &std::process::id().to_string()])
        .output();
    let Ok(output) = output else {
        common::skip("python3 is missing");
        return;
    };
    let told = String::from_utf8_lossy(&output.stdout);
    let worse = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}{worse}");
}
