//! `godwit uninit`: makes this machine forget that it is a node.

use super::{init, node::local, serving};
use crate::{
    args::NodeOptions,
    client, config,
    out::{CliError, Facts, Run, Screen},
};
use clap::Args;
use godwit_store::Error;
use godwit_wire::local::{
    Request,
    request::{FileTarget, Selector},
};
use serde_json::json;
use std::{
    fs,
    io::{self, IsTerminal},
    path::Path,
};

/// Undo init: forget this node's key, name, peers and configuration
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit uninit
  godwit uninit --yes

It lists what it will remove, and asks. The directory that the node shared stays as it is, with all
that is in it. Peers are not told: say godwit leave NAME for each first, or godwit peers remove
there. If this machine becomes a node again, it has another key.

End the server before. What godwit put has not delivered yet needs the key, so it is refused while
anything is in godwit queue.

Exit status: 0; 2 this machine is no node, nothing says yes, or the server runs; 1 something is not
delivered yet, or cannot be removed.")]
pub(crate) struct UninitArgs {
    /// Remove it without asking
    #[arg(long)]
    yes: bool,
    /// Give up what is not delivered yet: its bytes are lost, unless its server has them
    #[arg(long)]
    drop: bool,
}

impl UninitArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let home = init::home(WANTED)?;
        let file = config::of_this_user();
        let is_made = |file: &std::path::PathBuf| {
            fs::read_to_string(file).is_ok_and(|text| text.starts_with(init::MADE))
        };
        let mut gone = home.parts();
        gone.extend(local::server_unit().filter(|unit| unit.exists()));
        // The configuration, which names the rest, goes last: an interrupted run can be repeated.
        gone.extend(file.filter(is_made));
        if gone.is_empty() {
            return Err(CliError::asked(WANTED, "this machine is no node"));
        }
        let state = config::load(&NodeOptions::default())?.state;
        if let Some(server) = serving::running(state.as_deref()).first() {
            let end = match server["unit"].as_str() {
                Some(unit) if godwit_sys::user_id() == 0 => {
                    format!("systemctl disable --now {unit}")
                }
                Some(unit) => format!("systemctl --user disable --now {unit}"),
                None => format!("kill {}", server["pid"]),
            };
            let fact = format!("its server runs, process {}", server["pid"]);
            return Err(CliError::asked(WANTED, fact).next(format!("end it: {end}")));
        }
        let lost = self.pending()?;
        let tell = |object, line: String| {
            let told = match screen.json() {
                true => screen.object(&object),
                false => screen.line(line),
            };
            told.map_err(|error| CliError::store(WANTED, error))
        };
        for path in &gone {
            let path = path.display().to_string();
            tell(
                json!({ "event": "removes", "path": path }),
                format!("removes {path}"),
            )?;
        }
        for peer in home.peers().unwrap_or_default() {
            let name = peer.name;
            let line = format!("forgets the peer {name}, and does not tell it");
            tell(json!({ "event": "forgets", "peer": name }), line)?;
        }
        for url in &lost {
            tell(
                json!({ "event": "drops", "url": url }),
                format!("gives up {url}"),
            )?;
        }
        screen
            .flush()
            .map_err(|error| CliError::store(WANTED, error))?;
        self.must_be_wanted(screen)?;
        self.give_up()?;
        for path in &gone {
            remove(path).map_err(|cause| CliError::store(WANTED, Error::io(path, cause)))?;
        }
        screen.note("this machine is no node any more");
        Ok(Facts::from_iter([("removed".into(), gone.len().into())]))
    }

    /// Returns the URLs that are not delivered yet, and refuses them without `--drop`.
    fn pending(&self) -> Run<Vec<String>> {
        let Some(mut here) = client::there_if_pending()? else {
            return Ok(Vec::new());
        };
        let (rows, _) = client::rows(&mut here, &Selector::default())?;
        match rows.len() {
            0 => {}
            _ if self.drop => {}
            count => {
                let fact = format!("{count} that were put are not delivered yet, and need its key");
                return Err(CliError::kept(WANTED, fact).next(
                    "godwit queue shows them, godwit push delivers them; godwit uninit --drop gives them up",
                ));
            }
        }
        Ok(rows.into_iter().map(|row| row.url).collect())
    }

    fn give_up(&self) -> Run {
        let Some(mut here) = client::there_if_pending()?.filter(|_| self.drop) else {
            return Ok(());
        };
        for row in client::rows(&mut here, &Selector::default())?.0 {
            here.ask(Request::Drop(FileTarget::is(row.id)))?;
        }
        Ok(())
    }

    fn must_be_wanted(&self, screen: &Screen) -> Run {
        if self.yes {
            return Ok(());
        }
        let mut answer = String::new();
        if io::stdin().is_terminal() {
            screen.aside("remove all this? [y/N]");
            let read = io::stdin().read_line(&mut answer);
            read.map_err(|cause| CliError::store(WANTED, Error::io("standard input", cause)))?;
        }
        match answer.trim_start().starts_with(['y', 'Y']) {
            true => Ok(()),
            false => Err(
                CliError::asked(WANTED, "nothing was removed: nothing said yes")
                    .next("godwit uninit --yes"),
            ),
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    match removed {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

const WANTED: &str = "undo godwit init";
