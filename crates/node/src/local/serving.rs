//! A directory of a program, served to others as long as the program is there.
//!
//! What is served is a node of its own within this one, so that whoever comes finds what every node has: links are
//! followed by nobody who may not, uploads are whole or absent. The program starts no thread for it: each deed of a
//! visitor is a question over its connection, and a visitor waits for the word a while.

use super::{
    Reply,
    desk::{Answered, Guest, done, lock},
    refusing,
};
use crate::{Config, Node, guarded::Porter};
use godwit_local::{Refusal, Why};
use godwit_trust::{Deed, Identity};
use godwit_wire::{
    door::call::Link,
    local::{
        Tell, ask,
        tell::{self, Knock},
    },
};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Visitors of a program that wait for its word.
#[derive(Default)]
pub(super) struct Knocks {
    /// What was said to each, if it was.
    waiting: Mutex<HashMap<u64, Option<bool>>>,
    numbers: AtomicU64,
    told: Condvar,
}

impl Knocks {
    /// Asks, and waits. Who says nothing says no.
    fn ask(&self, reply: &Reply, who: Option<&Identity>, deed: Deed, path: &Path) -> bool {
        let until = Instant::now() + PATIENCE;
        let number = self.numbers.fetch_add(1, Relaxed) + 1;
        let mut waiting = self.waiting();
        // A program that does not listen is not told ever more.
        while waiting.len() >= AT_ONCE_MAX {
            match self.wait(waiting, until, reply) {
                Some(again) => waiting = again,
                None => return false,
            }
        }
        waiting.insert(number, None);
        drop(waiting);
        reply.tell(Tell::Knock(Knock {
            knock: number,
            who: who.map(|who| who.subject().to_owned()),
            deed: deed.as_str().to_owned(),
            path: Link(PathBuf::from("/").join(path)),
        }));
        let mut waiting = self.waiting();
        let may = loop {
            if let Some(Some(may)) = waiting.get(&number) {
                break *may;
            }
            match self.wait(waiting, until, reply) {
                Some(again) => waiting = again,
                None => {
                    waiting = self.waiting();
                    break false;
                }
            }
        };
        waiting.remove(&number);
        drop(waiting);
        self.told.notify_all();
        may
    }

    /// Waits for a word; `None`: there is no time left, or nobody who could say it.
    fn wait<'a>(
        &'a self,
        waiting: MutexGuard<'a, HashMap<u64, Option<bool>>>,
        until: Instant,
        reply: &Reply,
    ) -> Option<MutexGuard<'a, HashMap<u64, Option<bool>>>> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || reply.is_over() {
            return None;
        }
        let waited = self.told.wait_timeout(waiting, left.min(LOOK));
        Some(waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// The program has said what it says to somebody.
    pub(super) fn answered(&self, told: &ask::Let) {
        if let Some(word) = self.waiting().get_mut(&told.knock) {
            *word = Some(told.may);
        }
        self.told.notify_all();
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Option<bool>>> {
        lock(&self.waiting)
    }
}

impl Guest {
    /// Serves until nobody wants it any more.
    pub(super) fn serve(&self, serve: &ask::Serve, reply: &Reply) -> Answered {
        let node = self.begin_to_serve(serve, reply)?;
        let url = match (node.addresses().https.first(), node.addresses().ftp.first()) {
            (Some(address), _) => format!("godwit://{address}/"),
            (None, Some(address)) => format!("ftp://{address}/"),
            (None, None) => String::new(),
        };
        reply.tell(Tell::Serving { url });
        let mut waiting = self.knocks.waiting();
        while !reply.is_over() {
            let waited = self.knocks.told.wait_timeout(waiting, LOOK);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(waiting);
        node.stopper().at_once();
        node.wait();
        done(tell::Done::default())
    }

    fn begin_to_serve(&self, serve: &ask::Serve, reply: &Reply) -> Result<Node, Refusal> {
        let shown = serve.directory.0.display();
        let wanted = format!("serve {shown}");
        let no = |words: String| Refusal::new(Why::Invalid, wanted.clone(), words);
        if !serve.directory.0.is_absolute() {
            return Err(no("it is no absolute path".into()));
        }
        if let Err(error) = serve.directory.0.read_dir() {
            return Err(refusing::disk(&wanted, &error));
        }
        let directory = serve.directory.0.to_str();
        let directory = directory.ok_or_else(|| no("its name is no text in UTF-8".into()))?;
        let listen = serve.listen.as_deref().unwrap_or(HERE);
        let mut flags = vec![("node.export", "the directory", directory.to_owned())];
        let file = serve.config.as_ref().map(|config| &*config.0);
        if file.is_none() || serve.listen.is_some() {
            flags.push(("ftp.listen", "where it listens", listen.to_owned()));
        }
        if file.is_none() {
            let access = if serve.writes { "write" } else { "read" };
            flags.push(("anonymous.access", "writes", access.to_owned()));
        }
        let mut config = Config::load(file, [], &flags).map_err(|error| no(error.to_string()))?;
        let porter = serve.asks.then(|| self.porter(serve.writes, reply));
        config.porter = porter;
        Node::start(config).map_err(|error| {
            Refusal::new(Why::Busy, wanted, error.to_string())
                .next("name another directory, or another place to listen")
        })
    }

    fn porter(&self, writes: bool, reply: &Reply) -> Porter {
        let (knocks, reply) = (Arc::clone(&self.knocks), reply.clone());
        Porter(Arc::new(move |who, deed, path| {
            let changes = !matches!(deed, Deed::Read | Deed::List);
            (writes || !changes) && knocks.ask(&reply, who, deed, path)
        }))
    }
}

/// Where it is served unless the program says.
const HERE: &str = "127.0.0.1:0";
/// So long a visitor waits for the program's word.
const PATIENCE: Duration = Duration::from_secs(30);
/// So many visitors are told of to the program at once.
const AT_ONCE_MAX: usize = 16;
/// So often it is looked whether the program is still there.
const LOOK: Duration = Duration::from_millis(250);
