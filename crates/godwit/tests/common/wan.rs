//! A wide area that a test owns: two network namespaces with an emulated line between them.
//!
//! The client's side is `a`, the server's `b`. Needs root and /dev/net/tun; without them
//! [`Wan::up`] says so and returns `None`.

use super::{Node, as_prepared, godwit, have, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Where a node on the far side is reached.
pub const FAR: &str = "10.77.0.2:2811";

/// Two namespaces; gone when this is dropped.
#[derive(Debug)]
pub struct Wan {
    name: String,
    run: PathBuf,
}

impl Wan {
    /// Sets it up, with the options of `tests/peers/wan/wan-up`.
    pub fn up(scratch: &Path, options: &[&str]) -> Option<Wan> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !have("ip") || !have("ss") || !have("cc") {
            return None;
        }
        let name = format!("t{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let wan = Wan {
            name,
            run: scratch.join("wan"),
        };
        let mut command = wan.script("wan-up");
        let output = command
            .args(options)
            .output()
            .expect("wan-up is beside the crates");
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            skip(&format!("no emulated line here: {}", why.trim()));
            return None;
        }
        Some(wan)
    }

    /// Tells the line something: `down`, `up`, `loss 0.1%`.
    pub fn tell(&self, what: &str) {
        let status = self.script("wan-ctl").arg(what).status();
        assert!(status.expect("wan-ctl is there").success(), "{what}");
    }

    /// A command on one side.
    pub fn at(&self, side: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}-{side}", self.name)]);
        command.arg(program);
        command
    }

    /// Our program on one side; `control` names its congestion control.
    pub fn godwit(&self, side: &str, control: Option<&str>) -> Command {
        let ours = godwit();
        let mut command = self.at(side, "env");
        if let Some(control) = control {
            let preload = scripts().join("bin/cc.so");
            command.arg(format!("LD_PRELOAD={}", preload.display()));
            command.arg(format!("WAN_CC={control}"));
        }
        command.arg(ours.get_program());
        as_prepared(command, &ours)
    }

    /// A node of ours on the far side, at [`FAR`].
    pub fn node(&self, export: &Path, control: Option<&str>) -> Node {
        std::fs::create_dir_all(export).expect("the test's own directory");
        let mut command = self.godwit("b", control);
        command.args(["node", "--anonymous", "write", "--json", "--export"]);
        command.arg(export);
        command.arg("--state").arg(export.with_extension("state"));
        command.args(["--ftp", &format!("127.0.0.1:0,{FAR}")]);
        Node::spawn(command, export)
    }

    /// Resets connections on the far side whose local port is, or is not, that of the node.
    pub fn cut(&self, control: bool) {
        let is = if control { "=" } else { "!=" };
        let ports = format!("( sport {is} :2811 )");
        let mut command = self.at("b", "ss");
        command.args(["-t", "-K", "state", "established", &ports]);
        let output = command.output().expect("ss is there");
        assert!(output.status.success(), "{output:?}");
        // What it ended it lists, below a headline.
        let ended = String::from_utf8_lossy(&output.stdout).lines().count();
        assert!(ended > 1, "nothing was cut");
    }

    fn script(&self, name: &str) -> Command {
        let mut command = Command::new(scripts().join(name));
        command.arg(&self.name).env("WAN_RUN", &self.run);
        command
    }
}

impl Drop for Wan {
    fn drop(&mut self) {
        let _ = self.script("wan-down").output();
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/peers/wan")
}
