//! Makes the node reachable through another node, by a few connections to it that wait for visitors.
//!
//! A node behind an address translator makes these connections itself. To a visitor its door is like any other: TLS
//! with its own key, from the visitor's first byte. The relay is trusted only to pass bytes on.

use super::parked::ParkedStream;
use crate::{
    base::admission::{Admission, Admitted, Party},
    shared::NodeState,
};
use godwit_core::Url;
use godwit_store::door::{RequestBody, Tls, TlsFailure};
use godwit_sys::{source_ip, why};
use godwit_trust::{
    Authorities, Credential, Peer,
    door::{self, Fingerprint, WantedHost},
};
use godwit_wire::door::{
    ROOT,
    call::{LINE_BYTES_MAX, Line},
    park::{self, ParkLine, SILENCE},
    speaker::Speaker,
};
use hyper::{
    Request, Response, StatusCode,
    body::{Body, Bytes, Incoming},
    client::conn::http1,
    header::{CONNECTION, HOST, UPGRADE, USER_AGENT},
    upgrade::Upgraded,
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::{
    future::{Future, poll_fn},
    hash::{BuildHasher, Hasher, RandomState},
    net::{IpAddr, SocketAddr},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};
use tokio::{
    net::{TcpStream, lookup_host},
    sync::{mpsc, watch},
    time::{Instant, timeout},
};

/// Attends to a visitor from an address, who was admitted.
pub(crate) type Attend = Box<
    dyn Fn(TokioIo<Upgraded>, SocketAddr, Admitted) -> Pin<Box<dyn Future<Output = ()> + Send>>
        + Send
        + Sync,
>;

/// A node that visitors come through.
pub(crate) struct UplinkNode {
    pub(crate) shared: Arc<NodeState>,
    /// Attends to a visitor on a stream, to the end.
    pub(crate) attend: Attend,
    pub(crate) admission: Arc<Admission>,
    pub(crate) draining: watch::Receiver<()>,
    /// How it is called here.
    pub(crate) name: String,
    /// The address that was used last.
    pub(crate) at: Mutex<Option<SocketAddr>>,
}

/// Events of a connection.
enum News {
    Parked,
    /// A visitor has it.
    Taken,
    /// A visitor's is over.
    Served,
    Ended {
        why: String,
        /// For how long it had waited; `None`: it never came to that.
        waited: Option<Duration>,
    },
}

/// Decides how many connections there are, and when the next is made. Knows no timer: it is told the time.
#[derive(Debug)]
struct Fleet {
    dialing: usize,
    waiting: usize,
    taken: usize,
    is_ill: bool,
    pause: Duration,
    /// No new ones before.
    rest_until: Option<Instant>,
}

impl Fleet {
    fn new() -> Self {
        Self {
            dialing: 0,
            waiting: 0,
            taken: 0,
            is_ill: false,
            pause: PAUSE_FIRST,
            rest_until: None,
        }
    }

    /// Returns how many are to be made now: as many wait as visitors have, so that many at once
    /// double them soon; while the relay is away, one looks for it.
    fn wanted(&self, now: Instant) -> usize {
        if self.rest_until.is_some_and(|until| now < until) {
            return 0;
        }
        match self.is_ill {
            true => 1_usize.saturating_sub(self.dialing),
            false => {
                let wanted = self.taken.clamp(WAITING_MIN, WAITING_MAX);
                wanted.saturating_sub(self.waiting + self.dialing)
            }
        }
    }

    fn recover(&mut self) {
        (self.is_ill, self.rest_until) = (false, None);
    }

    /// Notes the end of a connection that no visitor had taken. `chance` is from 0 to 1.
    fn ended(&mut self, waited: Option<Duration>, now: Instant, chance: f64) {
        match waited {
            Some(waited) => {
                self.waiting -= 1;
                if waited >= PROVEN {
                    self.pause = PAUSE_FIRST;
                }
                // That all end at once is one outage.
                if self.is_ill {
                    return;
                }
            }
            None => self.dialing -= 1,
        }
        self.is_ill = true;
        self.rest_until = Some(now + self.pause.mul_f64(0.5 + chance / 2.0));
        self.pause = (self.pause * 2).min(PAUSE_LAST);
    }

    /// Notes an event of one connection.
    fn hear(&mut self, news: &News, now: Instant) {
        match news {
            News::Parked => {
                self.dialing -= 1;
                self.waiting += 1;
                self.recover();
            }
            News::Taken => {
                self.waiting -= 1;
                self.taken += 1;
                self.pause = PAUSE_FIRST;
                self.recover();
            }
            News::Served => self.taken -= 1,
            News::Ended { waited, .. } => self.ended(*waited, now, chance()),
        }
    }
}

/// How one goes to a relay.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Route {
    to: Option<SocketAddr>,
    /// From which of our addresses; `None`: no route leads there.
    from: Option<IpAddr>,
}

