//! Transfers that members make for this session, see [`crate::stripes`].

use super::{
    FtpSession, LinkState, TICK_NEVER, now, publish::UploadPlan, receive::News, send::SendOrder,
};
use crate::ftp::stripes::{self, MemberWord, StripeLogin, Stripes};
use godwit_core::{Chain, Extents, Kind, Leaves, leaf_range};
use godwit_store::{
    Error, Result, Sink, SinkExt, Store, Write,
    channel::{Received, Watch},
};
use godwit_wire::{
    client::Line,
    command::TransferMode,
    marker::Marker,
    server::{FtpOutcome, Give, Leg, Refusal},
    shield::DataPeer,
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

impl FtpSession {
    /// Has the members listen; `None`: there is none, and we listen ourselves.
    pub(super) fn listen_striped(&mut self) -> Option<Vec<SocketAddr>> {
        self.held = None;
        while self.gather() {
            let mut stripes = self.stripes.take()?;
            let cancel = self.watch.canceled().clone();
            match stripes.listen(&cancel) {
                Ok(all) => {
                    self.stripes = Some(stripes);
                    return Some(all);
                }
                Err(error) => {
                    tracing::warn!(%error, "a member does not listen");
                    stripes.stop(&mut |_, _| Ok(()));
                    if stripes.count() > 0 {
                        self.stripes = Some(stripes);
                    }
                }
            }
        }
        None
    }

    /// Makes sure that there are members to talk to.
    fn gather(&mut self) -> bool {
        if self.stripes.as_ref().is_some_and(Stripes::is_alive) {
            return true;
        }
        if self.is_under_tls() || self.is_by_ticket() {
            return false; // members have certificates of their own names, and no part in a ticket
        }
        let login = match self.login_at_members() {
            Ok(login) => login,
            Err(error) => {
                tracing::warn!(%error, "members cannot be spoken to");
                return false;
            }
        };
        if login.key.is_none() {
            tracing::warn!("members refuse work without a key of the cluster: cluster.key");
            return false;
        }
        self.stripes = Stripes::gather(&self.shared.config, &login, self.watch.canceled());
        self.stripes.is_some()
    }

    /// Returns the login at members. With the key of the cluster it names the user; without, members treat the node as
    /// any client.
    fn login_at_members(&self) -> godwit_trust::Result<StripeLogin> {
        let key = self.shared.trust.as_member()?;
        let shown = match (&key, self.data_credential()) {
            (Some(_), Some(shown)) if !shown.identity().is_member() => Some(shown.to_pem()?),
            _ => None,
        };
        Ok(StripeLogin {
            whom: self.whom.clone(),
            key,
            shown,
        })
    }

    /// Tells whether what comes goes to members.
    pub(super) fn is_received_striped(&self) -> bool {
        self.stripes.as_ref().is_some_and(Stripes::is_listening)
    }

    /// Tells whether members send a file of `size` bytes. Existing data connections are used by the server that made
    /// them.
    pub(super) fn is_sent_striped(&mut self, size: u64, leg: &Leg) -> bool {
        if leg.mode != TransferMode::Extended || leg.share.is_some() {
            return false;
        }
        if self.stripes.as_ref().is_some_and(Stripes::has_way) {
            return true;
        }
        let worth_it = self.aimed.len() > 1 || (self.aimed.len() == 1 && size >= STRIPED_MIN);
        let is_ours = self.held.as_mut().is_some_and(|held| held.is_warm());
        worth_it && !is_ours && !self.shared.config.stripes.is_empty() && self.gather()
    }

    /// Refuses a protection of data connections that members cannot provide.
    fn must_protect(&self, leg: &Leg) -> Result<(), Refusal> {
        let is_proven = self.stripes.as_ref().is_some_and(Stripes::is_proven);
        if leg.peer == DataPeer::Anyone || is_proven {
            return Ok(());
        }
        let why = "The stripes of this server cannot prove who they are without a key of the cluster: DCAU N first.";
        Err(Refusal::of_kind(Kind::Unsupported, why))
    }

    pub(super) fn take_striped(
        &mut self,
        path: &Path,
        give: &Give,
        leg: &Leg,
    ) -> Result<(FtpOutcome, u64), Refusal> {
        self.must_protect(leg)?;
        let plan = UploadPlan::of(self.dir(), path, give, leg.mode)?;
        let watch = Arc::new(self.watch_over(leg)?);
        let write = Write {
            watch: Some(Arc::clone(&watch)),
            ..plan.write(leg)
        };
        let sink = self.dir().write(path, &write)?;
        let received = self.receive_striped(&*sink, path, &plan, leg, &watch);
        let received = received?;
        let outcome = self.end_upload(path, sink, &plan, give, leg, (received, &watch))?;
        Ok((outcome, received.bytes))
    }

    fn receive_striped(
        &mut self,
        sink: &dyn Sink,
        path: &Path,
        plan: &UploadPlan,
        leg: &Leg,
        watch: &Watch,
    ) -> Result<Received> {
        let at = sink.lies_at().ok_or_else(|| Error::Unsupported {
            what: "writing this by several".into(),
            why: "other nodes do not see its file".into(),
        })?;
        let esto = Line::new("ESTO A").and(plan.base).bytes(&named(&at))?;
        self.work_striped(path, watch, |session, stripes, watch| {
            stripes.receive(leg, &esto)?;
            let warm = session.attended(watch, TICK_NEVER, &mut |_| {}, || {
                stripes.until_begun(path, watch)
            })?;
            session.machine.on_open(warm);
            let count = stripes.count();
            let arrived = Arrived::new(sink, count);
            let mut news = News::new(leg, sink);
            if leg.progress_every.is_some() {
                session.machine.on_progress(&vec![0; count], now());
            }
            let moved = session.attended(
                watch,
                news.every(),
                &mut |machine| news.tell(machine, &arrived.bytes()),
                || {
                    let moved = stripes
                        .until_over(path, watch, &mut |nth, word| arrived.on_word(nth, word));
                    if moved.is_err() {
                        stripes.stop(&mut |nth, word| arrived.on_word(nth, word));
                    }
                    moved
                },
            );
            news.tell_last(&mut session.machine, &arrived.bytes());
            moved?;
            Ok(Received {
                bytes: arrived.bytes().iter().sum(),
                streams: count as u64,
                lacks: None,
            })
        })
    }

    pub(super) fn send_striped(
        &mut self,
        order: &SendOrder<'_>,
    ) -> Result<(FtpOutcome, u64), Refusal> {
        self.must_protect(order.leg)?;
        self.check_readable(order.path)?;
        self.deal_out(order).map_err(Refusal::from)
    }

    fn deal_out(&mut self, order: &SendOrder<'_>) -> Result<(FtpOutcome, u64)> {
        let &SendOrder {
            path,
            stat,
            ref part,
            want,
            leg,
        } = order;
        let name = named(path);
        let mut lines = Vec::new();
        if !want.have.is_empty() {
            lines.push(Line::new("REST").and(&want.have));
        }
        lines.push(match want.part == (0..u64::MAX) {
            true => Line::new("RETR").bytes(&name)?,
            false => {
                let len = part.end - part.start;
                let eret = format!("ERET P {} {len}", part.start);
                Line::new(&eret).bytes(&name)?
            }
        });
        let sending = stripes::StripeSending {
            to: self.aimed.clone(),
            streams: leg.streams.min(self.shared.config.limits.streams),
            striping: leg.striping.unwrap_or_default(),
            lines,
        };
        // Members send, so this node's own connections are closed.
        self.held = None;
        let watch = self.watch_over(leg)?;
        let size = stat.size;
        let (bytes, root) = self.work_striped(path, &watch, |session, stripes, watch| {
            stripes.send(leg, &sending)?;
            let sent = SentStripes::default();
            let every = if leg.leaves { LEAVES_EVERY } else { TICK_NEVER };
            let every = every.min(leg.progress_every.unwrap_or(TICK_NEVER));
            let mut last = Instant::now();
            // Leaves may be told before all members have begun.
            let warm = session.attended(watch, TICK_NEVER, &mut |_| {}, || {
                stripes.until_begun(path, watch)
            })?;
            session.machine.on_open(warm);
            let moved = session.attended(
                watch,
                every,
                &mut |machine| {
                    if leg.leaves {
                        machine.on_leaves(&sent.take_leaves());
                    }
                    if leg
                        .progress_every
                        .is_some_and(|every| last.elapsed() >= every)
                    {
                        last = Instant::now();
                        machine.on_progress(&sent.bytes(), now());
                    }
                },
                || {
                    let moved =
                        stripes.until_over(path, watch, &mut |nth, word| sent.on_word(nth, word));
                    if moved.is_err() {
                        stripes.stop(&mut |_, _| Ok(()));
                    }
                    moved
                },
            );
            moved?;
            if leg.leaves {
                session.machine.on_leaves(&sent.take_leaves());
            }
            if leg.progress_every.is_some() {
                session.machine.on_progress(&stripes.bytes(), now());
            }
            Ok((stripes.bytes().iter().sum::<u64>(), sent.root(size)))
        })?;
        let after = self.dir().stat(path)?;
        if (after.size, after.mtime) != (stat.size, stat.mtime) {
            return Err(Error::changed(path, "it was written while it was sent"));
        }
        let outcome = FtpOutcome {
            size: Some(after.size),
            modify: after.mtime,
            touched: after.touched,
            blake3: root,
            ..FtpOutcome::default()
        };
        Ok((outcome, bytes))
    }

    /// Runs work on all members; a failure or an abort stops all of them.
    fn work_striped<T>(
        &mut self,
        path: &Path,
        watch: &Watch,
        work: impl FnOnce(&mut Self, &mut Stripes, &Watch) -> Result<T>,
    ) -> Result<T> {
        self.flush().map_err(|_| Error::Canceled)?;
        let Some(mut stripes) = self.stripes.take() else {
            return Err(Error::unsupported(
                "a striped transfer",
                "no member answers",
            ));
        };
        self.links = LinkState::Underway;
        let worked = work(self, &mut stripes, watch);
        match &worked {
            Ok(_) => self.links = LinkState::Done,
            Err(error) => {
                tracing::info!(path = %path.display(), %error, "striped transfer ended");
                stripes.stop(&mut |_, _| Ok(()));
            }
        }
        self.stripes = Some(stripes);
        worked
    }
}

/// Returns a path as members expect it.
fn named(path: &Path) -> Vec<u8> {
    [b"/", path.as_os_str().as_bytes()].concat()
}

/// Reports of members about bytes that arrived.
struct Arrived<'a> {
    sink: &'a dyn Sink,
    of: Mutex<Vec<Arrival>>,
}

