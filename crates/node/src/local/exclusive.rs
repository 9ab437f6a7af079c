//! Files that programs make for themselves alone.

use super::{Reply, desk::Guest, refusing};
use godwit_core::{Fault, Url, holding::Base};
use godwit_depot::{By, Error};
use godwit_local::Refusal;
use std::time::Duration;

impl Guest {
    /// Makes a file at its server, if that is there and can. Returns what the server has then.
    pub(super) fn made_at_server(
        &self,
        url: &Url,
        mode: Option<u32>,
        reply: &Reply,
    ) -> Result<Base, Refusal> {
        let is_wanted = || !reply.is_over();
        let by = By {
            who: &self.who,
            session: &self.session,
            is_wanted: &is_wanted,
        };
        match self.desk.depot.make_at_server(url, by, mode, PATIENCE) {
            Ok(Some(version)) => Ok(Base::Seen(version)),
            Ok(None) => Ok(Base::Absent),
            // Its server is away: the name must still be absent when the file is delivered.
            Err(Error::Store(error)) if error.fault() == Fault::Passing => Ok(Base::Absent),
            Err(Error::TimedOut { .. }) => Ok(Base::Absent),
            Err(error) => {
                let wanted = format!("make {}", url.without_password());
                Err(refusing::depot(&wanted, Some(url), &error))
            }
        }
    }
}

/// How long a server may take to make a file, with all that goes first there.
const PATIENCE: Duration = Duration::from_secs(10);
