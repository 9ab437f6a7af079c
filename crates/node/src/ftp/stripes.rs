//! A striped transfer as its front sees it: members that share the files send or receive, each a part. This module
//! commands them and reads their reports.
//!
//! The session decides about bytes, and answers the client.

use crate::config::Config;
use godwit_core::{Striping, Url};
use godwit_store::{
    Error, Member, Remote, RemoteOptions, Result, TrustOptions, Whom,
    channel::{Cancel, Watch},
};
use godwit_trust::{Credential, Delegate};
use godwit_wire::{
    address::list_text, base64, client::Line, command::StripeShare, marker::Marker, reply::Reply,
    server::Leg, shield::DataPeer,
};
use std::{
    cell::Cell,
    net::SocketAddr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// The members that work for one session.
#[derive(Debug)]
pub(crate) struct Stripes {
    members: Vec<Member>,
    courses: Vec<Course>,
    way: DataPath,
    is_proven: bool,
}

/// The login at members.
#[derive(Clone, Debug)]
pub(crate) struct StripeLogin {
    /// The identity for which members act.
    pub(crate) whom: Whom,
    /// The key of the cluster; `None`: no encryption, and any member.
    pub(crate) key: Option<Credential>,
    /// The credential for data connections, PEM; `None`: the key of the cluster.
    pub(crate) shown: Option<Vec<u8>>,
}

/// The ends of the data connections.
#[derive(Debug)]
enum DataPath {
    /// Not set yet.
    None,
    /// Members listen.
    Listening,
    /// Members connect to these addresses, each with `streams` connections.
    Aimed { to: Vec<SocketAddr>, streams: usize },
}

/// Progress of a member.
#[derive(Clone, Copy, Debug)]
struct Course {
    /// The final replies that are due; the last of them ends the transfer.
    due: usize,
    /// Bytes that it has moved.
    bytes: u64,
}

/// A file for the members to send.
#[derive(Clone, Debug)]
pub(crate) struct StripeSending {
    /// Where to, if they were not told before.
    pub(crate) to: Vec<SocketAddr>,
    pub(crate) streams: usize,
    pub(crate) striping: Striping,
    /// The last commands: `REST`, `RETR`.
    pub(crate) lines: Vec<Line>,
}

/// A message of a member at work.
pub(crate) enum MemberWord {
    /// The data connections exist, and were used before.
    Begun { warm: bool },
    /// News.
    Told(Marker),
}

impl Stripes {
    /// Logs in to all members at once. A member that does not answer is left out. `None`: none answers.
    pub(crate) fn gather(config: &Config, login: &StripeLogin, cancel: &Cancel) -> Option<Self> {
        let trust = TrustOptions {
            credential: login.key.clone(),
            // The credential of data connections is sent with the transfer.
            delegate: Delegate::No,
            whom: login.whom.clone(),
            ..TrustOptions::default()
        };
        let options = RemoteOptions {
            stall: config.limits.stall,
            connect: CONNECT_MAX,
            trust,
            ..RemoteOptions::new(cancel.clone())
        };
        let try_open = |url: &Url| {
            let opened = open(url, login, &options);
            opened
                .inspect_err(|error| tracing::warn!(member = %url, %error, "left out"))
                .ok()
        };
        let members: Vec<Member> = thread::scope(|scope| {
            let urls = config.stripes.iter();
            let asked: Vec<_> = urls.map(|url| scope.spawn(|| try_open(url))).collect();
            let joined = asked.into_iter().map(|one| one.join());
            joined.filter_map(|one| one.ok().flatten()).collect()
        });
        (!members.is_empty()).then_some(Self {
            members,
            courses: Vec::new(),
            way: DataPath::None,
            is_proven: login.key.is_some(),
        })
    }

    /// Tells whether members know that it is us, so that they prove what we tell them to.
    pub(crate) fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Tells whether all members still take commands.
    pub(crate) fn is_alive(&self) -> bool {
        !self.members.is_empty() && self.members.iter().all(Member::is_alive)
    }

    pub(crate) fn count(&self) -> usize {
        self.members.len()
    }

    /// Tells whether the data connections exist.
    pub(crate) fn has_way(&self) -> bool {
        !matches!(self.way, DataPath::None)
    }

    pub(crate) fn is_listening(&self) -> bool {
        matches!(self.way, DataPath::Listening)
    }

    /// Forgets where data goes; the conversations stay.
    pub(crate) fn forget_way(&mut self) {
        self.way = DataPath::None;
    }

    /// Has all members listen, and returns where.
    pub(crate) fn listen(&mut self, cancel: &Cancel) -> Result<Vec<SocketAddr>> {
        self.way = DataPath::None;
        let count = self.members.len() as u64;
        let mut all = Vec::new();
        for (index, member) in (0..).zip(&mut self.members) {
            member.stop_with(cancel);
            let share = StripeShare {
                index,
                count,
                ends: None,
            };
            member.settle(Line::new("OPTS GODWIT").and(format_args!("1;{share}")))?;
            all.extend(member.listen()?);
        }
        self.way = DataPath::Listening;
        Ok(all)
    }

    /// Commands all members to receive.
    pub(crate) fn receive(&mut self, leg: &Leg, esto: &Line) -> Result<()> {
        let seconds = leg.restart_every.as_secs();
        let markers = Line::new("TREV RESTART").and(seconds);
        let orders: Vec<Vec<Line>> = (0..self.members.len())
            .map(|index| {
                let share = self.share(index, &[], 1);
                let mut lines = vec![options(leg.digests, share), markers.clone()];
                lines.extend(self.protection(leg));
                lines.push(esto.clone());
                lines
            })
            .collect();
        self.order(&orders)
    }

    /// Tells the members to send, each its share.
    pub(crate) fn send(&mut self, leg: &Leg, sending: &StripeSending) -> Result<()> {
        let digests = leg.ours && leg.digests;
        let fresh = !self.has_way();
        if fresh {
            let (to, streams) = (sending.to.clone(), sending.streams);
            self.way = DataPath::Aimed { to, streams };
        }
        let (to, streams) = match &self.way {
            DataPath::Aimed { to, streams } => (to.clone(), *streams),
            _ => (Vec::new(), sending.streams),
        };
        let striping = match sending.striping {
            Striping::Partitioned => "StripeLayout=Partitioned;".to_owned(),
            Striping::Blocked { bytes } => format!("StripeLayout=Blocked;BlockSize={bytes};"),
        };
        let retr = format!("Parallelism={streams},{streams},{streams};Markers=5;{striping}");
        let retr = Line::new("OPTS RETR").and(retr);
        let orders: Vec<Vec<Line>> = (0..self.members.len())
            .map(|index| {
                let share = self.share(index, &to, streams);
                let mut lines = vec![options(digests, share), retr.clone()];
                if fresh {
                    let mine = addresses_of(index, self.members.len(), &to);
                    lines.push(Line::new("SPOR").and(list_text(&mine)));
                }
                lines.extend(self.protection(leg));
                lines.extend_from_slice(&sending.lines);
                lines
            })
            .collect();
        self.order(&orders)
    }

    /// Returns the commands that protect data connections.
    fn protection(&self, leg: &Leg) -> Vec<Line> {
        if !self.is_proven {
            return Vec::new();
        }
        let peer = match &leg.peer {
            DataPeer::Anyone => return vec![Line::new("DCAU N")],
            DataPeer::Myself => Line::new("DCAU A"),
            DataPeer::Subject(subject) => Line::new("DCAU S").and(subject),
        };
        vec![peer, Line::new("PROT").and(leg.level.letter())]
    }

    fn share(&self, index: usize, to: &[SocketAddr], streams: usize) -> StripeShare {
        let count = self.members.len();
        StripeShare {
            index: index as u64,
            count: count as u64,
            ends: ends_of(index, count, to.len(), streams),
        }
    }

    fn order(&mut self, orders: &[Vec<Line>]) -> Result<()> {
        self.courses.clear();
        for (member, lines) in self.members.iter_mut().zip(orders) {
            member.say(lines)?;
            let due = lines.len();
            self.courses.push(Course { due, bytes: 0 });
        }
        Ok(())
    }

    /// Waits until the first member has data connections; tells whether they are old ones.
    pub(crate) fn until_begun(&mut self, path: &Path, watch: &Watch) -> Result<bool> {
        let begun = Cell::new(None);
        let mut on = |_: usize, word: MemberWord| {
            if let MemberWord::Begun { warm } = word {
                begun.set(Some(warm));
            }
            Ok(())
        };
        let since = Instant::now();
        loop {
            let over = self.hear(path, watch, &mut on)?;
            if over {
                return Ok(false); // an order that moved nothing
            }
            if since.elapsed() > watch.stall() {
                return Err(self.stalled("waiting for the data connections of stripes", watch));
            }
            if let Some(warm) = begun.get() {
                return Ok(warm);
            }
        }
    }

    /// Waits until all members are done; a failure of one ends the transfer.
    pub(crate) fn until_over(
        &mut self,
        path: &Path,
        watch: &Watch,
        on: &mut dyn FnMut(usize, MemberWord) -> Result<()>,
    ) -> Result<()> {
        let (mut moved, mut since) = (0, Instant::now());
        while !self.hear(path, watch, on)? {
            let now = self.bytes().iter().sum();
            if now != moved {
                watch.moved(now - moved);
                (moved, since) = (now, Instant::now());
            }
            if since.elapsed() > watch.stall() {
                return Err(self.stalled("moving data of stripes", watch));
            }
        }
        Ok(())
    }

    /// Takes one word of any member; tells whether all are done.
    fn hear(
        &mut self,
        path: &Path,
        watch: &Watch,
        on: &mut dyn FnMut(usize, MemberWord) -> Result<()>,
    ) -> Result<bool> {
        if self.courses.iter().all(|course| course.due == 0) {
            return Ok(true);
        }
        if let Some((nth, reply)) = Member::hear_any(&mut self.members, watch.canceled(), TICK)? {
            let reply = reply?;
            let course = &mut self.courses[nth];
            if reply.is_final() {
                course.due = course.due.saturating_sub(1);
                self.members[nth].check(path, &reply)?;
            } else if let Some(word) = word(&reply)? {
                if let MemberWord::Told(Marker::Progress(progress)) = &word {
                    course.bytes = progress.bytes.max(course.bytes);
                }
                on(nth, word)?;
            }
        }
        Ok(self.courses.iter().all(|course| course.due == 0))
    }

    /// Returns how many bytes each has moved.
    pub(crate) fn bytes(&self) -> Vec<u64> {
        self.courses.iter().map(|course| course.bytes).collect()
    }

    /// Aborts the work of all members, and waits until each has stopped or is lost. Their reports still count
    /// meanwhile.
    pub(crate) fn stop(&mut self, on: &mut dyn FnMut(usize, MemberWord) -> Result<()>) {
        self.way = DataPath::None;
        for member in self.members.iter_mut().filter(|member| member.is_busy()) {
            // Who cannot be told is lost, and hears that by itself.
            let _ = member.say(&[Line::new("ABOR")]);
        }
        let until = Instant::now() + STOP_MAX;
        while let Ok(never) = Cancel::new()
            && self.members.iter().any(Member::is_busy)
            && Instant::now() < until
        {
            match Member::hear_any(&mut self.members, &never, TICK) {
                Ok(Some((nth, Ok(reply)))) => {
                    if let Ok(Some(word)) = word(&reply) {
                        let _ = on(nth, word);
                    }
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        self.members.retain(Member::is_alive);
    }

    fn stalled(&self, during: &str, watch: &Watch) -> Error {
        let busy = self.members.iter().zip(&self.courses);
        let hosts: Vec<&str> = busy
            .filter(|(_, course)| course.due > 0)
            .map(|(member, _)| member.host())
            .collect();
        Error::stalled(hosts.join(", "), during, watch.stall())
    }
}

fn open(url: &Url, login: &StripeLogin, options: &RemoteOptions) -> Result<Member> {
    // The key is proved where certificates are.
    let by_key = format!("{url}").replacen("ftp://", "gsiftp://", 1);
    let server = match (&login.key, by_key.parse::<Url>()) {
        (Some(_), Ok(by_key)) => Remote::open(&by_key, options)?,
        _ => Remote::open(url, options)?,
    };
    let mut member = Member::open(&server)?;
    if let (Some(_), Some(pem)) = (&login.key, &login.shown) {
        member.settle(Line::new("DCSC P").and(base64::encode(pem)))?;
    }
    Ok(member)
}

fn options(digests: bool, share: StripeShare) -> Line {
    let digests = if digests { "" } else { "digests=0;" };
    Line::new("OPTS GODWIT").and(format_args!("1;{digests}{share}"))
}

fn word(reply: &Reply) -> Result<Option<MemberWord>> {
    Ok(match reply.code {
        125 => Some(MemberWord::Begun { warm: true }),
        150 => Some(MemberWord::Begun { warm: false }),
        _ => Marker::from_reply(reply)?.map(MemberWord::Told),
    })
}

/// Returns the addresses that one of `members` connects to: each address has a sender, and the work is divided evenly.
fn addresses_of(index: usize, members: usize, to: &[SocketAddr]) -> Vec<SocketAddr> {
    if members >= to.len() {
        return vec![to[index % to.len()]];
    }
    to.iter().skip(index).step_by(members).copied().collect()
}

/// Returns how many ends of data a member announces: if several send to one address, the first of them announces for
/// all.
fn ends_of(index: usize, members: usize, addresses: usize, streams: usize) -> Option<u64> {
    if addresses == 0 || members <= addresses {
        return None;
    }
    let together = (members - index % addresses).div_ceil(addresses);
    Some(match index < addresses {
        true => (together * streams.max(1)) as u64,
        false => 0,
    })
}

const CONNECT_MAX: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(500);
/// For members to say that they have stopped.
const STOP_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(count: u16) -> Vec<SocketAddr> {
        (0..count)
            .map(|n| ([127, 0, 0, 1], 2000 + n).into())
            .collect()
    }

    #[test]
    fn each_address_gets_ends_announced_once() {
        for members in 1..9 {
            for addresses in 1..9 {
                let to = at(addresses as u16);
                for streams in 1..4 {
                    for address in &to {
                        let senders: Vec<usize> = (0..members)
                            .filter(|&i| addresses_of(i, members, &to).contains(address))
                            .collect();
                        let announced: Vec<u64> = senders
                            .iter()
                            .filter_map(|&i| match ends_of(i, members, addresses, streams) {
                                Some(0) => None,
                                Some(ends) => Some(ends),
                                // As many as it makes, which is at least one to each.
                                None => Some((senders.len() * streams) as u64),
                            })
                            .collect();
                        let expected = (senders.len() * streams) as u64;
                        assert_eq!(announced, [expected], "{members} to {addresses}");
                    }
                }
            }
        }
    }
}