#[derive(Default)]
struct Arrival {
    bytes: u64,
    came: Extents,
    /// Leaves that were reported, and whose bytes are not all durable yet.
    leaves: BTreeMap<u64, Chain>,
}

impl<'a> Arrived<'a> {
    fn new(sink: &'a dyn Sink, count: usize) -> Self {
        let of = std::iter::repeat_with(Arrival::default)
            .take(count)
            .collect();
        Self {
            sink,
            of: Mutex::new(of),
        }
    }

    fn bytes(&self) -> Vec<u64> {
        self.of.lock().iter().map(|one| one.bytes).collect()
    }

    /// A member reports ranges once they are durable, and leaves before.
    fn on_word(&self, nth: usize, word: MemberWord) -> Result<()> {
        let mut all = self.of.lock();
        let Some(one) = all.get_mut(nth) else {
            return Ok(());
        };
        match word {
            MemberWord::Told(Marker::Progress(progress)) => {
                one.bytes = progress.bytes.max(one.bytes);
                Ok(())
            }
            MemberWord::Told(Marker::Leaves { first, chains }) => {
                one.leaves.extend((first..).zip(chains));
                Ok(())
            }
            MemberWord::Told(Marker::Ranges(ranges)) => {
                one.came = one.came.or(&ranges);
                let came = &one.came;
                let whole: Vec<(u64, Chain)> = one
                    .leaves
                    .extract_if(.., |&leaf, _| came.contains(&leaf_range(leaf)))
                    .collect();
                self.sink.came(&ranges, &whole)
            }
            _ => Ok(()),
        }
    }
}

