//! Files are handed in to the node, once their last writers closed them.

use crate::{
    Lost, Shared,
    asking::{Failed, NO_THREAD, Result},
    body::{Body, Kept, State, Writes},
    reader::opened,
    syncing::open_again,
};
use godwit_local::{Kind, Refusal};
use godwit_wire::local::{
    Request,
    request::{self, NameDeed, Selector},
};
use std::{fs::File, io};

impl Shared {
    /// Hands in a written file, then does the operations on its name that waited for that.
    pub(crate) fn end(&self, number: u64, body: &Body) {
        if let Err(failed) = self.hand_in(body) {
            self.tell_lost(body, &failed);
        }
        let mut nodes = self.nodes.lock();
        if let Ok(node) = nodes.get(number) {
            node.writes = Writes::None;
        }
        nodes.forget(number, 0);
        self.settled.notify_all();
    }

    /// Reports that a file is not kept as it was written, and remembers its name.
    fn tell_lost(&self, body: &Body, failed: &Failed) {
        let is_partial = failed.is_node_lost() && body.hold.read().kept == Kept::AsWritten;
        let wanted = format!("keep {}", body.url());
        let refusal = match failed {
            Failed::Refused(refusal) if !failed.is_node_lost() => Refusal {
                wanted,
                ..refusal.clone()
            },
            _ if is_partial => {
                let words = "the node of this machine ended while it was written: it is as far as it was written by then";
                Refusal::new(Kind::NodeLost, wanted, words).next("write it again")
            }
            _ => {
                let words = "the node of this machine ended before it was committed: what was written is lost";
                Refusal::new(Kind::NodeLost, wanted, words).next("write it again")
            }
        };
        self.asking.report(&refusal);
        if body.made.is_some() && !is_partial {
            let (url, unlink) = (body.url(), |url| Request::Deed(NameDeed::Unlink { url }));
            let _ = self.asking.ask(NO_THREAD, &unlink(url));
        }
        let url = body.url();
        self.lost.lock().push(Lost { url, is_partial });
    }

    fn hand_in(&self, body: &Body) -> Result<()> {
        // Opened again in case the node ends before it has taken the file.
        let kept = body.hold.read().kept;
        let again = match kept {
            Kept::AtTheEnd => body.with(|file| open_again(file, false)).ok(),
            _ => None,
        };
        if let Some(parts) = &body.parts {
            let handed = self.keep_parts(body, parts);
            self.asking.give_back(body.at_node());
            handed?;
        }
        // The node sees the last writer go.
        drop(body.hold.write().file.take());
        let state = std::mem::take(&mut *body.state.lock());
        let ended = match kept {
            Kept::AtTheEnd | Kept::AsWritten => self.asking.end(body.at_node(), state.is_unlinked),
            Kept::InParts | Kept::Synced | Kept::Orphan => Ok(()),
        };
        match ended {
            Err(failed) if failed.is_node_lost() && !state.is_cut_short => match again {
                Some(bytes) => self.save(body, &state, bytes)?,
                // The node persisted it, and the next node finds the bytes.
                None => self.commit_again(body)?,
            },
            ended => ended?,
        }
        if state.is_unlinked {
            return Ok(());
        }
        let mut url = body.url();
        for deed in state.then {
            if let NameDeed::Rename { to, .. } = &deed {
                url.clone_from(to);
            }
            self.asking.ask(NO_THREAD, &Request::Deed(deed))?;
        }
        let is_set = state.mode.is_some() || state.mtime_ns.is_some();
        if is_set {
            let set = NameDeed::Set {
                url,
                mode: state.mode,
                mtime_ns: state.mtime_ns,
            };
            self.asking.ask(NO_THREAD, &Request::Deed(set))?;
        }
        Ok(())
    }

    fn commit_again(&self, body: &Body) -> Result<()> {
        let whose = Selector {
            url: Some(body.url()),
            ..Selector::default()
        };
        self.asking
            .ask(NO_THREAD, &Request::Commit(whose))
            .map(drop)
    }

    /// Gives the next node a file that was closed, and that the last node did not keep.
    fn save(&self, body: &Body, state: &State, bytes: File) -> Result<()> {
        if state.is_unlinked {
            return Ok(());
        }
        let put = Request::Put(request::PutRequest {
            url: body.url(),
            mode: body.mode,
            new: body.is_exclusive,
            base: body.made.clone(),
            ..request::PutRequest::default()
        });
        let (era, answer) = self.asking.ask(NO_THREAD, &put)?;
        let (opened, mut file) = opened(answer)?;
        let mut bytes = &bytes;
        io::copy(&mut bytes, &mut file)?;
        drop(file);
        self.asking.end((era, opened.handle), false)
    }

    /// Hands in all that is still open: nothing can write it any more.
    pub(crate) fn end_all(&self) {
        let handles: Vec<u64> = self.open.lock().keys().copied().collect();
        for handle in handles {
            if let Some((number, body)) = self.release(handle) {
                self.end(number, &body);
            }
        }
        let mut nodes = self.nodes.lock();
        while nodes
            .all()
            .any(|(_, node)| matches!(node.writes, Writes::Busy))
        {
            self.settled.wait(&mut nodes);
        }
    }
}
