//! Why a transfer waits before its next try, in words.

use godwit_store::{Error, engine::Tries};
use godwit_sys::why;
use std::fmt;

/// A wait before the next try: `waiting for lab to answer again (connection refused), try 3 of 5`.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    what: String,
    tries: Tries,
    /// This wait was said on a line of its own.
    pub(crate) was_said: bool,
}

impl Waiting {
    /// Returns the wait after an error, before the given try.
    pub(crate) fn new(error: &Error, tries: Tries) -> Self {
        let (host, reason) = match error {
            Error::Unreachable { host, cause } | Error::Lost { host, cause, .. } => {
                (Some(host), why(cause))
            }
            Error::Stalled { host, waited, .. } => (
                Some(host),
                format!("nothing came for {} s", waited.as_secs()),
            ),
            Error::Away { host, at } => (Some(host), format!("not connected to {at}")),
            Error::Busy { host, said, .. } => (Some(host), said.clone()),
            other => (None, other.to_string()),
        };
        let what = match host {
            Some(host) => format!("waiting for {host} to answer again ({reason})"),
            None => format!("waiting to try again ({reason})"),
        };
        Self {
            what,
            tries,
            was_said: false,
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tries { nth, most } = self.tries;
        write!(f, "{}, try {nth} of {most}", self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn waiting_names_host_and_cause() {
        let said = |error| Waiting::new(&error, Tries { nth: 3, most: 5 }).to_string();
        let cause = || io::Error::from_raw_os_error(111);
        let host = || "lab".to_owned();
        let refused = Error::unreachable(host(), cause());
        let wanted = "waiting for lab to answer again (connection refused), try 3 of 5";
        assert_eq!(said(refused), wanted);
        assert_eq!(said(Error::lost(host(), "sending", cause())), wanted);
        let full = Error::no_space("f", "");
        assert_eq!(
            said(full),
            "waiting to try again (f: no space left), try 3 of 5"
        );
    }
}