/// Reports of members about bytes that they sent.
#[derive(Default)]
struct SentStripes(Mutex<Departures>);

#[derive(Default)]
struct Departures {
    bytes: BTreeMap<usize, u64>,
    fresh: BTreeMap<u64, Chain>,
    leaves: Leaves,
}

impl SentStripes {
    fn on_word(&self, nth: usize, word: MemberWord) -> Result<()> {
        let mut sent = self.0.lock();
        match word {
            MemberWord::Told(Marker::Progress(progress)) => {
                sent.bytes.insert(nth, progress.bytes);
            }
            MemberWord::Told(Marker::Leaves { first, chains }) => {
                for (leaf, chain) in (first..).zip(chains) {
                    sent.leaves.set(leaf, chain);
                    sent.fresh.insert(leaf, chain);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn take_leaves(&self) -> Vec<(u64, Chain)> {
        std::mem::take(&mut self.0.lock().fresh)
            .into_iter()
            .collect()
    }

    fn bytes(&self) -> Vec<u64> {
        self.0.lock().bytes.values().copied().collect()
    }

    fn root(&self, size: u64) -> Option<String> {
        self.0.lock().leaves.root(size).map(|digest| digest.hex())
    }
}

const LEAVES_EVERY: Duration = Duration::from_millis(100);
/// For less it is not worth while to ask others, unless the client has many addresses.
const STRIPED_MIN: u64 = 16 << 20;
