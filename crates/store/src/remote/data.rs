//! How data connections come about, with each kind of server.

use super::{
    faults,
    session::{Flow, KeptChannel, PairSettings, RemoteSession, Warm},
};
use crate::{
    Error, Result, Width,
    channel::{DataChannel, TransferMode, Watch},
};
use godwit_wire::{
    address::{Bars, Commas, Passive, list_text},
    client::{Family, Line, Talk},
};
use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
};

/// The hosts of a striped server that have a part in a transfer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Hosts {
    /// The one that we speak to.
    One,
    /// All of them.
    All,
}

impl RemoteSession {
    /// Gets data connections ready for the next transfer, before it is asked for:
    /// those of the transfer before if they fit, else new ones.
    ///
    /// We connect in stream mode, and always if the server is a node. In extended block mode with other servers, the
    /// sending side connects. A listener's backlog completes connections by itself, so none is accepted before the
    /// server's 150.
    pub(super) fn open_data(
        &mut self,
        flow: Flow,
        mode: TransferMode,
        streams: usize,
        hosts: Hosts,
        watch: &Watch,
    ) -> Result<DataChannel> {
        let listens = flow == Flow::Fetch
            && mode == TransferMode::Extended
            && self.family() != Family::Godwit;
        let mut channel = self.aim(flow, mode, streams, hosts)?;
        if !listens {
            let streams = if mode == TransferMode::Stream {
                1
            } else {
                streams
            };
            channel.open(streams.max(1), watch)?;
        }
        Ok(channel)
    }

    /// Prepares as [`RemoteSession::open_data`] does, but connects nowhere yet. With a node the command is sent first, so
    /// that both are in flight at the same time.
    pub(super) fn aim_data(
        &mut self,
        flow: Flow,
        mode: TransferMode,
        streams: usize,
    ) -> Result<DataChannel> {
        self.aim(flow, mode, streams, Hosts::One)
    }

    fn aim(
        &mut self,
        flow: Flow,
        mode: TransferMode,
        streams: usize,
        hosts: Hosts,
    ) -> Result<DataChannel> {
        let streams = match mode {
            TransferMode::Stream => 1,
            TransferMode::Extended => streams.max(1),
        };
        if let Some(Warm::Ours(mut warm)) = self.warm.take()
            && warm.mode == TransferMode::Extended
            && (warm.flow, warm.mode, warm.streams) == (flow, mode, streams)
            && warm.hosts == self.reached(hosts)
            && warm.channel.is_warm()
        {
            return Ok(warm.channel);
        }
        self.check_dates()?;
        self.settle_mode(flow, mode, streams)?;
        let listens = flow == Flow::Fetch
            && mode == TransferMode::Extended
            && self.family() != Family::Godwit;
        if listens {
            return self.listen_for_data();
        }
        let mut channel = DataChannel::connect(self.ask_passive(mode, hosts)?);
        channel.size_buffers(self.options.tcp_buffer);
        channel.protect(self.safety.clone());
        Ok(channel)
    }

    /// Keeps connections for the next transfer, if they can serve again.
    pub(super) fn keep_data(
        &mut self,
        mut channel: DataChannel,
        flow: Flow,
        mode: TransferMode,
        streams: usize,
        hosts: Hosts,
    ) {
        if mode == TransferMode::Extended && channel.is_warm() {
            let streams = streams.max(1);
            self.warm = Some(Warm::Ours(KeptChannel {
                channel,
                flow,
                mode,
                streams,
                hosts: self.reached(hosts),
            }));
        }
    }

    fn reached(&self, hosts: Hosts) -> Hosts {
        match self.peer.stripes() {
            1 => Hosts::One,
            _ if self.options.one_host => Hosts::One,
            _ => hosts,
        }
    }

    fn settle_mode(&mut self, flow: Flow, mode: TransferMode, streams: usize) -> Result<()> {
        let mut lines: Vec<Line> = self.settings.mode(mode).into_iter().collect();
        if flow == Flow::Fetch && mode == TransferMode::Extended && self.family() == Family::Grid {
            lines.extend(self.settings.parallelism(streams, streams));
        }
        let replies = if lines.is_empty() {
            Vec::new()
        } else {
            self.ask(&lines)?
        };
        for reply in &replies {
            faults::check(&self.host, Path::new("MODE"), reply)?;
        }
        Ok(())
    }

    /// Asks the server to listen.
    fn ask_passive(&mut self, mode: TransferMode, hosts: Hosts) -> Result<Vec<SocketAddr>> {
        // Only the server knows where it is.
        if self.is_carried() && self.reached(hosts) != Hosts::All {
            let reply = self.ask_one(Line::new("PASV"))?;
            if let Ok(Passive::Commas(told)) = Passive::from_reply(&reply) {
                return Ok(vec![told.into()]);
            }
        }
        let control = self.peer_address()?;
        if self.reached(hosts) == Hosts::All && mode == TransferMode::Extended {
            let reply = self.ask_one(Line::new("SPAS"))?;
            faults::check(&self.host, Path::new("SPAS"), &reply)?;
            return self.passive_addresses(&Passive::from_reply(&reply)?, control);
        }
        let striped = mode == TransferMode::Extended && self.family() == Family::Grid;
        let knows_epsv = self.peer.features.has("EPSV") || self.family() == Family::Godwit;
        if control.is_ipv6() || (knows_epsv && !self.no_epsv && !striped) {
            let reply = self.ask_one(Line::new("EPSV"))?;
            if reply.code == 229 {
                return self.passive_addresses(&Passive::from_reply(&reply)?, control);
            }
            self.no_epsv = true;
            if control.is_ipv6() {
                faults::check(&self.host, Path::new("EPSV"), &reply)?;
            }
        }
        let reply = self.ask_one(Line::new("PASV"))?;
        faults::check(&self.host, Path::new("PASV"), &reply)?;
        self.passive_addresses(&Passive::from_reply(&reply)?, control)
    }

