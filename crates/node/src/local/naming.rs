//! Names of a catalog, for programs of this machine.

use super::desk::{Guest, Keeping};
use godwit_local::{Kind, Refusal};
use godwit_store::engine::NO_CATALOG;
use godwit_wire::local::Ask;

impl Keeping {
    /// Returns the refusal of every name to a program of that catalog, unless it is the one of this node.
    pub(super) fn other_names(&self, theirs: Option<&str>, is_of_another: bool) -> Option<Refusal> {
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

impl Guest {
    /// Refuses what is asked about names of another catalog.
    pub(super) fn must_know_names(&self, ask: &Ask) -> Result<(), Refusal> {
        let Some(refusal) = &self.other_names else {
            return Ok(());
        };
        let text = serde_json::to_string(ask).unwrap_or_default();
        let is_about_names = ["\"grid:", "/godwit/grid/"]
            .iter()
            .any(|name| text.contains(name));
        match is_about_names {
            true => Err(refusal.clone()),
            false => Ok(()),
        }
    }
}