impl Route {
    fn is_other_than(self, before: Route) -> bool {
        self.to == before.to && self.from.is_some() && self.from != before.from
    }
}

/// Keeps connections waiting there, until the node stops.
pub(crate) async fn keep(via: Arc<UplinkNode>) {
    let (tell, mut told) = mpsc::channel(NEWS_AHEAD);
    let (mut fleet, mut is_out) = (Fleet::new(), None);
    let mut draining = via.draining.clone();
    let mut drained = pin!(draining.changed());
    let mut way = via.way();
    loop {
        for _ in 0..fleet.wanted(Instant::now()) {
            fleet.dialing += 1;
            tokio::spawn(wait(Arc::clone(&via), tell.clone()));
        }
        let rest = fleet.rest_until.map_or(FOREVER, |until| {
            until
                .saturating_duration_since(Instant::now())
                .min(LOOK_EVERY)
        });
        let mut heard = pin!(timeout(rest, told.recv()));
        let heard = poll_fn(|context| match drained.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => heard.as_mut().poll(context).map(Some),
        });
        let now = Instant::now();
        match heard.await {
            None => return,
            Some(Ok(Some(news))) => {
                fleet.hear(&news, now);
                via.log(&news, &fleet, &mut is_out);
            }
            Some(Ok(None)) => return,
            Some(Err(_)) => {
                // The route has changed: a network is back, or is another.
                let before = std::mem::replace(&mut way, via.way());
                if way.is_other_than(before) && fleet.rest_until.is_some() {
                    fleet.rest_until = None;
                    fleet.pause = PAUSE_FIRST;
                } else if fleet.rest_until.is_some_and(|until| until <= now) {
                    fleet.rest_until = None;
                }
            }
        }
    }
}

impl UplinkNode {
    /// Logs each outage once. `is_out`: whether one was logged.
    fn log(&self, news: &News, fleet: &Fleet, is_out: &mut Option<bool>) {
        let relay = &self.name;
        match news {
            News::Parked if *is_out != Some(false) => {
                *is_out = Some(false);
                tracing::info!(relay, "reached through");
            }
            News::Ended { why, .. } if fleet.waiting == 0 && *is_out != Some(true) => {
                *is_out = Some(true);
                tracing::warn!(relay, why, "not reached through it until it answers again");
            }
            News::Ended { why, .. } => tracing::debug!(relay, why, "a parked connection ended"),
            _ => {}
        }
    }

    /// Returns how one would go there now.
    fn way(&self) -> Route {
        let to = *self.at.lock();
        Route {
            to,
            from: to.and_then(|to| source_ip(to).ok()),
        }
    }

    /// Returns the node itself, as it is known now, and what we show to it.
    fn relay(&self) -> Result<(Peer, Credential), String> {
        let home = self.shared.trust.home();
        let home = home.ok_or("this node keeps no state (--state)")?;
        let told = |error: godwit_trust::Error| error.to_string();
        let peer = home.peer(&self.name).map_err(told)?;
        let peer = peer.ok_or("no peer of that name is known any more (godwit join)")?;
        let ours = home.key_for(&peer).map_err(told)?;
        if Fingerprint::of_credential(&ours).map_err(told)? == peer.key {
            return Err("that is this node itself".into());
        }
        Ok((peer, ours))
    }

    /// Makes a connection that waits, at the first address that leads there.
    async fn dial(&self) -> Result<ParkedStream<TokioIo<Upgraded>>, String> {
        let (peer, ours) = self.relay()?;
        let mut wrong = "it has told no address: it only comes to us".to_owned();
        for address in &peer.addresses {
            let dialed = timeout(DIAL, self.dial_at(address, &peer, &ours)).await;
            let dialed =
                dialed.unwrap_or_else(|_| Err(format!("no answer within {} s", DIAL.as_secs())));
            match dialed {
                Ok(parked) => return Ok(parked),
                Err(why) => wrong = format!("{address}: {why}"),
            }
        }
        Err(wrong)
    }