    fn passive_addresses(&self, passive: &Passive, control: SocketAddr) -> Result<Vec<SocketAddr>> {
        Ok(match passive {
            Passive::Commas(told) => {
                let told = SocketAddr::V4(*told);
                vec![SocketAddr::new(
                    believable(told.ip(), control.ip()),
                    told.port(),
                )]
            }
            Passive::Bars(Bars { ip, port }) => {
                vec![SocketAddr::new(ip.unwrap_or(control.ip()), *port)]
            }
            Passive::Stripes(all) => {
                let plain =
                    |at: &SocketAddr| SocketAddr::new(believable(at.ip(), control.ip()), at.port());
                match all.len() {
                    1 => all.iter().map(plain).collect(),
                    _ => all.clone(),
                }
            }
        })
    }

    /// Listens, and tells the server where.
    fn listen_for_data(&mut self) -> Result<DataChannel> {
        let (mut channel, address) = DataChannel::listen(self.local_ip()?, None)?;
        channel.size_buffers(self.options.tcp_buffer);
        channel.protect(self.safety.clone());
        channel.await_proof()?;
        let line = match address {
            SocketAddr::V4(v4) => Line::new("PORT").and(Commas(v4)),
            SocketAddr::V6(_) => Line::new("EPRT").and(Bars::from(address)),
        };
        let reply = self.ask_one(line)?;
        faults::check(&self.host, Path::new("PORT"), &reply)?;
        Ok(channel)
    }

    /// Has this server listen for data from another server.
    pub(super) fn relay_target(&mut self, mode: TransferMode) -> Result<Vec<SocketAddr>> {
        self.warm = None;
        self.check_dates()?;
        self.settle_mode(Flow::Deliver, mode, 1)?;
        self.ask_passive(mode, Hosts::All)
    }

    /// Tells this server where to send, with how many connections. Returns false if it will not send there.
    pub(super) fn relay_source(
        &mut self,
        mode: TransferMode,
        (first, most): (usize, usize),
        to: &[SocketAddr],
    ) -> Result<bool> {
        self.warm = None;
        self.check_dates()?;
        self.settle_mode(Flow::Fetch, mode, 1)?;
        if mode == TransferMode::Extended
            && let Some(line) = self.settings.parallelism(first, most)
        {
            let reply = self.ask_one(line)?;
            faults::check(&self.host, Path::new("OPTS"), &reply)?;
        }
        let line = match to {
            [SocketAddr::V4(v4)] => Line::new("PORT").and(Commas(*v4)),
            [v6] => Line::new("EPRT").and(Bars::from(*v6)),
            all => Line::new("SPOR").and(list_text(all)),
        };
        Ok(self.ask_one(line)?.is_positive())
    }

    /// With how many connections this server begins to send to `hosts`, and how many it may have.
    pub(super) fn relay_streams(&self, width: &Width, hosts: usize) -> (usize, usize) {
        let most = width.most().div_ceil(hosts);
        match self.family() {
            Family::Godwit => (width.streams().min(most), most),
            _ => (most, most),
        }
    }

    /// Returns the connections that this server keeps to another one.
    pub(super) fn pair(&self) -> Option<PairSettings> {
        match self.warm {
            Some(Warm::Theirs(pair)) => Some(pair),
            _ => None,
        }
    }

    /// Adds the host and the path to an error of this session.
    pub(super) fn about(&self, error: Error, path: &Path) -> Error {
        faults::about(error, &self.host, path)
    }
}

/// A server behind a translator tells the address it knows of itself, which
/// leads nowhere from here: then the one that answers commands is meant.
fn believable(told: IpAddr, control: IpAddr) -> IpAddr {
    let is_inner = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => {
            ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_unspecified()
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unspecified(),
    };
    if told != control && (is_inner(told) || told.is_unspecified()) {
        control
    } else {
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_address_behind_translator_is_replaced() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(believable(ip("10.0.0.5"), ip("192.0.2.1")), ip("192.0.2.1"));
        assert_eq!(believable(ip("0.0.0.0"), ip("192.0.2.1")), ip("192.0.2.1"));
        assert_eq!(
            believable(ip("192.0.2.9"), ip("192.0.2.1")),
            ip("192.0.2.9"),
            "a data node"
        );
        assert_eq!(
            believable(ip("127.0.0.1"), ip("127.0.0.1")),
            ip("127.0.0.1")
        );
    }
}
