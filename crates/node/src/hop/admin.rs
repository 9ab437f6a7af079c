//! The local socket of a hop for its operator: lists pending changes and decides about those on hold.
//!
//! The socket is in the spool, so that `GODWIT_SOCKET` names it. Files are written and read by the hop's own URL, not
//! by this socket.

use crate::{Error, access::connect::connect, base::stop::Stop, config::OnFault};
use crate::{
    config::routes::Routes,
    local::{
        LocalError, LocalRules,
        alerts::AlertThread,
        client::Client,
        connection::LocalReply,
        keeping::{DepotState, NodeFacts},
        server::{Connection, Handler, LocalNode, Visitor},
        socket::settle,
    },
};
use godwit_depot::Depot;
use godwit_local::{Kind, NodePlace, Refusal};
use godwit_store::channel::Cancel;
use godwit_trust::PeersDir;
use godwit_wire::local::{Request, response};
use std::{fmt, path::Path, sync::Arc, time::Duration};

/// Answers the operator of a hop, until this is dropped.
pub(crate) struct Operating {
    node: Option<LocalNode>,
    _watching: AlertThread,
}

impl Operating {
    /// Listens in the spool, and begins to watch for faults. A `stop` request ends the hop.
    pub(crate) fn start(
        depot: Arc<Depot>,
        spool: &Path,
        (home, routes): (Option<PeersDir>, Routes),
        on_fault: OnFault,
        hop: Stop,
    ) -> Result<Self, LocalError> {
        let spool = std::path::absolute(spool).map_err(Error::Start)?;
        let place = NodePlace::of(Some(&spool.join("socket")), Some(&spool), &|_| None)?;
        let alive = settle(&place)?;
        let cancel = Cancel::new().map_err(Error::Start)?;
        let connect = connect(home.clone(), routes.clone(), None, cancel.clone());
        let bounds = NodeFacts {
            serve: None,
            state: spool,
            is_of_job: false,
            is_installed: true,
            names: None,
            export: None,
        };
        let whose = (home, routes.clone());
        let keeping = DepotState::new(depot, (connect, cancel), whose, bounds);
        let watching = AlertThread::start(&keeping, on_fault.clone()).map_err(Error::Start)?;
        let rules = LocalRules {
            place,
            idle: Duration::MAX,
            quota: None,
            scrub_every: None,
            is_of_job: false,
            is_installed: true,
            on_fault,
            routes,
            catalog: None,
            export: None,
        };
        Ok(Self {
            node: Some(LocalNode::start(
                rules,
                alive,
                Arc::new(OfHop { keeping, hop }),
            )?),
            _watching: watching,
        })
    }
}

impl Drop for Operating {
    /// A process that waits for the lock finds that the hop has ended.
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            node.stopper().drain();
            node.wait();
        }
    }
}

impl fmt::Debug for Operating {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operating").finish_non_exhaustive()
    }
}

struct OfHop {
    keeping: Arc<DepotState>,
    hop: Stop,
}

impl Handler for OfHop {
    fn visit(self: Arc<Self>, visitor: Visitor) -> Result<Box<dyn Connection>, Refusal> {
        let guest = Arc::clone(&self.keeping).guest(visitor);
        Ok(Box::new(Operator(guest)))
    }

    fn owes(&self) -> bool {
        true
    }

    fn status(&self, status: &mut response::Status) {
        self.keeping.status(status);
    }

    /// The depot ends with the hop: clients may still be writing to it.
    fn end(&self) {
        self.hop.drain();
        self.keeping.cancel.cancel();
    }
}

struct Operator(Client);

impl Connection for Operator {
    fn answer(&self, ask: Request, body: Vec<u8>, reply: &LocalReply) {
        match ask {
            Request::Queue(_)
            | Request::Commit(_)
            | Request::Push(_)
            | Request::Retry(_)
            | Request::Release(_)
            | Request::Redirect(_)
            | Request::Drop(_) => self.0.answer(ask, body, reply),
            _ => reply.refuse(
                Refusal::new(
                    Kind::Unsupported,
                    "do that at the socket of a hop",
                    "it tells what the hop holds, and what becomes of that is decided there; files go by its URL",
                )
                .next("godwit queue shows what it holds; without GODWIT_SOCKET programs find the node of this machine"),
            ),
        }
    }
}
