//! TLS around the whole flow of a control channel (RFC 4217), for either end.

use godwit_trust::{Channel, Context, Error, Unsealed};
use godwit_wire::shield::{Guard, Spoiled};

/// Wraps a flow of lines. During the handshake, arriving bytes belong to the handshake, and its answers are sent with
/// the next [`Guard::wrap`].
#[derive(Debug)]
pub struct Flow {
    channel: Channel,
    state: FlowState,
    /// Bytes of the engine that must be sent.
    due: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum FlowState {
    Beginning,
    Standing,
    /// The peer has said its last word.
    Ended,
    Broken,
}

impl Flow {
    /// Takes a context in which nothing has been said yet.
    pub fn beginning(channel: Channel) -> Self {
        Self::new(channel, FlowState::Beginning)
    }

    /// Takes one that stands.
    pub fn standing(channel: Channel) -> Self {
        Self::new(channel, FlowState::Standing)
    }

    fn new(channel: Channel, state: FlowState) -> Self {
        Self {
            channel,
            state,
            due: Vec::new(),
        }
    }

    fn open(&mut self, came: &[u8]) -> Result<Vec<u8>, Error> {
        match self.state {
            FlowState::Beginning => {
                let step = self.channel.step(came)?;
                self.due.extend(step.token.unwrap_or_default());
                if !step.done {
                    return Ok(Vec::new());
                }
                self.state = FlowState::Standing;
                tracing::debug!(protection = self.channel.protection(), "under TLS");
            }
            FlowState::Standing => self.channel.take_in(came)?,
            FlowState::Ended | FlowState::Broken => return Ok(Vec::new()),
        }
        let (mut plain, mut piece) = (Vec::new(), [0; PIECE_BYTES]);
        loop {
            match self.channel.open(&mut piece)? {
                Unsealed::Bytes(count) => plain.extend_from_slice(&piece[..count]),
                Unsealed::Nothing => break,
                Unsealed::End => {
                    self.state = FlowState::Ended;
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
        if self.state == FlowState::Broken {
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
            self.state = FlowState::Broken;
            self.due.append(&mut self.channel.said());
            Spoiled(error.to_string())
        })
    }

    fn end(&mut self) -> Vec<u8> {
        let mut sealed = Vec::new();
        if matches!(self.state, FlowState::Standing | FlowState::Ended) {
            // If the farewell is lost, the peer is gone anyway.
            let _ = self.channel.end(&mut sealed);
        }
        sealed
    }

    fn stands(&self) -> bool {
        self.state != FlowState::Beginning
    }
}

/// A line, or many of small files.
const PIECE_BYTES: usize = 16 << 10;