    async fn dial_at(
        &self,
        address: &str,
        peer: &Peer,
        ours: &Credential,
    ) -> Result<ParkedStream<TokioIo<Upgraded>>, String> {
        let url: Result<Url, _> = format!("godwit://{address}/").parse();
        let place = url
            .ok()
            .and_then(|url| Some((url.host()?.to_resolve(), url.port()?)));
        let (host, port) = place.ok_or("that is no address of a node")?;
        let socket = self.connect(&host, port).await?;
        let wanted = WantedHost::Key(peer.key);
        let ssl = door::visit(ours, &wanted, &host).map_err(|error| error.to_string())?;
        let tls = Tls::begin(ssl, socket)
            .await
            .map_err(|failed| match failed {
                TlsFailure::Io(cause) => why(&cause),
                TlsFailure::Said(error) => error.to_string(),
                TlsFailure::Elsewhere => "the node that answers there has another key".into(),
            })?;
        let met = door::met(tls.ssl(), &wanted, &Authorities::none(), ours);
        met.map_err(|error| error.to_string())?;
        let lost = |error: hyper::Error| error.to_string();
        let (mut sender, connection) = http1::handshake(TokioIo::new(tls)).await.map_err(lost)?;
        tokio::spawn(connection.with_upgrades());
        let request = Request::builder()
            .method("POST")
            .uri(format!("{ROOT}{}", park::CALL))
            .header(HOST, address)
            .header(USER_AGENT, Speaker::ours().to_string())
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, park::UPGRADE)
            .body(RequestBody::whole(Bytes::new()))
            .map_err(|error| error.to_string())?;
        let answer = sender.send_request(request).await.map_err(lost)?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(refused(answer).await);
        }
        let stream = hyper::upgrade::on(answer).await.map_err(lost)?;
        Ok(ParkedStream::new(TokioIo::new(stream)))
    }

    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, String> {
        let found = lookup_host((host, port)).await;
        let mut wrong = "no such host".to_owned();
        for address in found.map_err(|error| why(&error))? {
            *self.at.lock() = Some(address);
            match timeout(CONNECT, TcpStream::connect(address)).await {
                Ok(Ok(socket)) => {
                    let _ = socket.set_nodelay(true);
                    return Ok(socket);
                }
                Ok(Err(error)) => wrong = why(&error),
                Err(_) => wrong = format!("no answer within {} s", CONNECT.as_secs()),
            }
        }
        Err(wrong)
    }
}

/// Makes one connection, and attends to the visitor that comes through it.
async fn wait(via: Arc<UplinkNode>, tell: mpsc::Sender<News>) {
    let mut line = match via.dial().await {
        Ok(line) => line,
        Err(why) => {
            let _ = tell.send(News::Ended { why, waited: None }).await;
            return;
        }
    };
    let _ = tell.send(News::Parked).await;
    let (since, mut draining) = (Instant::now(), via.draining.clone());
    let come = {
        let mut coming = pin!(visitor(&mut line));
        let mut drained = pin!(draining.changed());
        poll_fn(|context| match drained.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(Err("this node is stopping".to_owned())),
            Poll::Pending => coming.as_mut().poll(context),
        })
        .await
    };
    let admitted = come.and_then(|from| {
        let admitted = via
            .admission
            .admit(Party::Address(from.ip().to_canonical()));
        Ok((from, admitted?))
    });
    let (from, admitted) = match admitted {
        Ok(admitted) => admitted,
        Err(why) => {
            let waited = Some(since.elapsed());
            let _ = tell.send(News::Ended { why, waited }).await;
            return;
        }
    };
    let _ = tell.send(News::Taken).await;
    if line.say(ParkLine::Taken, &[], SILENCE).await.is_ok() {
        tracing::debug!(peer = %from, relay = via.name, "a visitor comes through");
        (via.attend)(line.into_stream(), from, admitted).await;
    }
    let _ = tell.send(News::Served).await;
}

/// Answers beats until a visitor arrives; returns the visitor's address as the relay reports it.
async fn visitor(line: &mut ParkedStream<TokioIo<Upgraded>>) -> Result<SocketAddr, String> {
    loop {
        match line.hear(SILENCE).await.map_err(|error| why(&error))? {
            ParkLine::Beat => {
                let said = line.say(ParkLine::Beat, &[], SILENCE).await;
                said.map_err(|error| why(&error))?;
            }
            ParkLine::Visitor(from) => return Ok(from),
            ParkLine::Taken => {
                return Err("it sent a line that is not allowed to a parked connection".into());
            }
        }
    }
}

