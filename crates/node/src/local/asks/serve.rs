//! A directory of a program, served to others while the program runs.
//!
//! The directory is served by a node within this one, so the rules of every node hold: links are followed only with
//! rights, uploads are whole or absent. The program needs no thread: each operation of a visitor is a question over its
//! connection, and the visitor waits for the answer up to a limit.

use crate::local::{
    answers::{LocalResult, done, unknown},
    client::Client,
    connection::LocalReply,
    refusals,
};
use crate::{
    Addresses, Config, Error,
    base::stop::Stop,
    config::{Access, AccessWord, Porter},
};
use godwit_local::{Kind, Refusal};
use godwit_trust::{Identity, Permission};
use godwit_wire::{
    door::call::Link,
    local::{
        Response, request,
        response::{self, AccessRequest},
    },
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// The answer to each visitor that waits; `None`: not yet.
type AccessWords = HashMap<u64, Option<AccessWord>>;

/// Visitors of a program that wait for its word.
#[derive(Default)]
pub(crate) struct AccessRequests {
    waiting: Mutex<AccessWords>,
    numbers: AtomicU64,
    told: Condvar,
}

impl AccessRequests {
    /// Asks, and waits. Who says nothing says no.
    fn ask(
        &self,
        reply: &LocalReply,
        who: Option<&Identity>,
        deed: Permission,
        path: &Path,
    ) -> AccessWord {
        let until = Instant::now() + PATIENCE;
        let number = self.numbers.fetch_add(1, Relaxed) + 1;
        let mut waiting = self.waiting.lock();
        // A program that does not listen is not told ever more.
        while waiting.len() >= AT_ONCE_MAX {
            if !self.wait(&mut waiting, until, reply) {
                return AccessWord::No;
            }
        }
        waiting.insert(number, None);
        drop(waiting);
        reply.tell(Response::AccessRequest(AccessRequest {
            knock: number,
            who: who.map(|who| who.subject().to_owned()),
            deed: deed.as_str().to_owned(),
            path: Link(PathBuf::from("/").join(path)),
        }));
        let mut waiting = self.waiting.lock();
        let word = loop {
            if let Some(word) = waiting.get_mut(&number).and_then(Option::take) {
                break word;
            }
            if !self.wait(&mut waiting, until, reply) {
                break AccessWord::No;
            }
        };
        waiting.remove(&number);
        drop(waiting);
        self.told.notify_all();
        word
    }

    /// Waits for a word; false: there is no time left, or all that could say it are gone.
    fn wait(
        &self,
        waiting: &mut MutexGuard<'_, AccessWords>,
        until: Instant,
        reply: &LocalReply,
    ) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || reply.is_over() {
            return false;
        }
        self.told.wait_for(waiting, left.min(LOOK));
        true
    }

    /// Passes the program's answer to the visitor that waits for it.
    pub(crate) fn answered(&self, told: &request::AccessReply) {
        // An invalid URL refers to nothing.
        let elsewhere = told.refer.as_ref().map(|url| refusals::url(url));
        let word = match elsewhere {
            Some(Ok(url)) => AccessWord::Elsewhere(url.without_password().to_string()),
            None if told.may => AccessWord::Yes,
            _ => AccessWord::No,
        };
        if let Some(waiting) = self.waiting.lock().get_mut(&told.knock) {
            *waiting = Some(word);
        }
        self.told.notify_all();
    }
}

/// A node that serves a directory of a program.
pub(crate) trait ServedNode {
    fn addresses(&self) -> &Addresses;
    fn stopper(&self) -> Stop;
    fn wait(self: Box<Self>);
}

/// Starts a node.
pub(crate) type StartNode = fn(Config) -> Result<Box<dyn ServedNode>, Error>;

impl Client {
    /// Serves until the request is cancelled or the connection ends.
    pub(crate) fn serve(&self, serve: &request::Serve, reply: &LocalReply) -> LocalResult {
        let (node, scheme) = self.begin_to_serve(serve, reply)?;
        let url = match (node.addresses().https.first(), node.addresses().ftp.first()) {
            (Some(address), _) => format!("godwit://{address}/"),
            (None, Some(address)) => format!("{scheme}://{address}/"),
            (None, None) => String::new(),
        };
        reply.tell(Response::Serving { url });
        let mut waiting = self.knocks.waiting.lock();
        while !reply.is_over() {
            self.knocks.told.wait_for(&mut waiting, LOOK);
        }
        drop(waiting);
        node.stopper().at_once();
        node.wait();
        done(response::Done::default())
    }

    /// Returns it, and by which scheme those come who speak FTP.
    fn begin_to_serve(
        &self,
        serve: &request::Serve,
        reply: &LocalReply,
    ) -> Result<(Box<dyn ServedNode>, &'static str), Refusal> {
        let shown = serve.directory.0.display();
        let wanted = format!("serve {shown}");
        let no = |words: String| Refusal::new(Kind::Invalid, wanted.clone(), words);
        if !serve.directory.0.is_absolute() {
            return Err(no("it is no absolute path".into()));
        }
        if let Err(error) = serve.directory.0.read_dir() {
            return Err(refusals::disk(&wanted, &error));
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
            let writes = serve.writes || serve.outputs;
            let access = if writes { "write" } else { "read" };
            flags.push(("anonymous.access", "writes", access.to_owned()));
        }
        let mut config = Config::load(file, [], &flags).map_err(|error| no(error.to_string()))?;
        let is_asked = serve.asks || serve.outputs;
        config.porter = is_asked.then(|| self.porter(serve, reply));
        // If a server refuses anonymous clients, its clients prove an identity.
        let is_proved = config.trust.certificate.is_some() && config.anonymous == Access::None;
        let scheme = if is_proved { "gsiftp" } else { "ftp" };
        let start = self.keeping.bounds.serve.ok_or_else(unknown)?;
        let node = start(config).map_err(|error| {
            Refusal::new(Kind::InUse, wanted, error.to_string())
                .next("name another directory, or another place to listen")
        })?;
        Ok((node, scheme))
    }

    fn porter(&self, serve: &request::Serve, reply: &LocalReply) -> Porter {
        let (knocks, reply) = (Arc::clone(&self.knocks), reply.clone());
        let (asks, writes) = (serve.asks, serve.writes);
        let outputs = if serve.outputs { OUTPUTS } else { &[] };
        let decide = move |who: Option<&Identity>, deed, path: &Path| {
            let is_output = outputs.iter().any(|output| path == Path::new(output));
            let is_possible = match deed {
                Permission::Read | Permission::List => true,
                Permission::Write => writes || is_output,
                _ => writes && !is_output,
            };
            match (is_possible, asks) {
                (false, _) => AccessWord::No,
                (true, false) => AccessWord::Yes,
                (true, true) => knocks.ask(&reply, who, deed, path),
            }
        };
        Porter {
            decide: Arc::new(decide),
            outputs,
        }
    }
}

/// Names that visitors append to; the program that serves them prints the bytes.
const OUTPUTS: &[&str] = &["dev/stdout", "dev/stderr"];
/// Where it is served unless the program says.
const HERE: &str = "127.0.0.1:0";
/// How long a visitor waits for the program's answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many questions the program has at once.
const AT_ONCE_MAX: usize = 16;
/// How often the connection of the program is checked.
const LOOK: Duration = Duration::from_millis(250);
