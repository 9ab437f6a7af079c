//! TLS around the whole flow of a control channel (RFC 4217), for either end.

use godwit_trust::{Channel, Context, Error, Opened};
use godwit_wire::shield::{Guard, Spoiled};

/// Wraps a flow of lines. During the handshake, arriving bytes belong to the handshake, and its answers are sent with
/// the next [`Guard::wrap`].
#[derive(Debug)]
pub struct Flow {
    channel: Channel,
    state: State,
    /// Bytes of the engine that must be sent.
    due: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Beginning,
    Standing,
    /// The peer has said its last word.
    Ended,
    Broken,
}

impl Flow {
    /// Takes a context in which nothing has been said yet.
    pub fn beginning(channel: Channel) -> Self {
        Self::new(channel, State::Beginning)
    }

    /// Takes one that stands.
    pub fn standing(channel: Channel) -> Self {
        Self::new(channel, State::Standing)
    }

    fn new(channel: Channel, state: State) -> Self {
        Self {
            channel,
            state,
            due: Vec::new(),
        }
    }

    fn open(&mut self, came: &[u8]) -> Result<Vec<u8>, Error> {
        match self.state {
            State::Beginning => {
                let step = self.channel.step(came)?;
                self.due.extend(step.token.unwrap_or_default());
                if !step.done {
                    return Ok(Vec::new());
                }
                self.state = State::Standing;
                tracing::debug!(protection = self.channel.protection(), "under TLS");
            }
            State::Standing => self.channel.take_in(came)?,
            State::Ended | State::Broken => return Ok(Vec::new()),
        }
        let (mut plain, mut piece) = (Vec::new(), [0; PIECE_BYTES]);
        loop {
            match self.channel.open(&mut piece)? {
                Opened::Bytes(count) => plain.extend_from_slice(&piece[..count]),
                Opened::Nothing => break,
                Opened::End => {
                    self.state = State::Ended;
                    break;
                }
            }
        }
        Ok(plain)
    }
}

impl Guard for Flow {
    fn wrap(&mut self, plain: &[u8]) -> Result<Vec<u8>, Spoiled> {
        let mut sealed = std::mem::take(&mut self.due);
        if self.state == State::Broken {
            return Ok(sealed); // why we go no further; nothing else
        }
        sealed.append(&mut self.channel.said());
        if !plain.is_empty() {
            let sealing = self.channel.seal(plain, &mut sealed);
            sealing.map_err(|error| Spoiled(error.to_string()))?;
        }
        Ok(sealed)
    }

    fn unwrap(&mut self, came: &[u8]) -> Result<Vec<u8>, Spoiled> {
        self.open(came).map_err(|error| {
            self.state = State::Broken;
            self.due.append(&mut self.channel.said());
            Spoiled(error.to_string())
        })
    }

    fn end(&mut self) -> Vec<u8> {
        let mut sealed = Vec::new();
        if matches!(self.state, State::Standing | State::Ended) {
            // If the farewell is lost, the peer is gone anyway.
            let _ = self.channel.end(&mut sealed);
        }
        sealed
    }

    fn stands(&self) -> bool {
        self.state != State::Beginning
    }
}

/// A line, or many of small files.
const PIECE_BYTES: usize = 16 << 10;
