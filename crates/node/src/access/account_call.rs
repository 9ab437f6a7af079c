//! The local node of an account, asked by a node of another account for a user of another machine.
//!
//! A process that becomes the account finds its node, or starts it, and names the user before it hands the connection
//! over. Over the connection only requests of visitors are possible then, even if the node that holds it is taken over.

use godwit_local::{Environment, Kind, NodeConnection, Refusal, who};
use godwit_sys::{Errand, ErrandResult, Steward, why};
use godwit_wire::local::{Request, request::Hello};
use std::{
    collections::BTreeMap,
    env, io,
    time::{Duration, Instant},
};

/// Returns the errand of the steward for other accounts.
pub(crate) fn errand() -> Errand {
    let program = env::current_exe().ok();
    Errand {
        run: introduce,
        variables: program
            .map(|program| ("GODWIT_BIN".into(), program.into()))
            .into_iter()
            .collect(),
    }
}

/// Begins a conversation with the node of that account, in which a visitor speaks. A refusal says what to do next.
pub(crate) fn converse(
    steward: &Steward,
    account: &str,
    visitor: &str,
) -> Result<NodeConnection, Refusal> {
    match steward.send(account, visitor) {
        Ok(Ok(socket)) => Ok(NodeConnection::go_on(socket)),
        Ok(Err(words)) => {
            let silent = || Refusal::new(Kind::NoNode, WANTED, "it does not say why not");
            let refusal = Refusal::read(&words).unwrap_or_else(silent);
            // Advice about programs is for the account's own user.
            let does = match refusal.kind {
                Kind::Version => {
                    "node stop, said there by {account}, ends it: the next who asks begins one of today"
                }
                _ => "cache ls, said there by {account}, begins it or tells what to mend",
            };
            Err(refusal.next(format!("godwit {}", does.replace("{account}", account))))
        }
        Err(error) => Err(not_sent(&error)),
    }
}

fn not_sent(error: &io::Error) -> Refusal {
    let (reason, next) = match error.kind() {
        io::ErrorKind::PermissionDenied => (
            Kind::Denied,
            "godwit peers map gives a peer another account",
        ),
        io::ErrorKind::ResourceBusy => (Kind::Busy, "ask again in a minute"),
        io::ErrorKind::TimedOut => (Kind::Late, "ask again in a minute"),
        _ => (Kind::NoNode, "the log of the node that was asked says more"),
    };
    Refusal::new(reason, WANTED, why(error)).next(next)
}

/// Returns the introduction of a connection for a user of another machine.
pub(crate) fn hello(visitor: &str, environment: Environment<'_>) -> Hello {
    Hello {
        session: None,
        job: BTreeMap::new(),
        cgroup: None,
        scratch: None,
        credential: None,
        visitor: Some(visitor.into()),
        ..who("godwit", environment)
    }
}

/// Runs as the account: introduces the user, and returns the connection.
fn introduce(visitor: &str) -> ErrandResult {
    let environment = |name: &str| env::var_os(name);
    let here = NodeConnection::find(&hello(visitor, &environment), &environment);
    match here.and_then(as_visitor) {
        Ok(here) => Ok(here.give_up()),
        Err(refusal) => Err(refusal.write()),
    }
}

/// Refuses an older node: it would treat the visitor as a program of the account.
fn as_visitor(mut here: NodeConnection) -> Result<NodeConnection, Refusal> {
    let deadline = Instant::now() + PATIENCE;
    match here.ask_with(Request::Status, b"", Some(deadline), &mut |_| ()) {
        Err(refusal) if refusal.kind == Kind::Unsupported => Ok(here),
        Err(refusal) => Err(refusal),
        Ok(_) => {
            let words = "it is an older godwit, which does not keep visitors apart";
            Err(Refusal::new(Kind::Version, WANTED, words))
        }
    }
}

const WANTED: &str = "reach the node of an account";
const PATIENCE: Duration = Duration::from_secs(10);
