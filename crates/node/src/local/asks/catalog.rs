//! Names of a catalog, for programs of this machine.

use crate::local::{
    answers::{LocalResult, of_files},
    client::Client,
    connection::LocalReply,
    keeping::DepotState,
};
use godwit_catalog::{Changes, Question};
use godwit_local::{Kind, Refusal};
use godwit_store::engine::NO_CATALOG;
use godwit_wire::local::{Request, Response, frame::BODY_BYTES_MAX};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

impl DepotState {
    /// Returns the refusal of every name to a program of that catalog, unless it is the one of this node.
    pub(crate) fn other_names(&self, theirs: Option<&str>, is_of_another: bool) -> Option<Refusal> {
        let refused = |said: String, next: &str| {
            let refusal = Refusal::new(Kind::Unsupported, "use a name of a catalog", said);
            Some(refusal.next(next))
        };
        let again = "godwit node stop, once godwit queue is empty; the next verb starts it with your catalog";
        match (&self.bounds.names, theirs) {
            _ if is_of_another => refused(
                "names are for programs of this machine".into(),
                "name a URL",
            ),
            (None, None) => refused(NO_CATALOG.into(), "godwit help catalog"),
            (None, Some(_)) => refused(
                "the node of this machine was started without a catalog".into(),
                again,
            ),
            (Some(ours), Some(theirs)) if ours.text != theirs => refused(
                format!(
                    "the node of this machine takes the names of {}, not of {theirs}",
                    ours.text
                ),
                again,
            ),
            (Some(_), _) => None,
        }
    }
}

impl Client {
    /// Refuses requests about names of another catalog.
    pub(crate) fn must_know_names(&self, ask: &Request) -> Result<(), Refusal> {
        let Some(refusal) = &self.other_names else {
            return Ok(());
        };
        let text = serde_json::to_string(ask).unwrap_or_default();
        let text = text.to_ascii_lowercase();
        let is_about_names = ["\"grid:", "/godwit/grid/"]
            .iter()
            .any(|name| text.contains(name));
        match is_about_names {
            true => Err(refusal.clone()),
            false => Ok(()),
        }
    }

    /// Answers a question to the catalog, or applies changes: a line of JSON for each answer, or one of numbers.
    pub(crate) fn catalog(&self, body: &[u8], reply: &LocalReply) -> LocalResult {
        let (Some(names), None) = (&self.keeping.bounds.names, &self.other_names) else {
            let refusal = self.other_names.clone();
            return Err(refusal.unwrap_or_default());
        };
        let wanted = |refusal| Refusal {
            wanted: "use the catalog".into(),
            ..refusal
        };
        let catalog = names.catalog().map_err(wanted)?;
        let value: Value = read(body)?;
        let (mut lines, mut count) = (Vec::new(), 1);
        if value.get("changes").is_some() {
            let made = catalog.change(&read::<Changes>(body)?).map_err(wanted)?;
            put(&mut lines, &made);
        } else {
            count = 0;
            let asked = catalog.ask(&read::<Question>(body)?, &mut |answer| {
                if lines.len() > BODY_BYTES_MAX / 4 {
                    reply.tell_with(Response::Answers, &lines, &[]);
                    lines.clear();
                }
                count += 1;
                put(&mut lines, &answer);
                Ok(())
            });
            asked.map_err(wanted)?;
        }
        if !lines.is_empty() {
            reply.tell_with(Response::Answers, &lines, &[]);
        }
        of_files(count)
    }
}

fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(text).map_err(|error| {
        let refusal = Refusal::new(Kind::Invalid, "use the catalog", error.to_string());
        refusal.next("write a question or changes as crates/wire/openapi.json has them")
    })
}

pub(crate) fn put(lines: &mut Vec<u8>, line: &impl Serialize) {
    serde_json::to_writer(&mut *lines, line).expect("it is written to memory");
    lines.push(b'\n');
}