/// Returns the text of a refusal.
async fn refused(answer: Response<Incoming>) -> String {
    let (status, mut body, mut text) = (answer.status(), answer.into_body(), Vec::new());
    while text.len() < LINE_BYTES_MAX {
        match poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            Some(Ok(frame)) => text.extend(frame.into_data().unwrap_or_default()),
            _ => break,
        }
    }
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    match Line::read(line) {
        Ok(Line::Error(refusal)) => refusal.said,
        _ => format!("it answered {status}: does it pass visitors on? it may have to be upgraded"),
    }
}

/// Returns a number from 0 to 1 that others do not have.
fn chance() -> f64 {
    let drawn = RandomState::new().build_hasher().finish();
    (drawn >> 11) as f64 / (1_u64 << 53) as f64
}

/// The least connections that wait for visitors.
const WAITING_MIN: usize = 4;
const WAITING_MAX: usize = 16;
const PAUSE_FIRST: Duration = Duration::from_millis(250);
/// No outage that is over is noticed later than this, where the system does not tell.
const PAUSE_LAST: Duration = Duration::from_secs(15);
/// A connection that waited this long proves the relay good.
const PROVEN: Duration = Duration::from_secs(20);
const DIAL: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_secs(1);
const FOREVER: Duration = Duration::from_secs(3600);
const NEWS_AHEAD: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(waited: Option<Duration>) -> News {
        let why = String::new();
        News::Ended { why, waited }
    }

    /// Makes all that are wanted, and has them wait.
    fn park(fleet: &mut Fleet, now: Instant) -> usize {
        let wanted = fleet.wanted(now);
        for _ in 0..wanted {
            fleet.dialing += 1;
        }
        for _ in 0..wanted {
            fleet.hear(&News::Parked, now);
        }
        wanted
    }

    #[test]
    fn as_many_wait_as_visitors_have() {
        let (mut fleet, now) = (Fleet::new(), Instant::now());
        assert_eq!(park(&mut fleet, now), WAITING_MIN);
        for (taken, made) in [(4, 4), (4, 8), (8, 16), (16, 16)] {
            for _ in 0..taken {
                fleet.hear(&News::Taken, now);
            }
            assert_eq!(park(&mut fleet, now), made, "{fleet:?}");
        }
        assert_eq!((fleet.waiting, fleet.taken), (WAITING_MAX, 32));
    }

    #[test]
    fn restored_network_is_new_route() {
        let way = |to: &str, from: Option<&str>| Route {
            to: Some(to.parse().unwrap()),
            from: from.map(|from| from.parse().unwrap()),
        };
        let (lab, home) = ("192.0.2.1:13560", Some("192.0.2.7"));
        assert!(way(lab, home).is_other_than(way(lab, None)));
        assert!(way(lab, home).is_other_than(way(lab, Some("192.0.2.8"))));
        assert!(!way(lab, home).is_other_than(way(lab, home)));
        assert!(!way(lab, None).is_other_than(way(lab, home)));
        // Only the destination differs.
        let other = way("198.51.100.1:13560", None);
        assert!(!way(lab, home).is_other_than(other));
    }

    #[test]
    fn outage_is_probed_by_one_with_backoff() {
        let (mut fleet, mut now) = (Fleet::new(), Instant::now());
        park(&mut fleet, now);
        for _ in 0..WAITING_MIN {
            fleet.hear(&ended(Some(PROVEN)), now);
        }
        let mut pauses = Vec::new();
        for _ in 0..10 {
            assert_eq!(fleet.wanted(now), 0);
            let until = fleet.rest_until.unwrap();
            pauses.push(until - now);
            now = until;
            assert_eq!(fleet.wanted(now), 1);
            fleet.dialing += 1;
            assert_eq!(fleet.wanted(now), 0);
            fleet.hear(&ended(None), now);
        }
        assert!(
            pauses[0] >= PAUSE_FIRST / 2 && pauses[0] <= PAUSE_FIRST,
            "{pauses:?}"
        );
        assert!(
            pauses[9] >= PAUSE_LAST / 2 && pauses[9] <= PAUSE_LAST,
            "{pauses:?}"
        );
        now = fleet.rest_until.unwrap();
        assert_eq!(park(&mut fleet, now), 1);
        assert_eq!(park(&mut fleet, now), WAITING_MIN - 1);
    }
}
