//! `godwit farm join` and `leave`: makes this machine a node of a farm, or takes it out.

use crate::{
    args::NodeOptions,
    config, names,
    out::{CliError, Facts, Run, Screen},
    verbs::{catalog, init, join},
};
use clap::Args;
use godwit_catalog::{Change, Location, Refusal, locations};
use godwit_core::Kind;
use godwit_farm::is_of_node;
use godwit_store::Error;
use godwit_trust::{Peer, is_same_name};
use godwit_wire::door::call::Name;
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Make this machine a node of a farm
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit farm join godwit-invite:n1@fermi.example:13560/4be1…/91c0… --slots 8
  godwit farm join INVITE --slots 8 --address n2.example:13560

The invite is what godwit peers invite prints on the machine whose node serves the catalog; godwit
init comes before, here. Files of the farm come to .farm in the directory that this node shares. The
configuration keeps the catalog and the slots: godwit node needs no options.

The nodes of the farm come to know each other within seconds, without invites: each takes the word
of the node that serves the catalog, which can introduce any node. Peers that you added stay as they
are. godwit peers shows who was named by whom.

Exit status: 0; 2 this machine is no node, or the configuration has another catalog; 13 the invite
is not good any more, or the node may not change the catalog. Otherwise as of godwit join.")]
pub(super) struct JoinArgs {
    /// The invite; - reads it from standard input
    #[arg(value_name = "INVITE")]
    invite: String,
    /// How many programs run here at the same time; 0: none
    #[arg(long, value_name = "N")]
    slots: u32,
    /// Where the other nodes reach this one, several times for several [default: as godwit init said]
    #[arg(long = "address", value_name = "HOST:PORT")]
    addresses: Vec<String>,
}

/// Take a node out of the farm
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit farm leave n2
  godwit farm leave n2 --force

Without a name it is this node. It is refused as long as the node has the last copy of a file:
godwit farm drain NODE has the rules make others. The catalog forgets the copies there, whose bytes
stay. The other nodes forget its key within seconds. The node that serves the catalog knows it as
before: godwit peers remove NODE, there, ends that.

Exit status: 0; 1 it has the last copy of a file; 4 the farm has no such node.")]
pub(super) struct LeaveArgs {
    /// The node [default: this one]
    #[arg(value_name = "NODE")]
    node: Option<String>,
    /// Also if it has the last copy of a file: the catalog loses that file
    #[arg(long)]
    force: bool,
}

impl JoinArgs {
    pub(super) fn run(self, screen: &Screen) -> Run<Facts> {
        let wanted = "join the farm";
        let Some(myself) = myself(wanted)? else {
            let trouble = CliError::asked(wanted, "this machine is no node yet");
            return Err(trouble.next("godwit init NAME --export DIR"));
        };
        let addresses = match self.addresses.is_empty() {
            true => myself.addresses,
            false => self.addresses,
        };
        if addresses.is_empty() {
            let trouble = CliError::asked(wanted, "the other nodes must reach this one");
            return Err(trouble.next("say where: --address HOST:PORT"));
        }
        let settings = NodeSettings::read(wanted)?;
        settings.must_be_free(wanted)?;
        let (keeper, name) = join::JoinArgs::by(self.invite, addresses).connect()?;
        let text = format!("godwit://{}", keeper.name);
        be_known(wanted, &text, &name)?;
        let slots = self.slots;
        settings.write(
            wanted,
            &format!("[catalog]\nurl = {text:?}\nsite = {name:?}\n\n[farm]\nslots = {slots}\n"),
        )?;
        let said = match screen.json() {
            true => screen.object(&json!({
                "event": "joined", "name": keeper.name, "as": name, "catalog": text, "slots": slots,
            })),
            false => screen.line(format!(
                "{name} is a node of the farm of {}: start it now (one that runs: again) with godwit node; names are found by \
                 --catalog {text}",
                keeper.name
            )),
        };
        said.map_err(|error| CliError::store(wanted, error))?;
        Ok(Facts::new())
    }
}

impl LeaveArgs {
    pub(super) fn run(self, screen: &Screen) -> Run<Facts> {
        let wanted = "leave the farm";
        let myself = myself(wanted)?.map(|myself| myself.name);
        let Some(node) = self.node.or(myself.clone()) else {
            let trouble = CliError::asked(wanted, "this machine is no node");
            return Err(trouble.next("godwit farm leave NODE; godwit farm nodes shows them"));
        };
        let is_ours = myself.is_some_and(|name| is_same_name(&name, &node));
        if names::text().is_none() {
            names::keep(config::load(&NodeOptions::default())?.catalog);
        }
        let refused = |refusal| catalog::refused(wanted, &refusal);
        let catalog = catalog::open()?;
        let mut rows = rows(&*catalog).map_err(refused)?;
        rows.retain(|row| is_same_name(&row.site, &node));
        if rows.is_empty() && !is_ours {
            let trouble = CliError::found(wanted, format!("the farm has no node {node}"), 4);
            return Err(trouble.next("godwit farm nodes"));
        }
        let changes = rows.into_iter().map(|row| Change::RemoveLocation {
            name: row.name,
            site: row.site,
            last: self.force,
        });
        let changes: Vec<_> = changes.collect();
        if !changes.is_empty() {
            catalog.change(&changes.into()).map_err(|refusal| {
                let trouble = catalog::refused(wanted, &refusal);
                match refusal.kind {
                    Kind::NotEmpty => trouble.next(format!(
                        "godwit farm drain {node}, and the same again once the rules (godwit rule add grid:/ copies=1) made \
                         other copies; --force loses those files"
                    )),
                    _ => trouble,
                }
            })?;
        }
        if is_ours {
            NodeSettings::read(wanted)?.write(wanted, "")?;
            let forgotten = init::home(wanted)?.introduce("", &[]);
            forgotten.map_err(|error| CliError::trust(wanted, error))?;
        }
        let said = match screen.json() {
            true => screen.object(&json!({ "event": "left", "name": node })),
            false => screen.line(format!(
                "{node} left the farm; its bytes stay in .farm there"
            )),
        };
        said.map_err(|error| CliError::store(wanted, error))?;
        Ok(Facts::new())
    }
}

fn myself(wanted: &str) -> Run<Option<Peer>> {
    let myself = init::home(wanted)?.myself();
    myself.map_err(|error| CliError::trust(wanted, error))
}

/// Returns the nodes of the farm.
fn rows(catalog: &dyn godwit_catalog::Catalog) -> Result<Vec<Location>, Refusal> {
    let mut found = locations(catalog, Path::new(""), false)?;
    found.retain(|row| is_of_node(&row.site, &row.url));
    Ok(found)
}

/// Has the catalog know the node, unless it does.
fn be_known(wanted: &str, text: &str, name: &str) -> Run {
    let refused = |refusal: Refusal| {
        let trouble = catalog::refused(wanted, &refusal);
        match refusal.kind {
            Kind::Denied => trouble.next(format!(
                "say where the catalog is: godwit location add {name} godwit://{name}/.farm grid:/ --catalog sqlite:PATH; then \
                 the same again here"
            )),
            _ => trouble,
        }
    };
    let catalog = catalog::opened(text, false, wanted)?;
    let known = rows(&*catalog).map_err(refused)?;
    if known.iter().any(|row| row.site == name) {
        return Ok(());
    }
    let add = Change::AddLocation {
        name: Name::default(),
        site: name.into(),
        url: format!("godwit://{name}/.farm"),
        whole: true,
    };
    catalog.change(&add.into()).map(drop).map_err(refused)
}

/// The configuration of this node without what `farm join` wrote.
struct NodeSettings {
    file: PathBuf,
    text: String,
}

impl NodeSettings {
    fn read(wanted: &str) -> Run<Self> {
        let file = config::file_in_use().or_else(config::of_this_user);
        let file = file.ok_or_else(|| {
            CliError::asked(
                wanted,
                "neither HOME nor XDG_CONFIG_HOME says where a configuration would be",
            )
        })?;
        let text = match file.exists() {
            true => fs::read_to_string(&file),
            false => Ok(String::new()),
        };
        let mut text = text.map_err(|cause| CliError::store(wanted, Error::io(&file, cause)))?;
        if let (Some(from), Some(to)) = (text.find(BEGIN), text.find(END)) {
            text.replace_range(from..(to + END.len()).max(from), "");
        }
        Ok(Self { file, text })
    }

    /// Refuses a configuration in which the user wrote the same.
    fn must_be_free(&self, wanted: &str) -> Run {
        let mut lines = self.text.lines().map(str::trim);
        let Some(line) = lines.find(|line| ["[catalog]", "[farm]"].contains(line)) else {
            return Ok(());
        };
        let fact = format!("{} has a section {line}", self.file.display());
        Err(CliError::asked(wanted, fact).next("take it out there: this command writes it"))
    }

    fn write(&self, wanted: &str, more: &str) -> Run {
        let text = match more.is_empty() {
            true => self.text.clone(),
            false => format!("{}{BEGIN}{more}{END}", self.text),
        };
        let new = self.file.with_extension("new");
        let write = || {
            fs::create_dir_all(self.file.parent().unwrap_or(Path::new("/")))?;
            fs::write(&new, text)?;
            fs::rename(&new, &self.file)
        };
        write().map_err(|cause| CliError::store(wanted, Error::io(&self.file, cause)))
    }
}

const BEGIN: &str = "\n# Made by godwit farm join.\n";
const END: &str = "# The end of what godwit farm join made.\n";
